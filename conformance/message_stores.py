"""Vectors of the design's message store: order, range scans and expiry, through the standalone operator.

Rule: messages lie by (event time, offset), or by offset. Those of one join value are picked out of a range, so a layout
with the value first gives the same messages; where the value stands between time and offset only their order differs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from conformance.store_plans import KEEP, SCHEMA
from conformance.verdict import MATCH, Verdict, fail, otherwise
from keyedwm.operators.aggregates import functions as agg
from keyedwm.operators.messages.plan import StorePlan
from keyedwm.operators.messages.retention import Retention
from keyedwm.operators.messages.windows import hopping, hopping_rows
from keyedwm.windows import WindowOperator

_ONE_LAYOUT = "messages lie in one layout, by event time or offset; those of a join value are picked out of a range"
_EVERYTHING = (-(1 << 40), 1 << 40)
_VALUES = ("equal_flds", "flds", "session_key")


def message_store(vector: dict) -> Verdict:
    """The choice of a layout is decided otherwise; what a scan finds is not."""
    verdict, layout = MATCH, vector["config"].get("layout", "")
    fields = [word.strip("<> ") for word in layout.replace(">_<", ">,<").split(",")]
    for index, case in enumerate(vector["cases"]):
        if "layout" in case:
            if case["layout"] != ("offset" if case["unit"] == "tuple" else "timestamp,offset"):
                verdict = otherwise(_ONE_LAYOUT, index) if verdict is MATCH else verdict
            continue
        value = next((field for field in fields if field in _VALUES), None)
        keys = _scanned(case, fields, value)
        if value is not None and fields[0] != value:
            verdict, keys = otherwise(_ONE_LAYOUT, index), sorted(keys)
        if keys != case["keys"]:
            return fail("the keys differ", index, case["keys"], keys)
    return verdict


def _scanned(case: Mapping, fields: Sequence[str], value: str | None) -> list:
    """The keys, in the layout's fields, of the messages that a scan finds."""
    by_rows = "timestamp" not in fields
    operator = WindowOperator(_plan(case, by_rows=by_rows))
    defaults = {"topic": "t", "partition": 0, "value": 0}
    rows = [{**defaults, **one, "key": one.get(value or "", one.get("flds"))} for one in case["put"]]
    operator.add_message(pa.table([[row[name] for row in rows] for name in SCHEMA.names], schema=SCHEMA))
    if "expire_before_time" in case:
        operator.watermark(case["expire_before_time"] + 1)
    elif _window_limit(case) == 0:
        operator.finish()
    operator.flush()
    edges, keys = _edges(case, fields, value)
    messages = operator.get_messages(*edges, join_keys=keys).to_pylist()
    names = {"timestamp": "time", value: "key"}
    keys_by_field = [[row[names.get(field, field)] for field in fields] for row in messages]
    return [one[0] for one in keys_by_field] if len(fields) == 1 else keys_by_field


def _edges(case: Mapping, fields: Sequence[str], value: str | None) -> tuple[Any, dict[str, Any] | None]:
    """What is asked of the product: two edges in its own layout, and the join value."""
    if "scan" not in case:
        return _EVERYTHING, {"key": case["prefix"]} if "prefix" in case else None
    edges, keys = [], None
    for edge in (case["scan"]["start"], case["scan"]["end"]):
        values = dict(zip(fields, edge if isinstance(edge, list) else [edge], strict=True))
        if value is not None and fields[0] == value:
            keys = {"key": values[value]}
        edges.append((values["timestamp"], values["offset"]) if "timestamp" in values else values["offset"])
    return edges, keys


def _window_limit(case: Mapping) -> int:
    return sum(one["offset"] > case.get("expire_through_offset", -1) for one in case["put"])


def _plan(case: Mapping, *, by_rows: bool) -> StorePlan:
    """Windows of one ms, or of one offset, so that each message goes by itself."""
    retention = KEEP
    if "expire_before_time" in case:
        retention = Retention(time_ms=1)
    elif "expire_through_offset" in case:
        retention = Retention(max_windows=max(1, _window_limit(case)))
    return StorePlan(
        schema=SCHEMA, by=("key",), window=hopping_rows(1, 1) if by_rows else hopping(1, 1), time="time",
        aggregates=(("rows", agg.count()),), retention=retention,
    )  # fmt: skip
