"""Vectors of the design's aggregators through the standalone operator that keeps messages.

Rule: the operator is put away and built anew after each step. A vector's operator fetches its input itself, so results
that the next operator refuses wait where they are, and the caller keeps the message that it may not give. The family of
the standalone operator leaves its results where they are until a step asks for them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from conformance.decided import ALWAYS, DECIDED
from conformance.store_plans import SCHEMA, store_plan
from conformance.verdict import MATCH, Verdict, fail, otherwise
from keyedwm.core.errors import OptionError
from keyedwm.operators.messages.plan import Reason, StorePlan
from keyedwm.operators.messages.windows import HoppingWindow, RowWindow
from keyedwm.operators.state.store import MemoryStore
from keyedwm.windows import WindowOperator

_WAITS = "results wait until they are fetched, and nobody pushes input at an operator"
_ALL_OPEN = "early panes come of every open window that has news, at one beat"
_ONE_STORE = "messages and what is known of windows lie in one store, so what was told is told again after a loss"
_OF_THE_CALLER = frozenset({"downstream", "restart_from_checkpoint", "flush", "get_result"})


def aggregator(vector: dict) -> Verdict:
    """The windowed aggregators, replays, refused output, and the standalone operator."""
    try:
        plan, left_out = store_plan(vector["config"], vector["steps"])
    except OptionError as error:
        if "retention_time" not in vector["config"]:
            return fail(f"the plan is refused: {error.message}")
        return otherwise(f"refused when the plan is built: {error.message}", 0)
    reason, own_answers = DECIDED.get(vector["id"], ("", {}))
    played = _Played(plan, keeps_results=vector["family"] == "seed.standalone")
    for index, step in enumerate(vector["steps"]):
        actual = played.step(index, step)
        if played.tells_again(step):
            continue
        if "noop" in step and played.replayed != int(step["noop"]):
            return fail("a replay was not known as one", index, int(step["noop"]), played.replayed)
        expected = own_answers.get(index, step["out"])
        if index in own_answers and not _alike(step["out"], actual):
            played.differs(reason, index)
        left = actual if _alike(expected, actual) else played.without_what_a_rule_adds(expected, actual, index)
        if not _alike(expected, left):
            return otherwise(left_out, index) if left_out else fail("the answers differ", index, expected, actual)
    return played.verdict


class _Played:
    """What a vector's steps do to the product's operator. keeps_results: until a step asks for them."""

    def __init__(self, plan: StorePlan, *, keeps_results: bool) -> None:
        self._plan, self._keeps_results = plan, keeps_results
        self._store = MemoryStore()
        self._operator = WindowOperator(plan, self._store)
        self._accepts: int = 1 << 40
        self._queue: list[dict] = []
        self._emitted_offsets: dict[tuple, set[int]] = {}  # window and key -> the messages that it showed
        self._top, self._lost_at = -1, -1
        self.verdict, self.replayed = MATCH, 0
        window = plan.kind
        grid = window.grid(0) if isinstance(window, RowWindow) else plan.kind_as(HoppingWindow).grid()
        self._overlaps = grid.step < grid.size

    def differs(self, reason: str, index: int) -> None:
        """A rule of the design decides otherwise at a step."""
        if self.verdict is MATCH:
            self.verdict = otherwise(reason, index)

    def step(self, index: int, step: Mapping) -> list[dict]:
        """Take a step; return what leaves."""
        before = self._operator.counts.replayed
        if "error" in step:
            self.differs(_WAITS, index)
        elif step["do"] == "lose_message_store":
            self._store.blobs.clear()
            self._operator = WindowOperator(self._plan, self._store)
            self._lost_at = self._top
            self.differs(_ONE_STORE, index)
        else:
            _do(self._operator, step)
            self._top = max(self._top, step.get("offset", -1))
        self.replayed = max(0, self._operator.counts.replayed - before)
        if step["do"] == "downstream":
            self._accepts = int(step["accept"]) if step["accept"] is not True else 1 << 40
        elif self._keeps_results:
            return self._fetched(step["do"])
        return self._send_answers(step)

    def _fetched(self, kind: str) -> list[dict]:
        """What a program sees that fetches results by hand."""
        rows = self._operator.get_result().to_pylist()
        if kind == "flush":
            self._operator.flush()
            self._operator = WindowOperator(self._plan, self._store)
        return [self._answer(row, has_new_messages=False) for row in rows] if kind == "get_result" else []

    def _send_answers(self, step: Mapping) -> list[dict]:
        """What the next operator takes."""
        if not self._accepts:
            return []
        given_back = self._operator.get_rejected().to_pylist()
        errors = [{"error_topic": row["offset"]} for row in given_back if row["reason"] != Reason.GAP.value]
        self._queue += [*errors, *(self._answer(row) for row in self._operator.get_result().to_pylist())]
        self._operator.flush()
        self._operator = WindowOperator(self._plan, self._store)
        if step["do"] == "downstream":  # what waits is sent on with the next step
            return []
        answers, self._queue = self._queue[: self._accepts], self._queue[self._accepts :]
        self._accepts -= len(answers)
        return answers

    def _answer(self, row: Mapping, *, has_new_messages: bool = True) -> dict:
        window = list(row["window"].values())
        if not isinstance(window[0], int):
            window = [round(edge.timestamp() * 1000) for edge in window]
        answer = {"window": window, "result": row["result"], "timing": row["pane"]["timing"]}
        answer |= {name: row[name] for name in self._plan.by}
        if has_new_messages:
            place = (*window, *(row[name] for name in self._plan.by))
            answer["new_messages"] = sorted(set(row["offsets"]) - self._emitted_offsets.get(place, set()))
            self._emitted_offsets[place] = set(row["offsets"])
        return answer

    def without_what_a_rule_adds(self, expected: Sequence[Mapping], actual: list[dict], index: int) -> list[dict]:
        """Return what is made without the panes that a rule of the design adds."""
        left, surplus = _split_expected(expected, actual)
        for pane in surplus:
            if pane.get("timing") == "on_time" and not pane["new_messages"]:
                self.differs(ALWAYS, index)
            elif pane.get("timing") == "early" and self._overlaps:
                self.differs(_ALL_OPEN, index)
            else:
                return actual
        return left

    def tells_again(self, step: Mapping) -> bool:
        """Whether a message is among those that the lost store had."""
        return step.get("offset", self._lost_at + 1) <= self._lost_at


def _do(operator: WindowOperator, step: Mapping) -> None:
    kind = step["do"]
    if kind == "add_message":
        row = {"value": 0, "partition": 0, "topic": "t", "key": None, **step}
        table = pa.table([[row[name]] for name in SCHEMA.names], schema=SCHEMA)
        operator.add_message(table, now_ms=step.get("wall", 0))
    elif kind == "timeout":
        operator.timeout(step["wall"])
    elif kind in {"end", "finish"}:
        operator.finish()
    elif kind not in _OF_THE_CALLER:
        raise LookupError(f"a step {kind!r} is not known")


def _split_expected(expected: Sequence[Mapping], actual: Sequence[dict]) -> tuple[list[dict], list[dict]]:
    """Return what is expected out of what is made, in the order of the first, and what is left of it."""
    surplus, matches = list(actual), []
    for one in expected:
        pane = next((other for other in surplus if one.items() <= other.items()), None)
        if pane is not None:
            surplus.remove(pane)
            matches.append(pane)
    return matches, surplus


def _alike(expected: Sequence[Mapping], actual: Sequence[Mapping]) -> bool:
    """Whether the fields that the expected answers tell are the same, in their order."""
    return len(expected) == len(actual) and all(
        one.items() <= other.items() for one, other in zip(expected, actual, strict=True)
    )
