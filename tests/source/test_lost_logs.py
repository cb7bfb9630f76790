"""A recreated topic and a truncated log, met while reading: an error by default, skipped and noted when accepted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from keyedwm.core.errors import DataLossError
from keyedwm.kafka.client.errors import LogTruncatedError, TopicRecreatedError
from keyedwm.kafka.client.values import Isolation, TopicPartition
from keyedwm.kafka.records.read import ColumnSelection, no_records
from keyedwm.kafka.requests.fetch import Fetched, OffsetRange
from pyspark_wm_source.task import fetching

FIRST, SECOND = TopicPartition("lost", 0), TopicPartition("kept", 0)


class Reading:
    """Stands for `read_ranges`: fails once, then reads every range in one step; notes what it was asked for."""

    def __init__(self, error: DataLossError) -> None:
        self.errors = [error]
        self.ranges_read: list[list[OffsetRange]] = []

    def __call__(
        self, _cluster: Any, ranges: Sequence[OffsetRange], columns: ColumnSelection, _isolation: Any
    ) -> Iterator[Fetched]:
        self.ranges_read.append(list(ranges))
        if self.errors:
            raise self.errors.pop()
        for index, part in enumerate(ranges):
            where = TopicPartition(part.topic, part.partition)
            yield Fetched(index, where, no_records(columns, part.end), part.end, done=True)


def read(error: DataLossError, monkeypatch: pytest.MonkeyPatch, *, fail_on_data_loss: bool) -> Reading:
    reading = Reading(error)
    monkeypatch.setattr(fetching, "read_ranges", reading)
    ranges = [SimpleNamespace(channel=tp, start=5, end=9, topic_id=None) for tp in (FIRST, SECOND)]
    on_loss = fetching.by_option(SimpleNamespace(fail_on_data_loss=fail_on_data_loss))  # type: ignore[arg-type]
    chunks = list(fetching.fetch(None, ranges, ColumnSelection(), Isolation.READ_UNCOMMITTED, on_loss))  # type: ignore[arg-type]
    assert sorted(chunk.range_index for chunk in chunks if chunk.done) == [0, 1]
    return reading


RECREATED = TopicRecreatedError.of("lost", "one", "two")
TRUNCATED = LogTruncatedError.of(FIRST, 7, 3, 6)


@pytest.mark.parametrize("error", [RECREATED, TRUNCATED])
def test_a_lost_log_fails_the_task(error: DataLossError, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(type(error)):
        read(error, monkeypatch, fail_on_data_loss=True)


def test_the_rest_of_a_range_of_a_deleted_topic_is_skipped_and_noted(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    reading = read(RECREATED, monkeypatch, fail_on_data_loss=False)
    assert [(part.topic, part.start, part.end) for part in reading.ranges_read[1]] == [("lost", 9, 9), ("kept", 5, 9)]
    assert "'lost' was deleted and recreated" in caplog.text


def test_after_an_accepted_truncation_the_log_is_read_as_it_is_now(monkeypatch: pytest.MonkeyPatch) -> None:
    reading = read(TRUNCATED, monkeypatch, fail_on_data_loss=False)
    assert [(part.topic, part.start, part.end) for part in reading.ranges_read[1]] == [("lost", 5, 9), ("kept", 5, 9)]
