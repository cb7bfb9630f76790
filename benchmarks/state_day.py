"""A day of a realistic load in virtual time: batches of a second over windows of an hour by the minute, keys by Zipf.

Run: python -m benchmarks.state_day [--hours 24] [--rows 1000] [--keys 1000000]
One bucket in this process (`bucket_drive.py`), a fresh processor a batch. Prints a line for each virtual hour, and
fails if what a batch writes and reads is not flat, or the state is more than three times what is live in it.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass

import numpy as np
import pyarrow as pa

from benchmarks.bucket_drive import START_MS, Driven, Spent, rows_of
from keyedwm.windows.state.blobs import unpacked

FLAT = 1.5
OF_LIVE = 3.0


@dataclass(frozen=True, slots=True)
class Load:
    """rows: of each batch, which spans a second. batches_a_frame: seconds of a slide. frames: slides in a window."""

    rows: int
    keys: int
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
    slide_ms = 1_000 * load.batches_a_frame
    driven = Driven("sliding", slide_ms * load.frames, slide_ms)
    rng = np.random.default_rng(17)
    chance = 1 / np.arange(1, load.keys + 1)
    borders = np.cumsum(chance / chance.sum())
    at_ms = START_MS
    for _ in range(count):
        spent = []
        for _ in range(batches):
            keys = np.searchsorted(borders, rng.random(load.rows))
            late_ms = rng.integers(0, 3_000, load.rows)
            rows = rows_of(np.minimum(keys, load.keys - 1), np.sort(at_ms + 1_000 - late_ms))
            spent.append(driven.take(rows, at_ms - 3_000))
            at_ms += 1_000
        yield _stretch(driven, spent)


def _stretch(driven: Driven, spent: list[Spent]) -> Stretch:
    def mean(name: str) -> float:
        return sum(getattr(one, name) for one in spent) / len(spent)

    return Stretch(
        batches=len(spent), ms=1_000 * mean("seconds"), put_bytes=mean("put_bytes"), read_bytes=mean("read_bytes"),
        partial_bytes=mean("partial_bytes"), results=mean("rows"), state_bytes=driven.state_bytes,
        live_bytes=live_bytes(driven),
    )  # fmt: skip


def live_bytes(driven: Driven) -> int:
    """The bytes of the frames if each key stood in each of them once."""
    frames: dict[str, list[pa.Table]] = defaultdict(list)
    for (name,), (blob,) in driven.state.held.items():
        if name.startswith("frame-"):
            frames[name.partition("+")[0]].append(unpacked(blob))
    live = 0.0
    for parts in frames.values():
        table = pa.concat_tables(parts)
        live += table.nbytes / max(1, table.num_rows) * len(table["k"].unique())
    return int(live)


def check(past: list[Stretch]) -> None:
    """Raise SystemExit if the last stretch is not like the first of these, when the windows were filled."""
    first, last = past[0], past[-1]
    for name in ("put_bytes", "read_bytes"):
        was, now = getattr(first, name), getattr(last, name)
        if now > FLAT * was + 1_000:
            raise SystemExit(f"{name} of a batch rose from {was:,.0f} to {now:,.0f}")
    if last.state_bytes > OF_LIVE * last.live_bytes + 100_000:
        raise SystemExit(f"the state has {last.state_bytes:,} bytes, {last.live_bytes:,} of them live")


def main() -> None:
    """Run the day."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hours", type=int, default=24)
    parser.add_argument("--rows", type=int, default=1_000)
    parser.add_argument("--keys", type=int, default=1_000_000)
    chosen = parser.parse_args()
    past = []
    for stretch in stretches(Load(chosen.rows, chosen.keys), chosen.hours, 3_600):
        past.append(stretch)
        print(json.dumps({"hour": len(past), **asdict(stretch)}), flush=True)
    check(past[1:] or past)


if __name__ == "__main__":
    main()
