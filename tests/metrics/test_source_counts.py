"""Counters of a source: they rise, also where the offset forgets a partition and its counts."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from pyspark.sql.streaming.listener import StreamingQueryProgress

from keyedwm.core.axis import Counts
from keyedwm.spark.metrics import catalogue as of
from keyedwm.spark.metrics.figures import Figures
from tests.metrics.told import Clock, Told, value, values, with_source
from tests.source.plans import Simulation, tp

SOURCE = ("orders", "0")


@pytest.fixture
def figures() -> Figures:
    return Figures(Clock(), partitions=2)


@pytest.fixture
def told() -> Told:
    return Told(Simulation({0: [1_000], 1: [1_000]}))


def with_facts(told: Told, **facts: object) -> StreamingQueryProgress:
    """Plan a batch, and report it with other facts."""
    told.simulation.logs[0].append(2_000)
    progress = told.progress()
    return with_source(progress, latestOffset=json.dumps(json.loads(progress.sources[0].latestOffset) | facts))


def test_late_events_of_a_partition_that_is_gone_stay_counted(figures, told):
    told.progress()
    channels = told.simulation.offset.channels
    late = {tp(0): Counts(late=100), tp(1): Counts(late=900)}
    told.simulation.offset = replace(
        told.simulation.offset, channels={place: replace(one, counts=late[place]) for place, one in channels.items()}
    )
    told.simulation.logs[0].append(2_000)
    figures.progressed(told.progress())
    assert value(figures, of.LATE, *SOURCE) == 1_000
    del told.simulation.logs[1]
    told.simulation.logs[0].append(3_000)
    figures.progressed(told.progress())
    assert tp(1) not in told.simulation.offset.channels
    assert value(figures, of.LATE, *SOURCE) == 1_000


@pytest.mark.parametrize(
    ("fact", "metric"),
    [
        ("late_events", of.LATE), ("bad_event_times", of.UNREADABLE), ("future_event_times", of.FUTURE),
        ("control_records", of.CONTROL_RECORDS), ("resets", of.RESETS),
    ],
)  # fmt: skip
def test_no_counter_of_a_source_falls(figures, told, fact, metric):
    for counts in ({"t": {"0": 3}, "u": {"0": 5}}, {"t": {"0": 4}}, {}):
        figures.progressed(with_facts(told, **{fact: counts}))
    assert value(figures, metric, *SOURCE) == 9


def test_a_reason_of_bad_values_stays_when_its_partition_is_gone(figures, told):
    figures.progressed(with_facts(told, bad_values={"cut": {"t": {"1": 2}}, "no_head": {"t": {"0": 1}}}))
    figures.progressed(with_facts(told, bad_values={"no_head": {"t": {"0": 4}}}))
    assert values(figures, of.BAD_VALUES) == {(*SOURCE, "cut"): 2, (*SOURCE, "no_head"): 4}


def test_a_partition_that_returns_with_its_counts_is_counted_once(figures, told):
    for counts in ({"t": {"1": 5}}, {}, {"t": {"1": 7}}):
        figures.progressed(with_facts(told, late_events=counts))
    assert value(figures, of.LATE, *SOURCE) == 7


def test_a_partition_that_was_forgotten_and_begins_again_adds_to_the_counter(figures, told):
    for counts in ({"t": {"1": 5}}, {}, {"t": {"1": 2}}, {"t": {"1": 3}}):
        figures.progressed(with_facts(told, late_events=counts))
    assert value(figures, of.LATE, *SOURCE) == 8


def test_an_older_batch_that_is_reported_late_changes_no_counter(figures, told):
    for counts in ({"t": {"1": 5}}, {"t": {"1": 2}}, {"t": {"1": 6}}):
        figures.progressed(with_facts(told, late_events=counts))
    assert value(figures, of.LATE, *SOURCE) == 6
