"""What the guard says of ratios, with made-up ones."""

from __future__ import annotations

import pytest

from benchmarks.guard import GUARDED, Guarded, StoredRatio, agreed, fallen_twice, falls, read_stored

SOME = Guarded("source", (), "some")
HELD = {"rates": StoredRatio("steady", 2.0), "cpu": StoredRatio("cpu_s", 1.0), "waiting": StoredRatio("first_s", 1.5)}


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [("rates", 1.81, 1.79), ("cpu", 1.1, 1.12), ("waiting", 1.66, 1.68)],
)
def test_a_ratio_may_be_a_tenth_worse_and_no_more(name, good, bad):
    figure = HELD[name].figure
    assert falls(HELD, {name: {figure: good}}) == {}
    (said,) = falls(HELD, {name: {figure: bad}}).values()
    assert said.startswith(f"{name}: {figure} is {bad:.2f} of Spark's, {HELD[name].ratio:.2f} is stored: ")
    assert said.endswith("% worse, 10% is allowed")


def test_what_became_better_and_what_is_not_stored_do_not_fail():
    assert falls(HELD, {"rates": {"steady": 9.0}, "cpu": {"cpu_s": 0.1}, "others": {"steady": 0.1}}) == {}


def test_a_ratio_fails_only_if_it_falls_in_two_runs():
    rates, cpu, other = Guarded("join", (), "rates"), Guarded("join", (), "cpu"), Guarded("start", (), "waiting")
    held = {one.name: StoredRatio("steady", 2.0) for one in (rates, cpu, other)}
    good, bad = {"steady": 1.9}, {"steady": 1.5}
    asked = []

    def again(some):
        asked.append(some)
        return {rates.name: bad, cpu.name: bad}

    first = {rates.name: bad, cpu.name: good, other.name: good}
    (said,) = fallen_twice(held, (rates, cpu, other), first, again)
    assert said.startswith(f"{rates.name}: steady is 1.50 ")
    assert asked == [(rates, cpu)]
    assert fallen_twice(held, (rates,), {rates.name: bad}, lambda _: {rates.name: good}) == []
    assert fallen_twice(held, (rates,), {rates.name: good}, again) == []
    assert len(asked) == 1


def test_two_runs_store_what_they_agree_in_rates_first():
    near, far = {"steady": 1.5, "cpu_s": 0.8}, {"steady": 1.9, "cpu_s": 0.82}
    assert agreed(SOME, near, {"steady": 1.6, "cpu_s": 9.0}) == StoredRatio("steady", 1.55)
    assert agreed(SOME, near, far) == StoredRatio("cpu_s", 0.81)
    assert agreed(SOME, near, {"steady": 3.0, "cpu_s": 1.0}) is None


def test_what_is_stored_is_guarded():
    known = {one.name: one for one in GUARDED}
    assert all(held.figure in known[name].figures and held.ratio > 0 for name, held in read_stored().items())
