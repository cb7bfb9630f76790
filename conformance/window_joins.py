"""Vectors of the design's joins of windows through the standalone operator.

Rule: the operator is put away and built anew after each step.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import pyarrow as pa

from conformance.verdict import MATCH, Verdict, fail
from keyedwm.windows import WindowJoin
from keyedwm.windows.plan import SessionWindow
from keyedwm.windows.state.store import MemoryStore
from keyedwm.windows.store.join.plan import Keep, WindowJoinPlan, WindowJoinSide
from keyedwm.windows.store.plan import Full, hopping, hopping_rows
from keyedwm.windows.store.retention import Retention

_SCHEMA = pa.schema(
    [("id", pa.int64()), ("value", pa.int64()), ("cost", pa.int64()), ("time", pa.int64()), ("topic", pa.string()),
     ("partition", pa.int32()), ("offset", pa.int64())]
)  # fmt: skip
_KEEP = Retention(max_messages=1 << 40)
_LEFT, _RIGHT = "orders", "shipments"
_SIDES = ("left", "right")


def window_join(vector: dict) -> Verdict:
    """The worked joins, and what one side sends where all of its messages meet one message of the other."""
    plan, store, wants_pairs = _plan(vector["config"]), MemoryStore(), "left" in vector["config"]
    operator = WindowJoin(plan, store)
    if not wants_pairs:
        operator.add_message(_RIGHT, _table({"time": 0, "offset": 0}), now_ms=0)
    for index, step in enumerate(vector["steps"]):
        if step["do"] == "timeout":
            operator.timeout(step["wall"])
        else:
            side = _RIGHT if step["do"] == _RIGHT else _LEFT
            operator.add_message(side, _table(step), now_ms=step.get("wall"))
        rows = operator.flush().to_pylist()
        made = [{name: row[name] for name in _names(step)} for row in rows] if wants_pairs else _by_window(rows)
        if made != step["out"]:
            return fail("the answers differ", index, step["out"], made)
        operator = WindowJoin(plan, store)
    return MATCH


def session_join(vector: dict) -> Verdict:
    """What a join of sessions keeps of each side, as one key's rows; all inputs come in one step."""
    config = vector["config"]
    keep = {"first": Keep.FIRST, "last": Keep.LAST, "product": Keep.ALL}[config["insert_mode"]]
    sides = [WindowJoinSide(name=name, schema=_SCHEMA, on=("id",), time="time") for name in _SIDES]
    window = SessionWindow(config["window"]["gap"])
    plan = WindowJoinPlan(left=sides[0], right=sides[1], window=window, retention=_KEEP, keep=keep)
    store = MemoryStore()
    for index, step in enumerate(vector["steps"]):
        operator = WindowJoin(plan, store)
        if step["do"] == "end":
            operator.finish()
        else:
            for side in _SIDES:
                for offset, (time, value) in enumerate(step[side]):
                    operator.add_message(side, _table({"time": time, "value": value, "offset": offset}))
        made = sorted([row[f"value_{side}"] for side in _SIDES] for row in operator.flush().to_pylist())
        wanted = [row["row"] for row in step["out"]]
        if made != wanted:
            return fail("the rows differ", index, wanted, made)
    return MATCH


def _names(step: Mapping) -> Sequence[str]:
    return list(step["out"][0]) if step["out"] else ("id", "value", "cost")


def _by_window(rows: Sequence[Mapping]) -> list[dict]:
    """The messages of the left side that are new, by window."""
    made: dict[tuple[int, ...], list[int]] = {}
    for row in rows:
        window = tuple(round(edge.timestamp() * 1000) for edge in row["window"].values())
        made.setdefault(window, []).append(row[f"offset_{_LEFT}"])
    return [{"window": list(window), "new_messages": offsets} for window, offsets in made.items()]


def _table(step: Mapping) -> pa.Table:
    row = {"id": 0, "value": None, "cost": None, "topic": "t", "partition": 0, **step}
    return pa.table([[row[name]] for name in _SCHEMA.names], schema=_SCHEMA)


def _plan(config: Mapping) -> WindowJoinPlan:
    window = config.get("left", config)
    size, advance = window["size"], window.get("advance", window["size"])
    by_rows = window["unit"] == "tuple"
    early, late = (_interval(config.get(name, config.get("emit", ""))) for name in ("early", "late"))
    sides = [
        WindowJoinSide(
            name=name, schema=_without(other), on=("id",), time="time", unbounded=name == _RIGHT
        )
        for name, other in ((_LEFT, "cost"), (_RIGHT, "value"))
    ]  # fmt: skip
    return WindowJoinPlan(
        left=sides[0],
        right=sides[1],
        window=hopping_rows(size, advance) if by_rows else hopping(size, advance, window.get("align", 0) % advance),
        retention=_KEEP,
        full=Full.MESSAGE,
        early_every_ms=early,
        late_every_ms=None if by_rows else late,
    )


def _without(name: str) -> pa.Schema:
    return pa.schema([one for one in _SCHEMA if one.name != name])


def _interval(words: str) -> int | None:
    """The interval that a policy names in words."""
    found = re.search(r"(\d+) ms", words)
    return int(found[1]) if found else None
