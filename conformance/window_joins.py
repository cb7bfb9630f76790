"""Vectors of the design's joins of windows through the standalone operator.

Rule: the operator is put away and built anew after each step, unless the vector asks for results itself. A step's rows
are compared by window, and of one side alone its new messages by offset.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from conformance.join_plans import EQUAL_WINDOWS, JoinConfig, Windows, row_of
from conformance.joined_rows import session_join
from conformance.verdict import MATCH, Verdict, fail, otherwise
from keyedwm.core.errors import OptionError
from keyedwm.operators.messages.join.plan import WindowJoinPlan
from keyedwm.operators.messages.plan import Reason
from keyedwm.operators.state.store import MemoryStore
from keyedwm.windows import WindowJoin

__all__ = ["session_join", "window_join"]
_FROM_MESSAGES = "windows follow from the messages: one before the first window opens its own"
_ONE_STATE = "messages and what is known of them lie in one store, so what was told is told again after a loss"
_ASKS = {"get_result", "flush"}


def window_join(vector: dict) -> Verdict:
    """The worked joins, and what one side sends where all of its messages meet one message of the other."""
    config = JoinConfig(vector["config"], vector["steps"])
    windows = config.windows
    if windows is None:
        return otherwise(EQUAL_WINDOWS)
    try:
        plan = config.plan(windows)
    except OptionError as error:
        return otherwise(f"refused when the plan is built: {error.message}", 0)
    played, reason, first = _Played(config, plan), "", None
    for index, step in enumerate(vector["steps"]):
        replayed = played.replayed(step)
        rows = played.step(step)
        why = _ONE_STATE if step["do"] == "lose_message_store" else ""
        if played.tells_again(step, rows):
            continue
        if "noop" in step and played.replayed(step) - replayed != step["noop"]:
            return fail("what is a replay differs", index, step["noop"], played.replayed(step) - replayed)
        if not _alike(step["out"], rows, vector.get("compare", {})):
            why = _excuse(config, windows, played, step, rows)
            if not why:
                return fail("the answers differ", index, step["out"], rows)
        if why and first is None:
            reason, first = why, index
    return MATCH if first is None else otherwise(reason, first)


@dataclass
class _Played:
    """The operator, and the state that it is built from."""

    config: JoinConfig
    plan: WindowJoinPlan
    store: MemoryStore = field(default_factory=MemoryStore)
    now_ms: int = 0
    first: int | None = None  # where the first window that was told of begins

    def __post_init__(self) -> None:
        self.asks = any(step["do"] in _ASKS for step in self.config.steps)
        self.tops, self.lost_tops = (
            [-1, -1],
            [-1, -1],
        )  # the last offset of each side, and that before the store was lost
        self.emitted_parts: set[str] = set()
        self.begin()

    def begin(self) -> None:
        """Go on from nothing; one side alone meets a message of the other, which is there before."""
        self.store.blobs.clear()
        self.operator = WindowJoin(self.plan, self.store)
        if not self.config.wants_pairs:
            side, beat_ms = self.plan.right, self.config.beat_ms
            self.operator.add_message(side.name, row_of(side.schema, {"time": 0, "offset": 0}), now_ms=beat_ms)
            self.operator.timeout(beat_ms + (self.plan.early_every_ms or 0))
            self.renew()

    def renew(self) -> list[dict]:
        """Write the state, and go on from it; return what was made since."""
        rows = self.as_answers(self.operator.flush())
        self.operator = WindowJoin(self.plan, self.store)
        return rows

    def replayed(self, step: Mapping) -> int:
        """Return how many messages of a step's side were known as replays."""
        return self.operator.counts(self.plan.sides[self.config.side_of(step) or 0].name).replayed

    def step(self, step: Mapping) -> list[dict]:
        """Play a step, and return what came of it."""
        number, self.now_ms = self.config.side_of(step), step.get("wall", self.now_ms)
        if number is not None:
            side = self.plan.sides[number]
            message = {name: value for name, value in step.items() if name in side.schema.names}
            self.operator.add_message(side.name, row_of(side.schema, message), now_ms=self.now_ms)
            self.tops[number] = max(self.tops[number], step["offset"])
        elif step["do"] == "lose_message_store":
            self.lost_tops = list(self.tops)
            self.begin()
        elif step["do"] == "timeout":
            self.operator.timeout(self.now_ms)
        elif step["do"] == "end":
            self.operator.finish()
        elif step["do"] == "get_result":
            return self.as_answers(self.operator.get_result())
        elif step["do"] not in {"flush", "restart_from_checkpoint"}:
            raise LookupError(f"a step {step['do']!r} is not known")
        rejected = [row for side in self.plan.sides for row in self.operator.get_rejected(side.name).to_pylist()]
        errors = [{"error_topic": row["offset"]} for row in rejected if row["reason"] != Reason.GAP.value]
        if not self.asks:
            return errors + self.renew()
        if step["do"] == "flush":
            self.renew()
        return errors if number is not None else []

    def tells_again(self, step: Mapping, rows: Sequence[Mapping]) -> bool:
        """Whether a step gives what a lost store had, and nothing comes of it that was not told before."""
        number, before = self.config.side_of(step), self.emitted_parts
        self.emitted_parts = before | {one for row in rows for one in _parts(row)}
        return number is not None and step["offset"] <= self.lost_tops[number] and self.emitted_parts == before

    def as_answers(self, table: pa.Table) -> list[dict]:
        """Return pairs by window, or the new messages of each window."""
        rows = [row | {"window": _window(row)} for row in table.to_pylist()]
        rows.sort(key=lambda row: row["window"])
        if rows and self.first is None:
            self.first = rows[0]["window"][0]
        if self.config.wants_pairs:
            return rows
        records_by_window: dict[tuple[int, ...], list[tuple[int, int]]] = {}
        for row in rows:
            record = tuple(row[f"{name}_{self.plan.left.name}"] for name in ("partition", "offset"))
            records_by_window.setdefault(tuple(row["window"]), []).append(record)
        return [
            {"window": list(window), "new_messages": [offset for _, offset in sorted(records)]}
            for window, records in records_by_window.items()
        ]


def _parts(row: Mapping) -> list[str]:
    """What is told by a row: of one side alone each message with its window."""
    if "new_messages" not in row:
        return [repr(sorted(row.items(), key=repr))]
    return [f"{row['window']} {offset}" for offset in row["new_messages"]]


def _window(row: Mapping) -> list[int]:
    edges = row["window"].values()
    return [edge if isinstance(edge, int) else round(edge.timestamp() * 1000) for edge in edges]


def _alike(expected: Sequence[Mapping], actual: Sequence[Mapping], how: Mapping) -> bool:
    """Fields that are not expected are not compared."""
    if len(expected) != len(actual):
        return False
    if how.get("order") == "any":
        rest = list(actual)
        for one in expected:
            match = next((other for other in rest if _holds(other, one)), None)
            if match is None:
                return False
            rest.remove(match)
        return True
    return all(_holds(other, one) for one, other in zip(expected, actual, strict=True))


def _holds(actual: Mapping, expected: Mapping) -> bool:
    return all(name in actual and actual[name] == value for name, value in expected.items())


def _excuse(config: JoinConfig, windows: Windows, played: _Played, step: Mapping, rows: Sequence[Mapping]) -> str:
    """Return the rule by which a message is taken that the design gives back, "" if that is not the difference."""
    refused = [{"error_topic": step.get("offset")}]
    if step["out"] != refused or len(rows) != 1 or rows[0].get("new_messages") != [step["offset"]]:
        return ""
    if rule := config.retention(windows)[1]:
        return rule
    return _FROM_MESSAGES if played.first is not None and rows[0]["window"][0] < played.first else ""
