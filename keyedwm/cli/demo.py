"""`keyedwm demo`: the main job on real flights and a real Kafka, side by side with Spark's own watermark.

Rule: the demo itself is in `examples/demo/`, beside the package and outside the wheel: the command needs a checkout. It
ends with 0 if keyedwm kept its promise, with 1 and one sentence if not.
"""

from __future__ import annotations

import argparse
from importlib import import_module
from pathlib import Path
from typing import Any

from keyedwm.core.errors import KeyedwmError, OptionError

HELP = "count real flights with keyedwm and with Spark's own watermark (needs a checkout)"
EXAMPLE = "keyedwm demo --days 4 --steps 96"
PAGE = "docs/tutorial/lost-rows.md"
# Two minutes on two cores; a step of four hours is similar to a live query, a step of a week favours Spark's watermark.
DAYS, STEPS = 4, 24
YEAR, YEAR_STEPS = 365, 50
DEVICES, DEVICE_STEPS = 10_000, 12


class MissingError(KeyedwmError):
    """A package that only the demo needs is not installed."""

    advice = "pip install 'keyedwm[demo]'"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """--days, --year or --devices, --steps, --format and --out."""
    played = parser.add_mutually_exclusive_group()
    played.add_argument("--days", type=int, default=DAYS, help="number of days of 2013 (default: %(default)s)")
    played.add_argument("--year", action="store_true", help=f"all of 2013, in {YEAR_STEPS} steps unless --steps is set")
    steps = f"number of steps of simulated time (default: {STEPS}, with --devices {DEVICE_STEPS})"
    parser.add_argument("--steps", type=int, help=steps)
    late = "instead of flights: N devices (default: %(const)s), of which 5 %% upload up to a day late"
    played.add_argument("--devices", type=int, nargs="?", const=DEVICES, metavar="N", help=late)
    parser.add_argument(
        "--format", choices=("json", "avro"), default="json",
        help="values of the flights. With avro the event time is a field, behind a schema registry, which needs Java "
        "21 or newer (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("build"),
        help="directory for demo.json, demo-rows.png and demo.png (default: %(default)s)",
    )


def run(args: argparse.Namespace) -> int:
    """Run the demo and return its exit code. Raises OptionError outside of a checkout."""
    is_avro = args.format == "avro"
    if args.devices is not None and is_avro:
        raise OptionError("--format avro: the events of --devices have no values: leave one of the two out")
    days, step_count = (YEAR, YEAR_STEPS) if args.year else (args.days, STEPS)
    if args.devices is not None:
        step_count = DEVICE_STEPS
    steps_played = step_count if args.steps is None else args.steps
    if args.devices is not None:
        code = _module("show_devices").show_devices(devices=args.devices, step_count=steps_played, out=args.out)
    else:
        code = _module("show").show(days=days, step_count=steps_played, out=args.out, is_avro=is_avro)
    return int(code)


def _module(name: str) -> Any:
    """Return a module of the demo in the checkout that this package is installed from."""
    try:
        return import_module(f"examples.demo.{name}")
    except ModuleNotFoundError as error:
        if error.name not in {"examples", "examples.demo"}:
            raise
        raise OptionError(
            "keyedwm demo needs the folder examples/ of the source repository, which the installed package does not "
            "contain: clone the repository and run make demo there"
        ) from None
