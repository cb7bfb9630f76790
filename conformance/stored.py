"""Vectors of the design's aggregators and message store through the standalone operator that keeps messages.

Rule: the operator is put away and built anew after each step. A vector's operator fetches its input itself, so results
that the next operator refuses wait where they are, and messages are taken meanwhile.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from conformance.decided import DECIDED
from conformance.verdict import MATCH, Verdict, fail, otherwise
from keyedwm.windows import WindowOperator
from keyedwm.windows.aggregates import functions as agg
from keyedwm.windows.plan import Early
from keyedwm.windows.state.store import MemoryStore
from keyedwm.windows.store.functions import median
from keyedwm.windows.store.plan import Full, StorePlan, hopping, hopping_rows
from keyedwm.windows.store.retention import Retention

_SCHEMA = pa.schema(
    [("value", pa.int64()), ("time", pa.int64()), ("topic", pa.string()), ("partition", pa.int32()),
     ("offset", pa.int64())]
)  # fmt: skip
_KEEP = Retention(max_messages=1 << 40)
_AGGREGATES: Mapping[str, Any] = {
    "max": agg.max("value"), "min": agg.min("value"), "sum": agg.sum("value"), "count": agg.count(),
    "median": median("value"),
}  # fmt: skip
_WAITS = "results wait until they are fetched, and messages are taken meanwhile: nobody pushes input at an operator"
_ONE_LAYOUT = "messages lie in one layout, by event time or offset; those of a join value are picked out of a range"


def aggregator(vector: dict) -> Verdict:
    """The windowed aggregators, replays and refused output."""
    config = vector["config"]
    plan, store, accepts = _plan(config), MemoryStore(), True
    reason, ours = DECIDED.get(vector["id"], ("", {}))
    operator, first = WindowOperator(plan, store), None
    for index, step in enumerate(vector["steps"]):
        replayed = operator.counts.replayed
        accepts = step.get("accept", accepts)
        _do(operator, step)
        made = [
            *({"error_topic": offset} for offset in operator.get_rejected()["offset"].to_pylist()),
            *_told(operator),
        ]
        if accepts and step["do"] != "downstream":  # what waits is sent on with the next step
            operator.flush()
            operator = WindowOperator(plan, store)
        else:
            made = []
        if operator.counts.replayed - replayed != step.get("noop", 0) and "noop" in step:
            return fail("a replay was not known as one", index, 1, operator.counts.replayed - replayed)
        if _alike(step["out"], made) and index not in ours and "error" not in step:
            continue
        first = index if first is None else first
        if not _alike(ours.get(index, step["out"]), made):
            return fail("the answers differ", index, ours.get(index, step["out"]), made)
    if first is None:
        return MATCH
    return otherwise(reason or _WAITS, first)


def _do(operator: WindowOperator, step: Mapping) -> None:
    kind = step["do"]
    if kind == "add_message":
        row = [[step["value"]], [step["time"]], ["t"], [0], [step["offset"]]]
        operator.add_message(pa.table(row, schema=_SCHEMA), now_ms=step.get("wall"))
    elif kind == "timeout":
        operator.timeout(step["wall"])
    elif kind == "end":
        operator.finish()
    elif kind not in {"downstream", "restart_from_checkpoint"}:
        raise LookupError(f"a step {kind!r} is not known")


def _plan(config: Mapping) -> StorePlan:
    early, late = (_interval(config.get(name, "")) for name in ("early", "late"))
    size, advance = config["size"], config["advance"]
    by_rows = config["unit"] == "tuple"
    limits = {"time_ms": config.get("retention_time"), "max_windows": config.get("retention_size")}
    return StorePlan(
        schema=_SCHEMA,
        by=(),
        window=hopping_rows(size, advance) if by_rows else hopping(size, advance, config.get("align", 0) % advance),
        aggregates=(("result", _AGGREGATES[config["agg"]]),),
        retention=Retention(**limits) if any(limits.values()) else _KEEP,
        time="time",
        full=Full.MESSAGE,
        early=None if early is None else Early(every_ms=early),
        late_every_ms=late,
    )


def _interval(words: str) -> int | None:
    """The interval that a policy names in words."""
    found = re.search(r"(\d+) ms", words)
    return int(found[1]) if found else None


def _told(operator: WindowOperator) -> list[dict]:
    made = []
    for row in operator.get_result().to_pylist():
        window = list(row["window"].values())
        if not isinstance(window[0], int):
            window = [round(edge.timestamp() * 1000) for edge in window]
        made.append({"window": window, "result": row["result"], "timing": row["pane"]["timing"]})
    return made


def _alike(expected: Sequence[Mapping], made: Sequence[Mapping]) -> bool:
    """Fields that are not made are not compared: which messages are new."""
    wanted = [{name: value for name, value in one.items() if name != "new_messages"} for one in expected]
    return len(wanted) == len(made) and all(
        one.items() <= other.items() for one, other in zip(wanted, made, strict=True)
    )


def message_store(vector: dict) -> Verdict:
    """Order, range scans and expiry; the choice of a layout is decided otherwise."""
    for index, case in enumerate(vector["cases"]):
        if "layout" in case:
            if case["layout"] != ("offset" if case["unit"] == "tuple" else "timestamp,offset"):
                return otherwise(_ONE_LAYOUT, index)
            continue
        made = _scanned(case, by_rows=vector["config"]["layout"][1:] == "offset>")
        if made != case["keys"]:
            return fail("the keys differ", index, case["keys"], made)
    return MATCH


def _scanned(case: Mapping, *, by_rows: bool) -> list:
    step = 1 if by_rows else 10
    put, retention = case["put"], _KEEP
    if "expire_before_time" in case:
        retention = Retention(time_ms=step)
    elif "expire_through_offset" in case:
        retention = Retention(max_windows=sum(one["offset"] > case["expire_through_offset"] for one in put))
    plan = StorePlan(
        schema=_SCHEMA, by=(), window=hopping_rows(1, 1) if by_rows else hopping(step, step), time="time",
        aggregates=(("rows", agg.count()),), retention=retention,
    )  # fmt: skip
    operator = WindowOperator(plan)
    columns = ([0] * len(put), [one["time"] for one in put], ["t"] * len(put), [0] * len(put))
    operator.add_message(pa.table([*columns, [one["offset"] for one in put]], schema=_SCHEMA))
    if "expire_before_time" in case:
        operator.watermark(case["expire_before_time"] + step)
    operator.flush()
    scan = case.get("scan", {"start": 0, "end": 1 << 40})
    edges = [tuple(edge) if isinstance(edge, list) else edge for edge in (scan["start"], scan["end"])]
    rows = operator.get_messages(*edges).to_pylist()
    return [row["offset"] if by_rows else [row["time"], row["offset"]] for row in rows]
