"""A start by timestamp while the topic grows: each record at or after the timestamp is read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import pytest

from keyedwm.kafka.client.values import Isolation, TopicPartition
from pyspark_wm_source.driver.resolve_offsets import resolve
from pyspark_wm_source.options.start_offsets import LATEST, NoMatch, OffsetBound
from tests.source.scripted import Log, ScriptedCluster

A = TopicPartition("t", 0)


@dataclass
class GrowingCluster(ScriptedCluster):
    """A log of records with timestamps; `later` are appended after the answer of the number that is their key."""

    times_ms: list[int] = field(default_factory=list)
    later: dict[int, int] = field(default_factory=dict)
    answers: int = 0

    def latest(
        self, places: Iterable[tuple[str, int]], isolation: Isolation | None = None
    ) -> dict[TopicPartition, int]:
        ends = super().latest(places, isolation)
        self._grow()
        return ends

    def by_timestamp(self, timestamps_ms: Mapping[tuple[str, int], int]) -> dict[TopicPartition, int | None]:
        offsets = {
            TopicPartition(*tp): next((at for at, ms in enumerate(self.times_ms) if ms >= least_ms), None)
            for tp, least_ms in timestamps_ms.items()
        }
        self._grow()
        return offsets

    def _grow(self) -> None:
        self.answers += 1
        if self.answers in self.later:
            self.times_ms.append(self.later[self.answers])
            self.logs[A] = Log.of(len(self.times_ms))


@pytest.mark.parametrize("side", ["starting", "ending"])
@pytest.mark.parametrize("answer", [1, 2])
def test_a_matching_record_between_two_questions_is_read(side, answer):
    cluster = GrowingCluster({A: Log.of(3)}, times_ms=[1_000, 2_000, 3_000], later={answer: 6_000})
    bound = OffsetBound(side=side, timestamp_ms=5_000, no_match=NoMatch.LATEST)
    assert resolve(cluster, bound, [A], LATEST) == {A: 3}  # type: ignore[arg-type]
