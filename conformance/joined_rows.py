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
    made: list[dict] = []
    wanted: list[dict] = []
    for index, step in enumerate(vector["steps"]):
        if step["do"] == "inputs":
            waiting += _in_turn(step)
        elif step["do"] in _SIDES:
            waiting.append((step["time"], len(waiting), _SIDES.index(step["do"]), step["value"]))
        elif step["do"] == "end":
            made += _given(join, waiting)
            if is_final and not comes_at_once and made:
                return fail("rows come before the end", index, [], made)
            join.finish()
            made += _rows(join)
        else:
            raise LookupError(f"a step {step['do']!r} is not known")
        wanted += step["out"]
        if is_final and step["do"] != "end" and step["out"]:
            return fail("the rows differ", index, step["out"], made)
    made += _given(join, waiting)
    if _alike(wanted, made, vector.get("compare", {})):
        return MATCH
    last = len(vector["steps"]) - 1
    if comes_at_once and sorted(repr(one["row"]) for one in wanted) == sorted(repr(one["row"]) for one in made):
        return otherwise(_AT_ONCE, last)
    return fail("the rows differ", last, wanted, made)


def _window(told: Mapping) -> SessionWindow | HoppingWindow:
    if "gap" in told:
        return SessionWindow(told["gap"])
    size = told["size"] if "size" in told else told["length"]
    step = told.get("advance", told.get("slide", size))
    return hopping(size, step, told.get("align", 0) % step)


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


def _given(join: WindowJoin, waiting: list[_Message]) -> list[dict]:
    """Give the messages that wait, one after another; return the rows that come of each."""
    made, offsets = [], [0, 0]
    for time, _, number, value in sorted(waiting):
        row = {"id": 0, "value": value, "time": time, "topic": "t", "partition": 0, "offset": offsets[number]}
        join.add_message(_SIDES[number], pa.Table.from_pylist([row], schema=_SCHEMA))
        offsets[number] += 1
        made += _rows(join)
    waiting.clear()
    return made


def _rows(join: WindowJoin) -> list[dict]:
    made = []
    for row in join.flush().to_pylist():
        start, end = (round(edge.timestamp() * 1000) for edge in row["window"].values())
        values = [row[f"value_{side}"] for side in _SIDES]
        made.append({"row": values, "start": start, "end": end, "window": [start, end]})
    return made


def _alike(wanted: Sequence[Mapping], made: Sequence[Mapping], how: Mapping) -> bool:
    """Fields that are not expected are not compared."""
    told = [{name: row.get(name) for name in one} for one, row in zip(wanted, made, strict=False)]
    if how.get("order") == "any":
        wanted, told = sorted(wanted, key=repr), sorted(told, key=repr)
    return len(wanted) == len(made) and told == list(wanted)
