"""The channels that exist: a partition counts as gone, or a topic as recreated, only if the brokers repeat it.

Rule: an answer that differs from the known channels is asked for again, with pauses, before it counts.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from keyedwm.kafka.client.values import TopicPartition
from keyedwm.kafka.requests.cluster import Cluster
from pyspark_wm_source.driver.resolve_offsets import assigned
from pyspark_wm_source.driver.stale_answers import confirmed
from pyspark_wm_source.options.start_offsets import Topics

_AGE_S = 1.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Assignment:
    """The channels to read, and the id of each topic if the cluster has ids."""

    channels: tuple[TopicPartition, ...]
    topic_ids: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, cluster: Cluster, channels: Iterable[TopicPartition]) -> Assignment:
        """Return the assignment of these channels, with the ids that the cluster's metadata has of their topics."""
        present = tuple(channels)
        ids = {topic: cluster.metadata.topic_id(topic) for topic in {tp.topic for tp in present}}
        return cls(channels=present, topic_ids={topic: str(one) for topic, one in ids.items() if one})

    def missing_of(self, known: Collection[TopicPartition]) -> list[TopicPartition]:
        """Return the known channels that are not there any more, in order."""
        return sorted(set(known) - set(self.channels))

    def recreated(self, known_ids: Mapping[str, str]) -> list[str]:
        """Return the topics whose id differs from the known id, in order."""
        return sorted(topic for topic, now in self.topic_ids.items() if known_ids.get(topic, now) != now)


class Assigner:
    """Asks for the assignment; keeps the last answer for a second."""

    def __init__(self, topics: Topics) -> None:
        self._topics = topics
        self._last: tuple[float, Assignment] | None = None

    def forget(self) -> None:
        """Ask again next time."""
        self._last = None

    def current(self, cluster: Cluster, known: Collection[TopicPartition], known_ids: Mapping[str, str]) -> Assignment:
        """Return the partitions of the cluster; ask several times if the answer contradicts `known`."""
        now_s = time.monotonic()
        if self._last is not None and now_s - self._last[0] <= _AGE_S:
            return self._last[1]
        assignment = confirmed(
            self._ask(cluster),
            lambda answer: answer.missing_of(known) or answer.recreated(known_ids),
            lambda _: self._ask(cluster),
        )
        self._last = (time.monotonic(), assignment)
        return assignment

    def _ask(self, cluster: Cluster) -> Assignment:
        return Assignment.of(cluster, assigned(cluster, self._topics, running=True))
