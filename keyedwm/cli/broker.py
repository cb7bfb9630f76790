"""`keyedwm broker`: a real Kafka, and a schema registry if one is asked for, until Ctrl-C.

Rule: the addresses go to stdout, each on a separate line, for scripts; all texts for people go to stderr.
"""

from __future__ import annotations

import argparse
import signal
import sys
from contextlib import ExitStack

from keyedwm.testing.broker import WAYS, broker, choose_way
from keyedwm.testing.registry import registry

HELP = "run a Kafka broker until Ctrl-C and print its address"
EXAMPLE = "keyedwm broker --port 9092"
PAGE = "docs/tutorial/quickstart.md"
_ANY_PORT = 0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """--port, --way and --registry."""
    parser.add_argument("--port", type=int, help="port of the broker (default: a free port)")
    parser.add_argument("--way", choices=WAYS, help="how to get the broker (default: the first way that works)")
    parser.add_argument(
        "--registry", type=int, nargs="?", const=_ANY_PORT, metavar="PORT",
        help="also start a schema registry with Confluent's API (needs Java 21 or newer), and print its address",
    )  # fmt: skip


def run(args: argparse.Namespace) -> int:
    """Run until Ctrl-C or SIGTERM; both stop the broker and raise KeyboardInterrupt."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    way = args.way or choose_way()
    if way != "given":
        print("starting a Kafka broker; the first start on a machine also fetches it", file=sys.stderr, flush=True)
    with ExitStack() as started:
        running = started.enter_context(broker(way, port=args.port))
        addresses = [running.bootstrap]
        print(f"{running.describe()}; Ctrl-C stops it", file=sys.stderr, flush=True)
        if args.registry is not None:
            print("starting a schema registry; the first start also fetches it", file=sys.stderr, flush=True)
            schemas = started.enter_context(registry(port=args.registry or None))
            print(schemas.describe(), file=sys.stderr, flush=True)
            addresses.append(schemas.url)
        print(*addresses, sep="\n", flush=True)  # last: a program that waits for it may stop the broker at once
        while True:
            signal.pause()
