"""`keyedwm vectors PATH...`: replays conformance vectors through the product's own code.

Rule: the replay stands in `conformance/`, beside the package and outside the wheel: it needs a checkout.
"""

from __future__ import annotations

import argparse
from importlib import import_module
from pathlib import Path

from keyedwm.core.errors import OptionError

HELP = "replay conformance vectors through the product's code (needs a checkout)"
EXAMPLE = "keyedwm vectors tests/vectors"
PAGE = "docs/reference/conformance.md"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The files and folders, and whether to name what the design decides otherwise."""
    parser.add_argument("paths", nargs="+", type=Path, metavar="PATH", help="a file or folder of vectors")
    parser.add_argument("-v", "--verbose", action="store_true", help="also list differences that the design decides")


def run(args: argparse.Namespace) -> int:
    """Replay, print, and return the exit code (1: a vector failed). Raises OptionError outside of a checkout."""
    try:
        replay = import_module("conformance.replay")
    except ModuleNotFoundError as error:
        if error.name not in ("conformance", "conformance.replay"):
            raise
        raise OptionError(
            "keyedwm vectors needs the folder conformance/ of the source repository, which the installed package does "
            "not contain: clone the repository, run make install there and use its .venv/bin/keyedwm"
        ) from None
    return replay.replay(args.paths, verbose=args.verbose)
