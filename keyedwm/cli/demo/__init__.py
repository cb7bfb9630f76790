"""`keyedwm demo`: the main job on real flights and a real Kafka, side by side with Spark's own watermark.

Rule: figures are shown as they come out. Ends with 0 if keyedwm kept its promise, with 1 and one sentence if not.
Spark, Kafka and matplotlib are imported when the demo runs, so that naming the command costs nothing.
"""

from __future__ import annotations

import argparse
from pathlib import Path

HELP = "run the main job on real flights and a real Kafka, side by side with Spark's own watermark"
DAYS = 365
STEPS = 50


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """--days, --steps and --out."""
    parser.add_argument("--days", type=int, default=DAYS, help="how many days of 2013 (default: all %(default)s)")
    parser.add_argument(
        "--steps", type=int, default=STEPS, help="in how many steps of simulated time (default: %(default)s)"
    )
    parser.add_argument(
        "--out", type=Path, default=Path("build"), help="directory for demo.json and demo.png (default: %(default)s)"
    )


def run(args: argparse.Namespace) -> int:
    """Runs the demo."""
    from keyedwm.cli.demo.show import show

    return show(days=args.days, step_count=args.steps, out=args.out)
