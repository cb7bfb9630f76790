"""The laws of operators over kept messages that do not depend on how the messages come, and on replays."""

from __future__ import annotations

from keyedwm.operators.messages.on_demand import OnDemandWindow
from tests.operators.laws import laws
from tests.operators.laws.cases import every_case, every_window, seed_of
from tests.operators.laws.kinds import Kind


@every_case
def test_neither_the_cut_nor_the_tasks_change_what_is_said_last_and_what_is_rejected(kind: Kind, window, full):
    seed = seed_of(kind, window, full)
    least = 1 if isinstance(window, OnDemandWindow) else 5  # few messages open one
    assert laws.is_not_changed_by_the_cut(kind, window, full, seed) > least


@every_window
def test_a_record_that_comes_again_changes_nothing_and_is_counted(kind: Kind, window, full):
    seed = seed_of(kind, window, full)
    assert laws.knows_replays(kind, window, full, seed) > 20
