"""Vectors of the rows of a windowed join, named by what is kept of each side and when rows come.

Rule: as in the tests that they come from, messages wait for the watermark, so they are given in order of event time, of
equal ones each side's next in turn, and at the end of the input all of them. Input and end are one run then, and rows
are compared in the order in which they come; those that wait for the end are not there before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import pyarrow as pa

from conformance.verdict import MATCH, Verdict, fail, otherwise
from keyedwm.operators.frames.plan import SessionWindow
from keyedwm.operators.join.plan import How
from keyedwm.operators.messages.join.plan import Emit, Keep, WindowJoinPlan, WindowJoinSide
from keyedwm.operators.messages.retention import Retention
from keyedwm.operators.messages.windows import HoppingWindow, hopping
from keyedwm.windows import WindowJoin

_SCHEMA = pa.schema(
    [("id", pa.int64()), ("value", pa.int64()), ("time", pa.int64()), ("topic", pa.string()), ("partition", pa.int32()),
     ("offset", pa.int64())]
)  # fmt: skip
_SIDES = ("left", "right")
_Message: TypeAlias = tuple[int, int, int, int]  # event time, place in its side, side, value
_KEEP = {"first": Keep.FIRST, "last": Keep.LAST, "product": Keep.ALL}
_EMIT = {"final": Emit.FINAL, "complete": Emit.PAIRED, "running": Emit.RUNNING}
# Rows of both sides alone, or with an empty place where a side has nothing.
_HOW = {"final": How.FULL, "complete": How.INNER, "running": How.FULL}
_TWO_SIDES = "no counterpart: a join has two sides"
_SESSIONS = "no counterpart: rows with each message are those of sessions"
_AT_ONCE = "all pairs of windows of time come at once, each with the first window that holds it"


def session_join(vector: dict) -> Verdict:
    """What a join keeps of each side, as one key's rows."""
    config = vector["config"]
    if config.get("sides", 2) != len(_SIDES):
        return otherwise(_TWO_SIDES)
    emit, window = config.get("emit_mode", "final"), _window(config["window"])
    if not isinstance(window, SessionWindow) and emit != "final":
        return otherwise(_SESSIONS)
    return _played(_plan(window, config.get("insert_mode", "last"), emit), vector, is_final=emit == "final")


def _played(plan: WindowJoinPlan, vector: Mapping, *, is_final: bool) -> Verdict:
    comes_at_once = plan.keep is Keep.ALL and not plan.is_sessions
    join = WindowJoin(plan)
    waiting: list[_Message] = []
    actual: list[dict] = []
    expected: list[dict] = []
    for index, step in enumerate(vector["steps"]):
        if step["do"] == "inputs":
            waiting += _in_turn(step)
        elif step["do"] in _SIDES:
            waiting.append((step["time"], len(waiting), _SIDES.index(step["do"]), step["value"]))
        elif step["do"] == "end":
            actual += _played_rows(join, waiting)
            if is_final and not comes_at_once and actual:
                return fail("rows come before the end", index, [], actual)
            join.finish()
            actual += _rows(join)
        else:
            raise LookupError(f"a step {step['do']!r} is not known")
        expected += step["out"]
        if is_final and step["do"] != "end" and step["out"]:
            return fail("the rows differ", index, step["out"], actual)
    actual += _played_rows(join, waiting)
    if _alike(expected, actual, vector.get("compare", {})):
        return MATCH
    last = len(vector["steps"]) - 1
    if comes_at_once and sorted(repr(one["row"]) for one in expected) == sorted(repr(one["row"]) for one in actual):
        return otherwise(_AT_ONCE, last)
    return fail("the rows differ", last, expected, actual)


def _window(config: Mapping) -> SessionWindow | HoppingWindow:
    if "gap" in config:
        return SessionWindow(config["gap"])
    size = config["size"] if "size" in config else config["length"]
    step = config.get("advance", config.get("slide", size))
    return hopping(size, step, config.get("align", 0) % step)


def _plan(window: SessionWindow | HoppingWindow, insert: str, emit: str) -> WindowJoinPlan:
    left, right = (WindowJoinSide(name=name, schema=_SCHEMA, on=("id",), time="time") for name in _SIDES)
    return WindowJoinPlan(
        left=left, right=right, window=window, retention=Retention(max_messages=1 << 40), keep=_KEEP[insert],
        how=_HOW[emit], emit=_EMIT[emit],
    )  # fmt: skip


def _in_turn(step: Mapping) -> list[_Message]:
    """The messages of both sides."""
    return [
        (time, place, number, value)
        for number, side in enumerate(_SIDES)
        for place, (time, value) in enumerate(step.get(side, ()))
    ]


def _played_rows(join: WindowJoin, waiting: list[_Message]) -> list[dict]:
    """Give the messages that wait, one after another; return the rows that come of each."""
    rows, offsets = [], [0, 0]
    for time, _, number, value in sorted(waiting):
        row = {"id": 0, "value": value, "time": time, "topic": "t", "partition": 0, "offset": offsets[number]}
        join.add_message(_SIDES[number], pa.Table.from_pylist([row], schema=_SCHEMA))
        offsets[number] += 1
        rows += _rows(join)
    waiting.clear()
    return rows


def _rows(join: WindowJoin) -> list[dict]:
    rows = []
    for row in join.flush().to_pylist():
        start, end = (round(edge.timestamp() * 1000) for edge in row["window"].values())
        values = [row[f"value_{side}"] for side in _SIDES]
        rows.append({"row": values, "start": start, "end": end, "window": [start, end]})
    return rows


def _alike(expected: Sequence[Mapping], actual: Sequence[Mapping], how: Mapping) -> bool:
    """Fields that are not expected are not compared."""
    compared = [{name: row.get(name) for name in one} for one, row in zip(expected, actual, strict=False)]
    if how.get("order") == "any":
        expected, compared = sorted(expected, key=repr), sorted(compared, key=repr)
    return len(expected) == len(actual) and compared == list(expected)
