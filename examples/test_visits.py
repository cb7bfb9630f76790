"""Five tests of a pipeline that need no Kafka: `pytest examples/test_visits.py`."""

from __future__ import annotations

import pytest

from keyedwm.spark import aggregate, count, tumbling
from keyedwm.testing.pipeline import RESTART, Record, Silence, run

pytest_plugins = ["keyedwm.testing.fixtures"]
OPTIONS = {"watermarkLag": "5 minutes", "idleTimeout": "1 minute"}


def visits_per_hour(rows):
    """The pipeline under test."""
    return aggregate(rows.selectExpr("*", "cast(key as string) page"), "page", tumbling("1 hour"), {"visits": count()})


@pytest.fixture(scope="module")
def day(keyedwm_spark):
    """One run that the tests look at: a Spark query takes some seconds, an assertion none."""
    steps = [
        [Record("2026-01-01 10:00", "start"), Record("2026-01-01 10:30", "start", partition=1)],
        [Record("2026-01-01 12:30", "cart")],
        [Record("2026-01-01 10:40", "start", partition=1)],
        Silence("2 minutes"),
        RESTART,
        [Record("2026-01-01 11:00", "start", partition=1)],
        [Record("2026-01-01 14:00", "cart"), Record("2026-01-01 14:00", "cart", partition=1)],
    ]
    return run(keyedwm_spark, visits_per_hour, steps, options=OPTIONS)


def pages(result):
    """The results of a step in short."""
    return sorted((row["page"], row["window"]["start"].hour, row["visits"]) for row in result.rows)


def test_a_partition_that_lags_loses_nothing(day):
    assert day[1].rows == []
    assert pages(day[3]) == [("start", 10, 3)]


def test_the_sentence_names_the_partition_that_is_waited_for(day):
    assert day[1].held_by.startswith("input-1 at 2026-01-01T10:25")


def test_an_idle_partition_is_not_waited_for(day):
    assert day[3].idle == 2


def test_a_record_behind_the_watermark_is_late(day):
    assert day[5].progress[0]["late_events"] == {"input": {"1": 1}}


def test_a_restart_loses_no_open_window(day):
    assert day[4].rows == []
    assert pages(day[6]) == [("cart", 12, 1)]
