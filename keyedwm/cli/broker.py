"""`keyedwm broker`: a real Kafka that stays until it is told to stop.

Rule: the address goes to stdout, alone on its line, for scripts; everything for people goes to stderr.
"""

from __future__ import annotations

import argparse
import signal
import sys

from keyedwm.testing.broker import WAYS, broker, choose_way

HELP = "keep a real Kafka running and print its address"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """--port and --way."""
    parser.add_argument("--port", type=int, help="port to serve clients on (default: a free one)")
    parser.add_argument("--way", choices=WAYS, help="how to get one (default: the first way that this machine offers)")


def run(args: argparse.Namespace) -> int:
    """Runs until Ctrl-C or SIGTERM, which both leave as KeyboardInterrupt with the broker stopped."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    way = args.way or choose_way()
    if way != "given":
        print("starting a Kafka broker; the first start on a machine also fetches it", file=sys.stderr, flush=True)
    with broker(way, port=args.port) as running:
        print(f"{running.describe()}; Ctrl-C stops it", file=sys.stderr, flush=True)
        print(running.bootstrap, flush=True)  # last: a program that waits for it may stop the broker at once
        while True:
            signal.pause()
