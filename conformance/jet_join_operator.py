"""Jet's stream-to-stream join through the product: its plan, its operator, and the coalescer in front of it.

Rule: bounds are the vector's; its condition is evaluated besides, pair by pair, in the place of a SQL text. Each vector
is played twice, the second time with a restart after every step, which must change no answer (rule 13).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from conformance.verdict import MATCH, Verdict, fail, otherwise
from keyedwm.core.coalescer import ChannelAdded, Coalescer, WatermarkAdvanced
from keyedwm.core.errors import KeyedwmError, OptionError
from keyedwm.operators.join.bounds import Bound
from keyedwm.operators.join.exchange_side import HASH
from keyedwm.operators.join.operator import JoinOperator
from keyedwm.operators.join.plan import LEFT, RIGHT, Axis, How, JoinInputSpec, JoinPlan
from keyedwm.operators.results import Output
from keyedwm.operators.state.store import MemoryStore

Row = tuple
SIDES = {"l": LEFT, "r": RIGHT}


@dataclass(frozen=True, slots=True)
class Pairwise:
    """A condition over pairs of rows, with what the operator asks of one."""

    holds_for: Callable[[Row, Row], bool]
    columns: tuple[tuple[str, ...], tuple[str, ...]]

    def holds(self, left: Mapping[str, pa.Array], right: Mapping[str, pa.Array]) -> np.ndarray:
        """Return for each pair whether it is true."""
        rows = [zip(*(side[name].to_pylist() for name in side), strict=True) for side in (left, right)]
        return np.array([self.holds_for(one, other) for one, other in zip(*rows, strict=True)], bool)


class _Driven:
    """The operator as a vector drives it."""

    def __init__(self, config: Mapping[str, Any], condition: Callable[[Row, Row], bool], *, restarts: bool) -> None:
        self._restarts = restarts
        self._times = [
            {int(key): column for key, column in config[f"{side}_keys"].items()} for side in ("left", "right")
        ]
        sides = [
            JoinInputSpec(
                name,
                pa.schema([(f"c{at}", pa.int64()) for at in range(config[f"{name}_cols"])]),
                (),
                tuple(Axis(str(key), key) for key in self._times[number]),
            )
            for number, name in enumerate(("left", "right"))
        ]
        self.plan = JoinPlan(
            left=sides[LEFT],
            right=sides[RIGHT],
            bounds=tuple(self._bounds(config["postpone"])),
            how=How(config["type"]),
        )
        columns = (tuple(sides[LEFT].schema.names), tuple(sides[RIGHT].schema.names))
        object.__setattr__(self.plan, "matches", Pairwise(condition, columns))
        self._keys = [key for side in self._times for key in side]
        self._growth = Coalescer()
        self._growth.step([ChannelAdded("vector")], 0)
        self._checks_growth = config.get("guarantee") == "exactly_once"
        self._store = MemoryStore()
        self._operator = JoinOperator(self.plan, self._store)
        self._emitted_ms: dict[int, int] = {}

    def _bounds(self, postpone: Mapping[str, Mapping[str, int]]) -> list[Bound]:
        left, right = (list(side) for side in self._times)
        bounds: list[Bound] = []
        for key, of_key in postpone.items():
            for other, ms in of_key.items():
                a, b = int(key), int(other)
                if a in left and b in right:
                    bounds.append(Bound(left.index(a), right.index(b), -ms, None))
                elif a in right and b in left:
                    bounds.append(Bound(left.index(b), right.index(a), None, ms))
        return bounds

    def step(self, step: Mapping[str, Any]) -> list[tuple]:
        """Return the rows and the watermarks that became true."""
        rows: list[Output] = []
        if step["op"] == "row":
            side = SIDES[step["side"]]
            rows = list(self._operator.on_rows(side, self._table(side, step["row"]), None))
        elif step["op"] == "wm":
            side = LEFT if step["key"] in self._times[LEFT] else RIGHT
            if self._checks_growth:
                self._growth.step([WatermarkAdvanced("vector", step["key"], step["value"])], 0)
            rows = list(self._operator.on_watermark(side, step["key"], step["value"]))
        if self._restarts or step["op"] not in {"row", "wm"}:
            self._restart()
        answers: list[tuple] = [("row", self._values(row)) for output in rows for row in output.rows.to_pylist()]
        now = self._operator.output_watermarks_ms(None)
        answers += [("wm", self._keys[axis], ms) for axis, ms in now.items() if self._emitted_ms.get(axis) != ms]
        self._emitted_ms = now
        return answers

    def _restart(self) -> None:
        changes = self._operator.drain()
        for name in changes.removed:
            self._store.blobs.pop(name, None)
        self._store.blobs.update(changes.blobs)
        self._operator = JoinOperator(self.plan, MemoryStore(dict(self._store.blobs)))

    def buffered_rows(self, side: str) -> list[list[int]]:
        """Return the rows held."""
        return sorted(list(row.values()) for row in self._operator.buffered_rows(SIDES[side[0]]))

    def limit_ms(self, key: int) -> int | None:
        """Return the forget limit of a key."""
        return self._operator.limit_ms(self._keys.index(key))

    def _table(self, side: int, row: list[int]) -> pa.Table:
        one = self.plan.sides[side]
        columns = {f"c{at}": [value] for at, value in enumerate(row)} | {HASH: [0]}
        columns |= {name: [row[at]] for name, at in zip(one.times, self._times[side].values(), strict=True)}
        return pa.table(columns, schema=one.exchange_schema)

    def _values(self, row: Mapping[str, Any]) -> list[int | None]:
        return list(row.values())[: len(self.plan.columns)]


def through_operator(vector: Mapping[str, Any], condition: Callable[[Row, Row], bool]) -> Verdict:
    """Replay a vector of the join. condition: the vector's, over a row of each side."""
    config, error = vector["config"], vector.get("error")
    try:
        once, restarted = (_Driven(config, condition, restarts=restarts) for restarts in (False, True))
    except OptionError as refused:
        return MATCH if error is not None else fail(str(refused))
    if error is not None:
        return otherwise("joins: full is supported") if config["type"] == "full" else fail("nothing was refused")
    verdict = _steps(vector, once)
    return verdict if verdict is not MATCH else _steps(vector, restarted)


def _steps(vector: Mapping[str, Any], join: _Driven) -> Verdict:
    for index, step in enumerate(vector["steps"]):
        try:
            actual = join.step(step)
        except KeyedwmError as refused:
            return MATCH if "error" in step else fail(str(refused), index, step.get("emit"))
        expected = [
            ("wm", item["key"], item["wm"]) if isinstance(item, dict) else ("row", list(item))
            for item in step.get("emit", [])
        ]
        if "error" in step or sorted(map(repr, expected)) != sorted(map(repr, actual)):
            return fail("the answers differ", index, step.get("error", expected), actual)
        verdict = _state(join, step, index)
        if verdict is not MATCH:
            return verdict
    return MATCH


def _state(join: _Driven, step: Mapping[str, Any], index: int) -> Verdict:
    for side in ("left", "right"):
        if side in step and sorted(step[side]) != join.buffered_rows(side):
            return fail(f"the rows held {side} differ", index, step[side], join.buffered_rows(side))
    for key, limit_ms in step.get("limit", {}).items():
        if join.limit_ms(int(key)) != limit_ms:
            return fail(f"the limit of key {key} differs", index, limit_ms, join.limit_ms(int(key)))
    return MATCH
