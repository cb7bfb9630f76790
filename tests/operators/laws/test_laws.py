"""The laws of operators over kept messages, for every kind of window."""

from __future__ import annotations

from keyedwm.operators.messages.contents import SHAPES
from keyedwm.operators.messages.windows import kind_of
from tests.operators.laws import laws
from tests.operators.laws.cases import every_case, seed_of
from tests.operators.laws.kinds import KINDS, Kind
from tests.seeds import seeds


def test_every_shape_has_laws():
    proved = {type(kind_of(window)) for kind in KINDS for window in kind.windows}
    assert proved == set(SHAPES)


@every_case
def test_panes_messages_and_counts_are_those_of_the_model_with_a_restart_after_each_step(kind: Kind, window, full):
    case_seeds = seeds(2, first=2 * seed_of(kind, window, full))
    assert sum(laws.follows_the_model(kind, window, full, seed) for seed in case_seeds) > 4
