"""Nexmark (Beam's generator): its events, ids and times, and the queries that rows and windows alone give.

Rule: the events are the benchmark's own, so what is measured there is what the vectors say. Of files with several
results those of queries without a join are compared. Rows are compared by the hash of their sorted lines.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping

import numpy as np
import pyarrow.compute as pc

from benchmarks.nexmark_events import AUCTION, BID, KINDS, PERSON, Stream, auctions, kinds, persons, records
from benchmarks.nexmark_frames import EXCHANGE, Events
from benchmarks.nexmark_queries import EVERY
from conformance.golden_windows import hashed, windowed
from conformance.verdict import Verdict, compare, fail, otherwise
from keyedwm.operators.aggregates import functions as agg
from keyedwm.operators.frames.plan import SlidingWindow, tumbling

_FIELDS = {"email": "emailAddress"}
_JOINED = {"q3", "q4", "q8_beam", "q8_flink", "q9"}


def nexmark(vector: dict) -> Verdict:
    """Replay a file of events, or of the queries' results."""
    if "cases" in vector["expect"]:
        return _times(vector["expect"]["cases"])
    if "events" in vector["expect"]:
        events = vector["expect"]["events"]
        return _ids(events) if isinstance(events[0], list) else _first(vector["config"], events)
    return _queries(vector["config"], vector["expect"])


def _stream(config: Mapping) -> Stream:
    return Stream(rate=config["rate_per_second"])


def _first(config: Mapping, expected: list[dict]) -> Verdict:
    """The first events, as far as they are told; of a filling the length and how it begins."""
    table = records(_stream(config), 0, len(expected))
    actual = []
    for kind, value, fields in zip(table["key"].to_pylist(), table["value"].to_pylist(), expected, strict=True):
        event = json.loads(value)
        event |= {"type": kind.decode(), "extra_len": len(event["extra"]), "extra_head": event["extra"][:12]}
        event["extra"] = None
        actual.append({name: event[_FIELDS.get(name, name)] for name in fields})
    return compare(expected, actual)


def _ids(expected: list[list]) -> Verdict:
    numbers = np.array([number for number, _, _ in expected])
    ids_by_event = []
    for kind, make in ((PERSON, persons), (AUCTION, auctions)):
        own = numbers[kinds(numbers) == kind]
        ids = make(Stream(), own)["id"].to_pylist()
        ids_by_event += [
            [number, KINDS[kind].decode(), entity_id] for number, entity_id in zip(own.tolist(), ids, strict=True)
        ]
    return compare(expected, sorted(ids_by_event))


def _times(cases: list[dict]) -> Verdict:
    """By the number of the event; one of several generators makes fewer events a second."""
    streams = [Stream(rate=case["rate_per_second"] // case["generators"]) for case in cases]
    actual = [stream.times(np.array(case["event"])).tolist() for stream, case in zip(streams, cases, strict=True)]
    return compare([case["ts"] for case in cases], actual)


def _queries(config: Mapping, expected: Mapping) -> Verdict:
    """The parts of a file that rows and windows give; joins are another operator's."""
    events = Events(Stream(rate=config["rate_per_second"]), config["events"])
    answers: Mapping[str, Callable[[Events, Mapping], Mapping]] = {
        "counts": _counts, "q0": _q0, "q1": _q1, "q2": _q2, "q5": _q5, "q7": _q7,
    }  # fmt: skip
    query_names = [name for name in expected if name in answers]
    if not query_names and expected.keys() <= _JOINED:
        return otherwise("no counterpart: the query joins two streams")
    if not query_names:
        return fail(f"of Nexmark {', '.join(answers)} are known, not {', '.join(sorted(expected))}")
    actual = [answers[name](events, expected[name]) for name in query_names]
    comparable = [
        {part: expected[name][part] for part in answer} for name, answer in zip(query_names, actual, strict=True)
    ]
    return compare(comparable, actual)


def _counts(events: Events, _expected: Mapping) -> Mapping:
    return {name.decode(): len(events.rows(kind)) for kind, name in enumerate(KINDS)}


def _q0(events: Events, _expected: Mapping) -> Mapping:
    return _row_facts(_bids(events, "auction", "bidder", "price", "dateTime"))


def _q1(events: Events, _expected: Mapping) -> Mapping:
    price = events.rows(BID)["price"]
    return {"rows": len(price), "sum_milli_euro": pc.sum(pc.multiply(price, EXCHANGE)).as_py()}


def _q2(events: Events, _expected: Mapping) -> Mapping:
    bids = [row for row in _bids(events, "auction", "price") if row[0] % EVERY == 0]
    return _row_facts(bids) | {"auctions": sorted({auction for auction, _ in bids})}


def _q5(events: Events, expected: Mapping) -> Mapping:
    """The auctions with most bids of each hopping window."""
    counts = windowed(
        events.rows(BID), SlidingWindow(10_000, 2_000), ("auction",), (("count", agg.count()),), "dateTime"
    )
    pairs = [(start, end, auction, count) for auction, start, end, count in counts]
    highest: dict[int, int] = {}
    for start, _, _, count in pairs:
        highest[start] = max(highest.get(start, 0), count)
    hot = sorted(row for row in pairs if row[3] == highest[row[0]])
    first = [list(row) for row in hot[: len(expected["first"])]]
    return _row_facts(hot) | {
        "windows": len(highest), "window_auction_pairs": len(pairs), "first": first,
        "all_counts": expected["all_counts"] | {"sha256": hashed(pairs)},
    }  # fmt: skip


def _q7(events: Events, _expected: Mapping) -> Mapping:
    """The highest bids of each tumbling window."""
    bids = events.rows(BID)
    rows = []
    for start, end, price in windowed(bids, tumbling(10_000), (), (("price", agg.max("price")),), "dateTime"):
        inside = pc.and_(pc.greater_equal(bids["dateTime"], start), pc.less(bids["dateTime"], end))
        top = bids.filter(pc.and_(inside, pc.equal(bids["price"], price)))
        rows += [(row["auction"], row["price"], row["bidder"], row["dateTime"]) for row in top.to_pylist()]
    return _row_facts(rows) | {"list": sorted(map(list, rows))}


def _bids(events: Events, *names: str) -> list[tuple]:
    rows = events.rows(BID)
    return list(zip(*(rows[name].to_pylist() for name in names), strict=True))


def _row_facts(rows: Collection[tuple]) -> dict:
    return {"rows": len(rows), "sha256": hashed(rows)}
