"""The curves of docs/explanation/scaling.md: what a batch costs against open entries, keys, and rows of the batch.

Run: python -m benchmarks.state_curves [--most 10000000]
One bucket in this process (`bucket_drive.py`): CPU milliseconds of the processor, the median of 40 batches in which
nothing closes, and bytes a batch. Batches have 10,000 rows where nothing else is said.
"""

from __future__ import annotations

import argparse

from benchmarks.bucket_drive import HOUR_MS, START_MS, DrivenBucket
from benchmarks.measure import Sheet, how_many
from benchmarks.state import MINUTE_MS, ROWS, batches_of, filled, measured

COUNT, FRAMES = 40, 100
SLIDING = ("sliding", FRAMES * MINUTE_MS, MINUTE_MS)
SESSION = ("session", HOUR_MS // 2)
KEYS = 100_000


def point(sheet: Sheet, curve: str, size: int, bucket: DrivenBucket, *, keys: int, rows: int = ROWS) -> None:
    """Measure one point; `size` is where it stands on its curve."""
    at_ms = START_MS + (FRAMES - 1) * MINUTE_MS
    shipped = batches_of(bucket, COUNT, keys, at_ms, rows)
    measured(bucket, shipped[:10])  # compiled
    sheet.add(f"{curve} {size}", measured(bucket, shipped))


def main() -> None:
    """Measure all curves and write the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--most", type=how_many, default=10_000_000, help="open entries at most")
    most = parser.parse_args().most
    sheet = Sheet("state-curves", None, {"batch": ROWS, "batches": COUNT})
    for size in (10_000, 100_000, 1_000_000, 10_000_000):
        if size <= most:
            point(sheet, "windows", size, filled(SLIDING, size, size // FRAMES, MINUTE_MS), keys=KEYS)
        if size <= most // 10:
            point(sheet, "sessions", size, filled(SESSION, size, size, 1), keys=KEYS)
    for size in (1_000, 10_000, 100_000, 1_000_000):
        point(sheet, "keys", size, DrivenBucket(*SLIDING), keys=size)
    for size in (100, 1_000, 10_000, 100_000):
        point(sheet, "rows", size, DrivenBucket(*SLIDING), keys=KEYS, rows=size)
    sheet.finish()


if __name__ == "__main__":
    main()
