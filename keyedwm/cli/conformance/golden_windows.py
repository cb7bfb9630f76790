"""Whole data sets through the vectorised windows: New York's departures, and the bids of Nexmark (Beam's generator).

Rule: results are compared by the hash of their sorted rows. Of files with several results those that windows alone give
are compared; joins are another operator's.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from keyedwm.cli.conformance.verdict import Verdict, compare, fail
from keyedwm.cli.demo.flights import HOUR_MS, ORIGINS, read_flights
from keyedwm.windows import aggregates as agg
from keyedwm.windows.operator import operator_of
from keyedwm.windows.partials import combine_rows
from keyedwm.windows.plan import WINDOW, Plan, Sliding, tumbling

_PIECE_ROWS = 10_000
_MASK = (1 << 48) - 1
_FIRST_ID = 1000


def flights(vector: dict) -> Verdict:
    """Tumbling one hour by origin, batch by batch."""
    expected = vector["expect"]["tumbling_1h_by_origin"]
    records = read_flights().table
    origins = pa.array(ORIGINS).take(records["partition"].combine_chunks())
    rows = _windowed(
        records.append_column("origin", origins), tumbling(HOUR_MS), ("origin",), (("count", agg.count()),), "event_ms"
    )
    top = max(rows, key=lambda row: (row[3], row[0], row[1]))
    made = {
        "rows": len(rows),
        "sum": sum(row[3] for row in rows),
        "max": [top[3], top[0], top[1]],
        "sha256": _hash(rows),
    }
    return compare([expected[name] for name in made], list(made.values()))


def nexmark(vector: dict) -> Verdict:
    """q5 (hopping counts and the highest of each window) and q7 (the highest bid of each tumbling window)."""
    expected = vector["expect"]
    if not {"q5", "q7"} & expected.keys():
        return fail(f"of nexmark q5 and q7 are known, not {', '.join(sorted(expected))}")
    bids = _bids(vector["config"])
    return _q5(expected["q5"], bids) if "q5" in expected else _q7(expected["q7"], bids)


def _q5(expected: Mapping, bids: pa.Table) -> Verdict:
    counted = _windowed(bids, Sliding(10_000, 2_000), ("auction",), (("count", agg.count()),), "time")
    pairs = [(start, end, auction, count) for auction, start, end, count in counted]
    highest: dict[int, int] = {}
    for start, _, _, count in pairs:
        highest[start] = max(highest.get(start, 0), count)
    hot = sorted(row for row in pairs if row[3] == highest[row[0]])
    made = [len(hot), _hash(hot), len(highest), len(pairs), _hash(pairs), [list(row) for row in hot[:4]]]
    everything = expected["all_counts"]
    wanted = [expected["rows"], expected["sha256"], expected["windows"], expected["window_auction_pairs"]]
    return compare([*wanted, everything["sha256"], expected["first"]], made)


def _q7(expected: Mapping, bids: pa.Table) -> Verdict:
    highest = _windowed(bids, tumbling(10_000), (), (("price", agg.max("price")),), "time")
    rows = []
    for start, end, price in highest:
        inside = pc.and_(pc.greater_equal(bids["time"], start), pc.less(bids["time"], end))
        top = bids.filter(pc.and_(inside, pc.equal(bids["price"], price)))
        rows += [(row["auction"], row["price"], row["bidder"], row["time"]) for row in top.to_pylist()]
    return compare(
        [expected["rows"], expected["sha256"], expected["list"]], [len(rows), _hash(rows), sorted(map(list, rows))]
    )


def _windowed(
    table: pa.Table,
    window: Sliding,
    by: tuple[str, ...],
    aggregates: tuple[tuple[str, agg.AggregateSpec], ...],
    time: str,
) -> list[tuple]:
    """The windows of a whole table, taken piece by piece: by columns, start, end, aggregates."""
    plan = Plan(schema=table.schema, by=by, window=window, aggregates=aggregates, time=time)
    operator = operator_of(plan)
    for at in range(0, len(table), _PIECE_ROWS):
        operator.take(combine_rows(plan, table.slice(at, _PIECE_ROWS)))
        operator = operator_of(plan, operator.snapshot())
    made = operator.complete()
    edges = [
        pc.divide(pc.struct_field(made[WINDOW], edge).cast(pa.int64()), 1000).to_pylist() for edge in ("start", "end")
    ]
    values = [made[name].to_pylist() for name, _ in aggregates]
    return list(zip(*(made[name].to_pylist() for name in by), *edges, *values, strict=True))


def _hash(rows: Iterable[tuple]) -> str:
    text = "\n".join("|".join(map(str, row)) for row in sorted(rows))
    return hashlib.sha256(text.encode()).hexdigest()


def _bids(config: Mapping) -> pa.Table:
    """The bids among the first events: each is a function of its number."""
    distance_us = (1_000_000 + config["rate_per_second"] // 2) // config["rate_per_second"] * config["generators"]
    rows = []
    for event in range(config["events"]):
        epoch, place = divmod(event, 50)
        if place < 4:
            continue
        auctions, draw = 3 * epoch + min(place - 1, 2), _Random(config["first_event_id"] + event)
        low = max(auctions - 100, 0)
        auction = auctions // 100 * 100 if draw.below(2) > 0 else low + draw.below(auctions - low + 11)
        active = min(epoch + 1, 1000)
        bidder = epoch // 100 * 100 + 1 if draw.below(4) > 0 else epoch + 1 - active + draw.below(active + 10)
        price = int(np.floor(10 ** (6 * draw.fraction()) * 100 + 0.5))
        time_ms = config["base_time"] + event * distance_us // 1000
        rows.append((auction + _FIRST_ID, bidder + _FIRST_ID, price, time_ms))
    return pa.table(dict(zip(("auction", "bidder", "price", "time"), map(list, zip(*rows, strict=True)), strict=True)))


class _Random:
    """`java.util.Random`."""

    def __init__(self, seed: int) -> None:
        self._state = (seed ^ 0x5DEECE66D) & _MASK

    def below(self, bound: int) -> int:
        """`nextInt(bound)`."""
        if bound & -bound == bound:
            return bound * self._bits(31) >> 31
        while True:
            drawn = self._bits(31)
            if drawn - drawn % bound + bound - 1 < 1 << 31:
                return drawn % bound

    def fraction(self) -> float:
        """`nextDouble()`."""
        return ((self._bits(26) << 27) + self._bits(27)) / (1 << 53)

    def _bits(self, count: int) -> int:
        self._state = self._state * 0x5DEECE66D + 0xB & _MASK
        return self._state >> 48 - count
