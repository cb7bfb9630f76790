"""Samza's joins through the join of streams: the clock is the event time, and the time to live a bound of it.

Rule: the words are exchanged, and the operator is put away and built anew after each step. A stored row that is older
than its time to live by the millisecond does not join, so a bound is one millisecond less. Samza keeps the newest row
of a key and side; the product's join meets every row in the time, the newest among them. Where there are more, that is
decided otherwise, and the newest must be the one that the vector tells.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from conformance.decided import EVERY_ROW
from conformance.retold import samza
from conformance.verdict import MATCH, Outcome, Verdict, fail, otherwise
from keyedwm.operators.join.bounds import Bound
from keyedwm.operators.join.exchange_side import key_hashes
from keyedwm.operators.join.operator import JoinOperator
from keyedwm.operators.join.plan import LEFT, RIGHT, Axis, JoinInputSpec, JoinPlan
from keyedwm.operators.state.store import MemoryStore

_SIDES: Mapping[str, int] = {"left": LEFT, "right": RIGHT}


class _Join:
    """The join of a vector; `now_ms` is its clock."""

    def __init__(self, config: Mapping, value: pa.DataType) -> None:
        self.now_ms = config.get("clock_start", 0)
        ttl = config.get("ttl_ms")
        left_ms, right_ms = (config.get(f"{side}_ttl_ms", ttl) for side in _SIDES)
        sides = [
            JoinInputSpec(
                side,
                pa.schema([("key", pa.string()), (f"{side}_value", value), (f"{side}_number", pa.int64())]),
                ("key",),
                (Axis(side, number),),
            )
            for number, side in enumerate(_SIDES)
        ]
        self._plan = JoinPlan(left=sides[LEFT], right=sides[RIGHT], bounds=(Bound(0, 0, 1 - right_ms, left_ms - 1),))
        self._store = MemoryStore()
        self._row_count = 0

    def add_rows(self, side: str, rows: Sequence[tuple]) -> list[dict]:
        """The pairs that rows of a side give, keys and values of them."""
        operator, one = JoinOperator(self._plan, self._store), self._plan.sides[_SIDES[side]]
        numbers = range(self._row_count, self._row_count + len(rows))
        self._row_count += len(rows)
        keys = pa.array([str(key) for key, _ in rows])
        columns = [keys, [value for _, value in rows], list(numbers), key_hashes([keys], len(rows))]
        table = pa.table([*columns, np.full(len(rows), self.now_ms)], schema=one.exchange_schema)
        pairs = [row for piece in operator.on_rows(_SIDES[side], table, None) for row in piece.rows.to_pylist()]
        self._put_away(operator)
        return pairs

    def pass_time(self, ms: int) -> None:
        """Let the clock advance: both sides' watermarks do."""
        self.now_ms += ms
        operator = JoinOperator(self._plan, self._store)
        for side in _SIDES.values():
            for piece in operator.on_watermark(side, side, self.now_ms):
                piece.rows.validate()
        self._put_away(operator)

    def _put_away(self, operator: JoinOperator) -> None:
        changes = operator.drain()
        for name in changes.removed:
            self._store.blobs.pop(name, None)
        self._store.blobs.update(changes.blobs)


def clock_join(vector: dict) -> Verdict:
    """Replay a join with a time to live; behind it there may be a count by session."""
    config, steps = vector["config"], vector["steps"]
    if any(step["do"] == "inputs" for step in steps):
        return _then_sessions(vector)
    join, first = _Join(config, pa.int64()), None
    for index, step in enumerate(steps):
        if step["do"] == "advance_clock":
            join.pass_time(step["by"])
            continue
        if step["do"] not in _SIDES:
            return fail(f"a step {step['do']!r} is not known", index)
        other = "right" if step["do"] == "left" else "left"
        pairs = sorted(
            join.add_rows(step["do"], [(step["key"], step["value"])]), key=lambda row: row[f"{other}_number"]
        )
        newest = [_answer(row, step) for row in pairs[-1:]]
        if newest != step["out"]:
            return fail("the answers differ", index, step["out"], newest)
        first = index if first is None and len(pairs) > 1 else first
    return MATCH if first is None else otherwise(EVERY_ROW, first)


def _answer(row: Mapping[str, Any], step: Mapping) -> dict:
    """A pair in the words of a vector, which tells of it what it likes."""
    answer = {"value": row["left_value"] + row["right_value"], "key": step["key"]}
    return {name: answer[name] for name in (step["out"][0] if step["out"] else answer)}


def _then_sessions(vector: dict) -> Verdict:
    """A join of whole sides, whose pairs are counted by the left side's value."""
    config, steps = vector["config"], []
    for index, step in enumerate(vector["steps"]):
        if step["do"] != "inputs":
            steps.append(step)
            continue
        join = _Join(config, pa.string())
        rows = {side: [(key, value) for key, value in step[side]] for side in _SIDES}
        pairs = [row for side in _SIDES for row in join.add_rows(side, rows[side])]
        if len({(row["key"], row["right_value"]) for row in pairs}) != len(pairs):
            return otherwise(EVERY_ROW, index)
        steps.append({"do": "partitions", "data": {"0": [row["left_value"] for row in pairs]}, "out": step["out"]})
    session_config = {"clock": "processing", "type": "session", "gap": config["gap"], "keyed": True, "fold": "count"}
    verdict = samza(vector | {"config": session_config, "steps": steps})
    return verdict if verdict.outcome is not Outcome.FAIL else fail(verdict.reason, verdict.step, verdict.expected)
