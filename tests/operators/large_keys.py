"""More than 2 GiB of key text in one bucket: `python -m tests.operators.large_keys`.

Takes minutes and about 5 GB of memory, so it is no part of the suite; one frame of all (`--frames 1`) takes 6 times its
text. The state lies in files, as a state store has it;
every batch begins with a new operator. Then all windows close at once, and every key must be there once.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa

from keyedwm.operators.aggregates import functions as agg
from keyedwm.operators.frames.partials import combine_rows
from keyedwm.operators.frames.plan import SlidingWindow, WindowPlan
from keyedwm.operators.protocol import operator_of

SCHEMA = pa.schema([("k", pa.string()), ("event_time", pa.timestamp("ms", "UTC"))])
KEY_BYTES = 4_096
AT_ONCE = 20_000


class Files:
    """Blobs in a directory."""

    def __init__(self, place: Path) -> None:
        self._place = place

    @property
    def sizes(self) -> Mapping[str, int]:
        """The names of all blobs and their sizes in bytes."""
        return {path.name: path.stat().st_size for path in self._place.iterdir()}

    def get(self, name: str) -> bytes:
        """Read one blob."""
        return (self._place / name).read_bytes()

    def write(self, changes) -> int:
        """Write what changed; returns the size of the largest blob."""
        for name in changes.removed:
            (self._place / name).unlink()
        for name, blob in changes.blobs.items():
            (self._place / name).write_bytes(blob)
        return max(map(len, changes.blobs.values()))


def rows(first: int, time_ms: int) -> pa.Table:
    """Rows of so many keys from this number on, at one time."""
    keys = pa.array([f"{number:012}" + "k" * (KEY_BYTES - 12) for number in range(first, first + AT_ONCE)])
    return pa.table([keys, pa.array(np.full(AT_ONCE, time_ms)).cast(SCHEMA.field(1).type)], schema=SCHEMA)


def main() -> None:
    """Fill a bucket, and close its windows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gib", type=float, default=2.2, help="of key text")
    parser.add_argument("--frames", type=int, default=8, help="that they are spread over")
    options = parser.parse_args()
    keys = int(options.gib * 2**30 / KEY_BYTES) // AT_ONCE * AT_ONCE
    window = SlidingWindow(1_000, 1_000)
    plan = WindowPlan(
        schema=SCHEMA, by=("k",), window=window, aggregates=(("n", agg.count()),), time="event_time", order=()
    )
    with tempfile.TemporaryDirectory() as place:
        store, largest = Files(Path(place)), 0
        for first in range(0, keys, AT_ONCE):
            operator = operator_of(plan, store)
            list(operator.on_rows(0, combine_rows(plan, rows(first, 1_000 * (first * options.frames // keys))), None))
            largest = max(largest, store.write(operator.drain()))
        held_bytes = sum(store.sizes.values())
        operator, result_keys, pieces = operator_of(plan, store), 0, 0
        last = ""
        for output in operator.on_watermark(0, 0, 1_000 * options.frames):
            names = output.rows["k"]
            assert names[0].as_py() > last, "keys are not in order, or come twice"
            assert set(output.rows["n"].unique().to_pylist()) == {1}
            last, result_keys, pieces = names[-1].as_py(), result_keys + output.rows.num_rows, pieces + 1
        store.write(operator.drain())
        assert result_keys == keys, f"{result_keys} keys of {keys} came out"
        assert set(store.sizes) == {"note"}
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(
        f"{keys} keys of {KEY_BYTES} bytes, {held_bytes / 2**30:.2f} GiB held, "
        f"the largest blob {largest / 2**20:.1f} MiB; "
        f"all left in {pieces} pieces; {peak:.1f} GiB of memory at most"
    )


if __name__ == "__main__":
    main()
