"""The `keyedwm` command.

Rule: a command is a module with HELP, EXAMPLE, PAGE, add_arguments(parser) and run(args) -> int, imported only when it
is called. PAGE is the page of the documentation that shows EXAMPLE.

Exit codes: the result of `run` (0, or 1 for findings); 1 if the reader of the output has closed it; 2 for an error of
ours or a wrong command line; 130 after Ctrl-C.
"""

from __future__ import annotations

import argparse
import errno
import os
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from types import MappingProxyType, ModuleType

from keyedwm import __version__
from keyedwm.core.errors import KeyedwmError
from keyedwm.core.text import words_of

COMMANDS: Mapping[str, str] = MappingProxyType({
    "advise": "keyedwm.cli.advise",
    "broker": "keyedwm.cli.broker",
    "demo": "keyedwm.cli.demo",
    "doctor": "keyedwm.cli.doctor",
    "inspect": "keyedwm.cli.inspect",
    "migrate": "keyedwm.cli.migrate",
    "plot": "keyedwm.cli.plot",
    "savepoint": "keyedwm.cli.savepoint",
    "warm": "keyedwm.cli.warm",
    "watch": "keyedwm.cli.watch",
})  # fmt: skip
OUTPUT_CLOSED = 1
WRONG = 2
INTERRUPTED = 130
_OUTPUT_IS_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EIO)  # files of ours say so themselves


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        args = _parser(arguments[0] if arguments else None).parse_args(arguments)
        code: int = args.run(args)
        sys.stdout.flush()  # here, and not when Python ends: the output may be closed
        return code
    except KeyedwmError as error:
        print(f"keyedwm: {error}", file=sys.stderr)
        return WRONG
    except BrokenPipeError:  # the reader, such as `head`, has enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python writes the rest when it ends
        return OUTPUT_CLOSED
    except OSError as error:
        if error.errno not in _OUTPUT_IS_FULL:
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        print(f"keyedwm: the output cannot be written ({words_of(error)}): send it elsewhere", file=sys.stderr)
        return WRONG
    except KeyboardInterrupt:
        return INTERRUPTED


def _parser(command_name: str | None) -> argparse.ArgumentParser:
    """Return the parser: the HELP of every command, but the arguments of this one only, to import no other."""
    parser = argparse.ArgumentParser(
        prog="keyedwm", description="Per-partition watermarks for Spark Structured Streaming on Kafka."
    )
    parser.add_argument("--version", action="version", version=f"keyedwm {__version__}")
    names = [name for name in COMMANDS if name == command_name] or list(COMMANDS)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name in names:
        module: ModuleType = import_module(COMMANDS[name])
        command = commands.add_parser(
            name, help=module.HELP, description=module.HELP, formatter_class=argparse.RawDescriptionHelpFormatter,
            epilog=f"example:\n  {module.EXAMPLE}\n\npage: {module.PAGE}",
        )  # fmt: skip
        module.add_arguments(command)
        command.set_defaults(run=module.run)
    return parser
