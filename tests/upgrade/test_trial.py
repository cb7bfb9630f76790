"""What an upgrade counts; `make upgrade` runs upgrades."""

from __future__ import annotations

from collections import Counter

from tests.upgrade.answers import ANSWERS, LAST_MS, Event
from tests.upgrade.queries import QUERIES
from tests.upgrade.trial import Outcome

MINUTE_MS = 60_000


def test_a_missing_row_is_lost_a_repeated_one_doubled_and_an_unknown_one_wrong():
    outcome = Outcome("0.4.0", "restart", "delta", ("copy",))
    outcome.count("copy", Counter({("a", 1): 1, ("a", 2): 2}), Counter({("a", 2): 3, ("b", 1): 2}))
    assert (outcome.lost, outcome.doubled, outcome.wrong) == (1, 1, 2)
    assert not outcome.is_clean


def test_every_query_has_an_answer():
    assert list(ANSWERS) == list(QUERIES)


def test_joins_emit_also_the_pairs_of_the_last_records():
    last = [Event("a", number, LAST_MS) for number in (4, 5)]
    for name in ("join", "window_join"):
        assert ANSWERS[name].with_last
        assert list(ANSWERS[name].rows(last)) == [("a", 4, 5)]


def test_a_session_ends_after_the_gap_and_a_duplicate_is_one_of_a_row_that_passed():
    events = [Event("a", number, minute * MINUTE_MS) for number, minute in enumerate((0, 20, 41, 55, 75))]
    assert list(ANSWERS["session"].rows(events)) == [("a", 0, 2, 1), ("a", 41 * MINUTE_MS, 3, 9)]
    assert list(ANSWERS["deduplicate"].rows(events)) == [("a", 0), ("a", 2), ("a", 4)]
    assert list(ANSWERS["join"].rows(events)) == [
        ("a", 0, None),
        ("a", 2, None),
        ("a", 4, None),
        ("a", None, 1),
        ("a", None, 3),
    ]
    assert list(ANSWERS["latest"].rows(events)) == [("a", 0, None), ("a", 2, 1), ("a", 4, 3)]
