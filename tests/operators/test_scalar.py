"""The vectorised operators answer every step as the scalar reference of the core: windows, late rows, late panes."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conformance.aggregates import AGGREGATES
from conformance.engine import BothSessions, BothSliding, DisagreementError
from conformance.models.sessions import SessionConfig
from conformance.models.sliding import SlidingConfig
from keyedwm.core.window_rules import LateRule, Touching
from tests.seeds import times

steps = st.lists(
    st.one_of(
        st.tuples(st.just("event"), st.integers(-20, 40), st.sampled_from(["a", "b", 7]), st.integers(-5, 5)),
        st.tuples(st.just("watermark"), st.integers(-20, 60)),
    ),
    max_size=25,
)
names = st.sampled_from(["sum", "sum_nodeduct", "count", "min", "set"])
rules = st.sampled_from(LateRule)


def play(operator, moves) -> None:
    for name, *arguments in moves:
        getattr(operator, name)(*arguments)
    operator.complete()


@settings(max_examples=times(50), deadline=None)
@given(steps, names, rules, st.integers(1, 4), st.integers(1, 5), st.integers(0, 3), st.integers(0, 9))
def test_sliding_windows_answer_every_step_as_the_scalar_reference(moves, name, rule, slide, overlap, offset, lateness):
    lateness_ms = lateness if rule is LateRule.WINDOW else 0
    config = SlidingConfig(slide * overlap, slide, offset % slide, lateness_ms, rule)
    play(BothSliding(config, name, AGGREGATES[name]), moves)


@settings(max_examples=times(50), deadline=None)
@given(
    steps,
    names,
    st.sampled_from([LateRule.WINDOW, LateRule.EVENT]),
    st.sampled_from(Touching),
    st.integers(1, 9),
    st.integers(0, 9),
)
def test_sessions_answer_every_step_as_the_scalar_reference(moves, name, rule, touching, gap_ms, lateness):
    lateness_ms = lateness if rule is LateRule.WINDOW else 0
    config = SessionConfig(gap_ms, touching, lateness_ms, rule)
    play(BothSessions(config, name, AGGREGATES[name]), moves)


def test_a_difference_between_the_two_is_told():
    both_engines = BothSliding(SlidingConfig(10, 10), "sum", AGGREGATES["sum"])
    both_engines.event(1, "k", 2)
    both_engines._engine.event(1, "k", 2)
    with pytest.raises(
        DisagreementError, match=r"the scalar reference says .*value=2\).*, the vectorised engine .*value=4\)"
    ):
        both_engines.watermark(10)
