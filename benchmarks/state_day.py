"""A day of a realistic load in virtual time: batches of a second over windows of an hour by the minute, keys by Zipf.

Run: python -m benchmarks.state_day [--hours 24] [--rows 1000] [--keys 1000000] [--every 1]
One bucket in this process (`bucket_drive.py`), a fresh processor a batch. Shows a line for each virtual hour, writes
them as a result, and fails if what a batch of any hour writes and reads is not that of the second, when the windows
were filled, or if an hour leaves a state of more than three times what is live in it. An hour of batches of a second
takes a minute of CPU; `--every 10` makes one batch of the same rows in ten seconds, and a day takes minutes.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

import numpy as np
import pyarrow as pa

from benchmarks.bucket_drive import START_MS, DrivenBucket, Spent, rows_of
from benchmarks.measure import Sheet, how_many
from keyedwm.operators.state.blobs import unpacked

FLAT = 1.5
OF_LIVE = 3.0
# How far events trail, at most, behind the batch that brings them.
LATE_MS = 2_000


@dataclass(frozen=True, slots=True)
class Load:
    """rows: of each batch. batch_ms: the event time that it spans. batches_a_frame, frames: of a slide, of a window."""

    rows: int
    keys: int
    batch_ms: int = 1_000
    batches_a_frame: int = 60
    frames: int = 60


@dataclass(frozen=True, slots=True)
class Stretch:
    """What a batch cost on average over some batches, and what the state was at their end."""

    batches: int
    ms: float
    put_bytes: float
    read_bytes: float
    partial_bytes: float
    results: float
    state_bytes: int
    live_bytes: int


def stretches(load: Load, count: int, batches: int) -> Iterator[Stretch]:
    """Run `count` stretches of so many batches each."""
    slide_ms = load.batch_ms * load.batches_a_frame
    bucket = DrivenBucket("sliding", slide_ms * load.frames, slide_ms)
    rng = np.random.default_rng(17)
    chance = 1 / np.arange(1, load.keys + 1)
    borders = np.cumsum(chance / chance.sum())
    at_ms = START_MS
    for _ in range(count):
        spent = []
        for _ in range(batches):
            keys = np.searchsorted(borders, rng.random(load.rows))
            before_ms = rng.integers(0, load.batch_ms + LATE_MS, load.rows)
            at_ms += load.batch_ms
            rows = rows_of(np.minimum(keys, load.keys - 1), np.sort(at_ms - before_ms))
            spent.append(bucket.run_rows(rows, at_ms - load.batch_ms - LATE_MS))
        yield _stretch(bucket, spent)


def _stretch(bucket: DrivenBucket, spent: list[Spent]) -> Stretch:
    def mean(name: str) -> float:
        return sum(getattr(one, name) for one in spent) / len(spent)

    return Stretch(
        batches=len(spent), ms=1_000 * mean("seconds"), put_bytes=mean("put_bytes"), read_bytes=mean("read_bytes"),
        partial_bytes=mean("partial_bytes"), results=mean("rows"), state_bytes=bucket.state_bytes,
        live_bytes=live_bytes(bucket),
    )  # fmt: skip


def live_bytes(bucket: DrivenBucket) -> int:
    """The bytes of the frames if each key stood in each of them once."""
    frames: dict[str, list[pa.Table]] = defaultdict(list)
    for (name,), (blob,) in bucket.state.blob_values.items():
        if name.startswith("frame-"):
            frames[name.partition("+")[0]].append(unpacked(blob))
    live = 0.0
    for parts in frames.values():
        table = pa.concat_tables(parts)
        live += table.nbytes / max(1, table.num_rows) * len(table["k"].unique())
    return int(live)


def check(past: Sequence[Stretch]) -> None:
    """Raise SystemExit if a stretch is not like the first of these, when the windows were filled."""
    for number, now in enumerate(past):
        for name in ("put_bytes", "read_bytes"):
            was, is_now = getattr(past[0], name), getattr(now, name)
            if is_now > FLAT * was + 1_000:
                raise SystemExit(f"{name} of a batch rose from {was:,.0f} to {is_now:,.0f} in stretch {number}")
        if now.state_bytes > OF_LIVE * now.live_bytes + 100_000:
            raise SystemExit(f"the state has {now.state_bytes:,} bytes, {now.live_bytes:,} of them live")


def main() -> None:
    """Run the day and write its result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hours", type=how_many, default=24)
    parser.add_argument("--rows", type=how_many, default=1_000)
    parser.add_argument("--keys", type=how_many, default=1_000_000)
    parser.add_argument("--every", type=how_many, default=1, help="seconds of a batch, which divide a minute")
    options = parser.parse_args()
    if options.every < 1 or 60 % options.every:
        raise SystemExit(f"--every {options.every}: whole seconds that divide a minute are expected")
    load = Load(options.rows, options.keys, 1_000 * options.every, 60 // options.every)
    setting = {
        "batch": load.rows,
        "seconds_a_batch": options.every,
        "keys": load.keys,
        "window": "1 hour by the minute",
    }
    sheet = Sheet("state-day", None, setting)
    past = []
    for stretch in stretches(load, options.hours, 3_600 // options.every):
        past.append(stretch)
        sheet.add(f"hour {len(past)}", asdict(stretch))
    check(past[1:] or past)
    sheet.finish()


if __name__ == "__main__":
    main()
