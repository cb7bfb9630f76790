"""The control rows of a batch on their way to the buckets: bytes in the shuffle, and CPU time of tasks and of a bucket.

Run: python -m benchmarks.control_rows [--partitions 1000 10000] [--buckets 200] [--rounds 5]
Every partition has a barrier, those with news a watermark; 1,000 partitions share a task. The form of 0.2.0, a JSON
object for each row (texts) that each bucket takes by itself, and today's columns, which the buckets of a process share,
take turns; what the buckets make of both is compared first.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable, Mapping, Sequence

from benchmarks.measure import Sheet, how_many
from keyedwm.core.control_row import ControlRow, channel_row, decode_rows, encode_rows
from keyedwm.core.rows import ControlKind
from keyedwm.operators.exchange_control import pack_control, unpack_control
from keyedwm.spark.hosting.channel_tracker import ChannelTracker
from keyedwm.spark.hosting.shared_tracker import SharedTracker

OF_TASK = 1_000
START_MS = 1_731_000_000_000
SOURCE = "0123456789ab"
# Name → within how many ms the watermarks of a batch are, what they are multiples of, and the share that has news.
CASES = {
    "within a second": (1_000, 1, 1.0),
    "within a minute": (60_000, 1, 1.0),
    "within a minute, in whole seconds": (60_000, 1_000, 1.0),
    "within a second, one in ten has news": (1_000, 1, 0.1),
}
# With 200 buckets on two cores a process has so many of them.
BUCKETS_OF_PROCESS = 100


def tasks_of(partitions: int, batch: int, case: str) -> list[list[ControlRow]]:
    """The control rows of each task of a batch."""
    chance = random.Random(batch)
    within_ms, step_ms, share = CASES[case]

    def of(number: int) -> list[ControlRow]:
        place = ("orders", number)
        at = 1_000_000 + batch * 50 + chance.randrange(50)
        ms = START_MS + batch * 2 * within_ms + chance.randrange(within_ms) // step_ms * step_ms
        watermark = channel_row(ControlKind.WATERMARK, place, at, SOURCE, key=0, watermark_ms=ms)
        barrier = channel_row(ControlKind.BARRIER, place, at, SOURCE, snapshot=batch, channels=partitions)
        return [watermark, barrier] if batch == 0 or chance.random() < share else [barrier]

    firsts = range(0, partitions, OF_TASK)
    return [
        [row for number in range(first, min(first + OF_TASK, partitions)) for row in of(number)] for first in firsts
    ]


def by_itself(owner: str, shipped: Sequence[str], state: dict) -> dict:
    """Take a batch as a bucket of 0.2.0 does; return its state then."""
    tracker = ChannelTracker.restore(owner, 0, state)
    tracker.apply([row for one in shipped for row in decode_rows(one)])
    return tracker.state()


def shared(owner: str, shipped: Sequence[bytes], state: dict) -> Mapping:
    """Take a batch as one of the buckets of a process; return its state then."""
    tracker = SharedTracker(owner, 0, state)
    tracker.apply([row for one in shipped for row in unpack_control(one)])
    return tracker.state()


# How the tasks write their rows, how a bucket takes them, and in how many buckets that is measured.
FORMS: dict[str, tuple[Callable, Callable, int]] = {
    "texts": (encode_rows, by_itself, 1),
    "columns": (pack_control, shared, BUCKETS_OF_PROCESS),
}


def run(form: str, tasks: Sequence[Sequence[ControlRow]], state: dict, sheet: Sheet, number: int) -> tuple:
    """Ship a batch to the buckets and let those of a process take it: their state then, and the figures."""
    write, take_batch, bucket_count = FORMS[form]
    unpack_control.cache_clear()  # a round is a batch of its own
    began = time.process_time()
    shipped = [write(task) for task in tasks]
    written_s = time.process_time()
    states = [take_batch(f"round {number}", shipped, state) for _ in range(bucket_count)]
    taken_s = time.process_time()
    if any(one != states[0] for one in states):
        raise SystemExit(f"{form}: the buckets do not agree: no figure")
    figures = {
        "megabytes": sum(map(len, shipped)) * sheet.setting["buckets"] / 1e6,
        "tasks_cpu_ms": (written_s - began) * 1e3,
        "bucket_cpu_ms": (taken_s - written_s) * 1e3 / bucket_count,
    }
    return states[0], figures


def measure(sheet: Sheet, partitions: int, case: str) -> None:
    """Run both forms in turn over the second batch; the first round warms up."""
    first, second = (tasks_of(partitions, batch, case) for batch in range(2))
    tracker = ChannelTracker("aggregate", 0)
    tracker.apply([row for task in first for row in task])
    state = tracker.state()
    for number in range(sheet.setting["rounds"] + 1):
        results = {form: run(form, second, state, sheet, number) for form in FORMS}
        if results["texts"][0] != results["columns"][0]:
            raise SystemExit(f"{partitions} partitions, {case}: the forms do not agree: no figure")
        for form, (_, figures) in results.items():
            sheet.add(f"{partitions:,} partitions, {case}: {form}", figures, warming=number == 0)


def main() -> None:
    """Run all cases and write the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--partitions", type=how_many, nargs="+", default=[1_000, 10_000])
    parser.add_argument("--buckets", type=how_many, default=200)
    parser.add_argument("--rounds", type=how_many, default=5)
    options = parser.parse_args()
    sheet = Sheet("control-rows", None, {"buckets": options.buckets, "rounds": options.rounds})
    for partitions in options.partitions:
        for case in CASES:
            measure(sheet, partitions, case)
    sheet.finish()


if __name__ == "__main__":
    main()
