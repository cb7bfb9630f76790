"""Sessions by rows: a key's messages in a partition with few others between them; see `laws`, too."""

from __future__ import annotations

import json

import pytest

from keyedwm.core.errors import FormatError, OptionError
from keyedwm.operators.messages.bucket_store import BucketStore
from keyedwm.operators.messages.functions import median
from keyedwm.operators.messages.read_only_store import listed_store
from keyedwm.operators.messages.retention import Retention
from keyedwm.operators.messages.windows import CompletedBy, session_rows, tumbling_key_rows
from keyedwm.operators.panes import Early
from keyedwm.operators.state.store import MemoryStore
from keyedwm.windows import WindowOperator
from tests.operators.stored import operator_of, plan_of, random_messages, table
from tests.operators.test_key_rows import new_messages
from tests.operators.test_key_rows import new_panes as panes_of


def test_a_session_ends_when_more_others_came_than_may_lie_between():
    operator = operator_of(session_rows(2))
    operator.add_message(table(new_messages((0, "a", 1), (3, "a", 2), (4, "b", 3), (5, "b", 4))))
    assert panes_of(operator) == []
    operator.add_message(table(new_messages((6, "b", 5))))
    assert panes_of(operator) == [("a", 0, 0, 3, [1, 2], "on_time", False)]
    operator.add_message(table(new_messages((7, "a", 6), (11, "a", 7))))  # offsets without a message count
    assert [row[:5] for row in panes_of(operator)] == [("b", 0, 4, 6, [3, 4, 5]), ("a", 0, 7, 7, [6])]
    operator.finish()
    assert [row[:5] for row in panes_of(operator)] == [("a", 0, 11, 11, [7])]


def test_what_is_held_is_told_from_the_blobs_alone():
    plan, store = plan_of(session_rows(50)), MemoryStore()
    operator = WindowOperator(plan, store)
    operator.add_message(table(random_messages(3, 60)))
    operator.flush()
    bucket_store = BucketStore(plan=plan)
    store_listing = listed_store(json.loads(json.dumps(bucket_store.description())), store)
    assert store_listing.windows(by_key=False) == operator.get_windows(0, 10**6, by_key=True)  # each is of one key
    assert bucket_store.inputs[0].by == ("topic", "partition")  # the offsets of all keys count
    assert BucketStore(plan=plan_of(tumbling_key_rows(2))).inputs[0].by == ("k",)
    with pytest.raises(FormatError, match="belongs to plan"):
        WindowOperator(plan_of(session_rows(51)), store)


def test_what_sessions_by_rows_cannot_do_is_one_sentence():
    for change, sentence in {
        ("full", CompletedBy.MESSAGE): "full='message' has no meaning for sessions",
        ("early", Early(rows=2)): "leave early and late panes out",
        ("retention", Retention(time_ms=9)): "windows of rows are kept by number, not by time",
    }.items():
        with pytest.raises(OptionError, match=sentence):
            plan_of(session_rows(3), **dict([change]))
    with pytest.raises(OptionError, match="with -1 rows between two of its own: 0 or more is expected"):
        session_rows(-1)
    operator = operator_of(session_rows(1), aggregate=median("n"))
    operator.add_message(table(new_messages((0, "a", 1), (1, "a", 4), (9, "a", 9))))
    assert [row[4] for row in panes_of(operator)] == [2.5]
