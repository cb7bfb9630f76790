"""The control rows of a batch on their way to the buckets: bytes in the shuffle, and CPU time of a task and a bucket.

Run: python -m benchmarks.control_rows [--partitions 100 1000 10000] [--buckets 200]
Every partition has a barrier, those with news a watermark; 1,000 partitions share a task. `texts` is the form of
0.2.0, one JSON object a row, beside the columns of today, in the same run; what a bucket makes of both is compared
first. Bytes are exact; times are the best of a few runs.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable, Sequence

from keyedwm.core.control_row import ControlRow, channel_row, decode_rows, encode_rows
from keyedwm.core.rows import ControlKind
from keyedwm.operators.shipped_control import pack_control, unpack_control
from keyedwm.spark.hosting.channel_tracker import ChannelTracker

RUNS = 3
OF_TASK = 1_000
START_MS = 1_731_000_000_000
SOURCE = "0123456789ab"
# Name → how many ms the watermarks of a batch are apart, what they are multiples of, and the share that has news.
CASES = {
    "within a second": (1_000, 1, 1.0),
    "within a minute": (60_000, 1, 1.0),
    "within a minute, throttled to seconds": (60_000, 1_000, 1.0),
    "within a second, one in ten has news": (1_000, 1, 0.1),
}
FORMS: dict[str, tuple[Callable, Callable]] = {
    "texts": (encode_rows, decode_rows),
    "columns": (pack_control, unpack_control),
}


def tasks_of(partitions: int, batch: int, case: str) -> list[list[ControlRow]]:
    """The control rows of each task of a batch."""
    chance = random.Random(batch)
    spread_ms, step_ms, share = CASES[case]

    def of(number: int) -> list[ControlRow]:
        place = ("orders", number)
        at = 1_000_000 + batch * 50 + chance.randrange(50)
        ms = START_MS + batch * 2 * spread_ms + chance.randrange(spread_ms) // step_ms * step_ms
        watermark = channel_row(ControlKind.WATERMARK, place, at, SOURCE, key=0, watermark_ms=ms)
        barrier = channel_row(ControlKind.BARRIER, place, at, SOURCE, snapshot=batch, channels=partitions)
        return [watermark, barrier] if batch == 0 or chance.random() < share else [barrier]

    firsts = range(0, partitions, OF_TASK)
    return [
        [row for number in range(first, min(first + OF_TASK, partitions)) for row in of(number)] for first in firsts
    ]


def best(act: Callable[[], object]) -> float:
    """CPU ms of the cheapest of a few runs."""
    took = []
    for _ in range(RUNS):
        began = time.process_time()
        act()
        took.append(time.process_time() - began)
    return min(took) * 1e3


def measure(partitions: int, buckets: int, case: str) -> list[str]:
    """One line for each form."""
    first, second = (tasks_of(partitions, batch, case) for batch in range(2))
    lines, answers = [], []
    for form, (write, read) in FORMS.items():
        tracker = ChannelTracker("aggregate", 0)
        tracker.take([row for task in first for row in read(write(task))])
        state = tracker.state()
        shipped = [write(task) for task in second]
        size = sum(map(len, shipped)) * buckets
        writing = best(lambda write=write: [write(task) for task in second])

        def take(shipped: Sequence = shipped, read: Callable = read, state: dict = state) -> ChannelTracker:
            taken = ChannelTracker.restore("aggregate", 0, state)
            taken.take([row for one in shipped for row in read(one)])
            return taken

        answers.append(take().state())
        lines.append(
            f"| {partitions:,} | {case} | {form} | {size / 1e6:,.2f} MB | {writing:,.1f} | {best(take):,.1f} |"
        )
    if answers[0] != answers[1]:
        raise SystemExit(f"{partitions} partitions, {case}: the forms do not agree: no figure")
    return lines


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--partitions", type=int, nargs="+", default=[100, 1_000, 10_000])
    parser.add_argument("--buckets", type=int, default=200)
    chosen = parser.parse_args()
    print(f"| partitions | watermarks | form | to {chosen.buckets} buckets | all tasks, CPU ms | a bucket, CPU ms |")
    print("|---:|---|---|---:|---:|---:|")
    for partitions in chosen.partitions:
        for case in CASES:
            print("\n".join(measure(partitions, chosen.buckets, case)), flush=True)


if __name__ == "__main__":
    main()
