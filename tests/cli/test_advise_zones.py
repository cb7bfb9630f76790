"""`keyedwm advise`: event times that are local times of another zone."""

from __future__ import annotations

import json

import numpy as np
import pytest

from keyedwm.cli.advise.losses import (
    HOUR_MS,
    MINUTE_MS,
    zone_of,
)
from tests.cli.test_advise import IN_SECONDS, NOW_MS, SECOND_MS, read_advice
from tests.tools import Record, produce


def arrived(event_ms: np.ndarray) -> np.ndarray:
    """Timestamps of records that came up to half a minute after these event times, of UTC."""
    return event_ms + np.random.default_rng(1).integers(0, 30_000, len(event_ms))


@pytest.mark.parametrize("offset_min", [0, 60, 120, 330, 345, -300, -30])
def test_event_times_of_another_zone_are_told_by_their_half_hours(offset_min):
    true_ms = NOW_MS + SECOND_MS * np.arange(500)
    ahead_ms = zone_of(true_ms + offset_min * MINUTE_MS, arrived(true_ms))
    assert ahead_ms == (offset_min * MINUTE_MS if offset_min and offset_min % 30 == 0 else None)


def test_records_that_come_late_by_chance_show_no_zone():
    true_ms = NOW_MS + SECOND_MS * np.arange(5_000)
    late_ms = np.random.default_rng(2).integers(0, 3 * HOUR_MS, len(true_ms))
    assert zone_of(true_ms - late_ms, true_ms) is None
    assert zone_of(true_ms[:9] + HOUR_MS, true_ms[:9]) is None  # too few to tell


def test_a_zone_is_told_of_the_partitions_that_have_it(capsys, kafka, topic_of):
    topic = topic_of(2, retention_ms="-1")
    values = [(p, NOW_MS + n * SECOND_MS, p * 2 * HOUR_MS) for p in (0, 1) for n in range(20)]
    produce(kafka.bootstrap, topic, [
        Record(p, at, json.dumps({"at": (at + ahead) // SECOND_MS}).encode()) for p, at, ahead in values
    ])  # fmt: skip
    advice = json.loads(read_advice(capsys, kafka, topic, *IN_SECONDS, "--json"))
    assert advice["zones"] == [{"partition": 1, "ahead_ms": 2 * HOUR_MS}]
    text = read_advice(capsys, kafka, topic, *IN_SECONDS)
    assert (
        "event times of partition 1 are 2:00 hours ahead of the records' timestamps, as local times of UTC+02:00"
        in text
    )
