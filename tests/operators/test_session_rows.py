"""Sessions by rows: a key's messages in a partition with few others between them, whatever the cut."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

import pytest

from keyedwm.core.errors import FormatError, OptionError
from keyedwm.operators.messages import held, key_row_operator
from keyedwm.operators.messages.functions import median
from keyedwm.operators.messages.plan import Full, session_rows, tumbling_key_rows
from keyedwm.operators.messages.retention import Retention
from keyedwm.operators.messages.staged import StagedStore
from keyedwm.operators.panes import Early
from keyedwm.operators.state import key_dictionary
from keyedwm.operators.state import store as logs
from keyedwm.operators.state.note import NOTE
from keyedwm.operators.state.store import MemoryStore
from keyedwm.windows import WindowOperator
from tests.operators.key_rows import Played, size
from tests.operators.stored import KEEP_ALL, Message, cut, plan_of, random_messages, table, told
from tests.operators.test_key_rows import given, in_pieces, operator_of
from tests.operators.test_key_rows import told as panes_of


@dataclass
class SessionRowModel:
    """All messages that are held; sessions are found anew each time."""

    between: int
    retention: Retention = KEEP_ALL
    held: dict = field(default_factory=dict)
    next: dict = field(default_factory=dict)
    made: list = field(default_factory=list)
    dropped: int = 0

    def take(self, messages: list[Message]) -> None:
        seen = dict(self.next)
        for one in sorted(set(messages), key=lambda one: one[3:]):
            if one.offset >= seen.get(one[3:5], 0):
                self.next[one[3:5]] = one.offset + 1
                self.held.setdefault((one.k, *one[3:5]), []).append(one)
        for key in sorted(self.held, key=str):
            while over := self.first_over(key):
                self.show(key, over, "on_time")

    def first_over(self, key: tuple) -> list[Message]:
        mine = self.held.get(key, [])
        for at, one in enumerate(mine):
            following = mine[at + 1].offset if at + 1 < len(mine) else self.next[key[1:]]
            if following - one.offset > self.between + 1:
                return mine[: at + 1]
        return []

    def limit(self) -> None:
        oldest = sorted(
            self.held,
            key=lambda key: (self.held[key][0].offset - self.next[key[1:]], key[1:], key[0] is None, key[0] or ""),
        )
        for key in oldest:
            rest = [one for mine in self.held.values() for one in mine]
            limits = (len(rest), self.retention.max_messages), (sum(map(size, rest)), self.retention.max_bytes)
            if all(most is None or many <= most for many, most in limits):
                break
            self.dropped += len(self.held[key])
            self.show(key, self.held[key], "early", last=True)

    def finish(self) -> None:
        for key in list(self.held):
            self.show(key, self.held[key], "on_time")

    def show(self, key: tuple, mine: list[Message], timing: str, last: bool = False) -> None:
        self.made.append((key[1:], mine[0].offset, mine[-1].offset, key[0], told(table(mine)), timing, last))
        self.held[key] = [one for one in self.held[key] if one not in mine]
        if not self.held[key]:
            del self.held[key]


@pytest.fixture(autouse=True)
def compaction_at_every_turn(monkeypatch):
    monkeypatch.setattr(logs, "FAN_OUT", 3)
    monkeypatch.setattr(key_row_operator, "_FEW", 4)
    monkeypatch.setattr(key_row_operator, "_MOST_ROWS", 5)
    monkeypatch.setattr(key_dictionary, "_FEW", 1)


@pytest.mark.parametrize("between", [0, 1, 2, 5, 20])
@pytest.mark.parametrize("retention", [KEEP_ALL, Retention(max_messages=6), Retention(max_bytes=300)], ids=str)
def test_panes_messages_and_counts_are_those_of_the_model_with_a_restart_after_each_step(between, retention):
    for seed in range(6):
        model = SessionRowModel(between, retention)
        played = Played(plan_of(session_rows(between), retention=retention), always=seed % 3 != 2)
        messages = random_messages(f"session rows {seed}", 60)
        for name, piece in cut(seed, messages, watermarks=True):
            begin = len(model.made), len(played.made)
            if name == "add_message":
                model.take(piece)
                model.limit()
            played.step(name, table(piece) if name == "add_message" else piece)
            assert sorted(played.made[begin[1] :], key=str) == sorted(model.made[begin[0] :], key=str)
            rest = [one for mine in model.held.values() for one in mine]
            found = played.operator.get_messages(-(10**6), 10**6).to_pylist()
            assert [tuple(one.values()) for one in found] == sorted(rest, key=lambda one: (one.offset, *one[3:5]))
            windows = played.operator.get_windows(-(10**6), 10**6, by_key=True).to_pylist()
            assert sorted((list(one.values())[:-1] for one in windows), key=str) == sorted((
                [k, mine[0].offset, mine[-1].offset + 1, *channel, mine[0].offset, mine[-1].offset, len(mine),
                 sum(map(size, mine))] for (k, *channel), mine in model.held.items()
            ), key=str)  # fmt: skip
        counts = played.operator.counts
        assert counts.given == len(messages) == counts.taken + counts.replayed
        assert counts.taken - counts.expired - counts.dropped_messages == len(rest)
        assert counts.dropped_messages == model.dropped
        model.finish()
        played.step("finish")
        assert sorted(played.made, key=str) == sorted(model.made, key=str)


@pytest.mark.parametrize("between", [0, 3])
def test_neither_the_cut_nor_which_partition_was_read_first_changes_a_result(between):
    messages, made = random_messages(7, 120), []
    for seed in range(4):
        played = Played(plan_of(session_rows(between)))
        for name, piece in in_pieces(seed, messages):
            played.step(name, table(piece))
        made.append(sorted(played.made, key=str))
    assert made == made[:1] * 4
    assert len(made[0]) > 10


def test_a_session_ends_when_more_others_came_than_may_lie_between():
    operator = operator_of(session_rows(2))
    operator.add_message(table(given((0, "a", 1), (3, "a", 2), (4, "b", 3), (5, "b", 4))))
    assert panes_of(operator) == []
    operator.add_message(table(given((6, "b", 5))))
    assert panes_of(operator) == [("a", 0, 0, 3, [1, 2], "on_time", False)]
    operator.add_message(table(given((7, "a", 6), (11, "a", 7))))  # offsets without a message count
    assert [row[:5] for row in panes_of(operator)] == [("b", 0, 4, 6, [3, 4, 5]), ("a", 0, 7, 7, [6])]
    operator.finish()
    assert [row[:5] for row in panes_of(operator)] == [("a", 0, 11, 11, [7])]


def test_what_is_held_is_told_from_the_blobs_alone():
    plan, store = plan_of(session_rows(50)), MemoryStore()
    operator = WindowOperator(plan, store)
    operator.add_message(table(random_messages(3, 60)))
    operator.flush()
    staged = StagedStore(plan=plan)
    told_of, facts = json.loads(json.dumps(staged.told())), json.loads(store.get(NOTE))
    logged = {name: blob for name, blob in store.blobs.items() if name.startswith(held.INDEX)}
    found = [(one.start, one.end, one.messages, one.bytes) for one in held.windows(told_of, [(facts, logged)])]
    wanted = operator.get_windows(0, 10**6)
    assert sorted(found) == sorted(
        (one["start"], one["end"], one["messages"], one["bytes"]) for one in wanted.to_pylist()
    )
    assert staged.messages.by == ("topic", "partition")  # the offsets of all keys count
    assert StagedStore(plan=plan_of(tumbling_key_rows(2))).messages.by == ("k",)
    with pytest.raises(FormatError, match="belongs to plan"):
        WindowOperator(plan_of(session_rows(51)), store)


def test_what_sessions_by_rows_cannot_do_is_one_sentence():
    for change, said in {
        ("full", Full.MESSAGE): "full='message' has no meaning for sessions",
        ("early", Early(rows=2)): "leave early and late panes out",
        ("retention", Retention(time_ms=9)): "windows of rows are kept by number, not by time",
    }.items():
        with pytest.raises(OptionError, match=said):
            plan_of(session_rows(3), **dict([change]))
    with pytest.raises(OptionError, match="with -1 rows between two of its own: 0 or more is expected"):
        session_rows(-1)
    operator = operator_of(session_rows(1), aggregate=median("n"))
    operator.add_message(table(given((0, "a", 1), (1, "a", 4), (9, "a", 9))))
    assert [row[4] for row in panes_of(operator)] == [2.5]
