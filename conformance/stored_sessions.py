"""Vectors of the design's session aggregator through the standalone operator that keeps messages.

Rule: the design ends a session of time by the next message of its key, so each key is a stream of its own, whose
watermark is its highest event time. A session of rows ends by the offsets of all keys, so these share an operator.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from conformance.store_plans import AGGREGATES, KEEP, SCHEMA, late_ms
from conformance.verdict import MATCH, Verdict, fail, otherwise
from keyedwm.core.window_rules import Touching
from keyedwm.operators.frames.plan import SessionWindow
from keyedwm.operators.messages.plan import StorePlan
from keyedwm.operators.messages.windows import session_rows
from keyedwm.operators.state.store import MemoryStore
from keyedwm.windows import WindowOperator

_OVER = "a session by rows is over as soon as more offsets came than may lie between two of its messages"


def sessions(vector: dict) -> Verdict:
    """Sessions by time and by rows."""
    config = vector["config"]
    by_rows = config.get("unit") == "tuple"
    plan, stores = _plan(config, by_rows=by_rows), dict[Any, MemoryStore]()
    expected: Counter[tuple] = Counter()
    actual: Counter[tuple] = Counter()
    verdict, tops = MATCH, dict[Any, int]()
    for index, step in enumerate(vector["steps"]):
        is_of_all = step["do"] in {"end", "timeout"}
        store_keys = list(stores) if is_of_all else [None if by_rows else step["session_key"]]
        rows = [row for key in store_keys for row in _step(plan, stores.setdefault(key, MemoryStore()), step, tops)]
        step_answers = [(*one["window"], one["result"]) for one in step["out"]]
        expected.update(step_answers)
        actual.update(rows)
        if actual == expected:
            continue
        if not by_rows or not actual >= expected:
            return fail("the answers differ", index, step_answers, rows)
        verdict = otherwise(_OVER, index) if verdict is MATCH else verdict
    return verdict if actual == expected else fail("the answers differ", None, expected, actual)


def _step(plan: StorePlan, store: MemoryStore, step: Mapping, tops: dict[Any, int]) -> Iterator[tuple]:
    """What a step gives of one stream; its operator is built anew, and put away."""
    operator = WindowOperator(plan, store)
    if step["do"] == "end":
        operator.finish()
    elif step["do"] == "timeout":
        operator.timeout(step["wall"])
    elif step["do"] == "add_message":
        row = {"value": 0, "partition": 0, "topic": "t", **step, "key": step["session_key"]}
        table = pa.table([[row[name]] for name in SCHEMA.names], schema=SCHEMA)
        operator.add_message(table, now_ms=step.get("wall", 0))
        top = tops[step["session_key"]] = max(tops.get(step["session_key"], step["time"]), step["time"])
        operator.watermark(top)
    else:
        raise LookupError(f"a step {step['do']!r} is not known")
    for one in operator.flush().to_pylist():
        start = next(iter(one["window"].values()))
        if not isinstance(start, int):
            start = round(start.timestamp() * 1000)
        yield one["key"], start, one["result"]


def _plan(config: Mapping, *, by_rows: bool) -> StorePlan:
    """Late messages come at once, unless the words collect them."""
    touching = Touching(config.get("touch", "merge"))
    gap = config["max_gap"]
    return StorePlan(
        schema=SCHEMA, by=("key",), window=session_rows(gap) if by_rows else SessionWindow(gap, touching), time="time",
        aggregates=(("result", AGGREGATES[config["agg"]]),), retention=KEEP,
        late_every_ms=None if by_rows else late_ms(config.get("late", "")),
    )  # fmt: skip
