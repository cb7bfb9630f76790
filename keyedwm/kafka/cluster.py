"""One cluster as the other rooms see it: topics, partitions, leaders, offsets and committed positions.

Rule: one request per broker, never one per partition; retriable answers are retried within a bounded time, and every
other one is worded for the user.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from kafka.protocol.metadata import MetadataRequest

from keyedwm.core.errors import InputError, UnavailableError
from keyedwm.kafka import groups, offsets
from keyedwm.kafka.config import ClientConfig
from keyedwm.kafka.connection import Connection, Retry, TransientError
from keyedwm.kafka.errors import AccessError, Code, UnknownTopicError, described
from keyedwm.kafka.values import Committed, Isolation, TopicPartition

_NO_LEADER = -1
_UNKNOWN_TOPIC_GRACE_S = 0.5


@dataclass(frozen=True, slots=True)
class _Topic:
    leaders: Mapping[int, int]  # partition -> node id, _NO_LEADER while there is none


class Cluster:
    """A connected cluster; made by `connect` or `shared`, thread-safe."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.config = connection.config
        self._topics: dict[str, _Topic] = {}
        self._coordinators: dict[tuple[int, str], int] = {}

    @classmethod
    def connect(cls, config: ClientConfig, timeout_ms: int = 30_000) -> Cluster:
        """Connect; raises UnavailableError naming the addresses if no broker answers within `timeout_ms`.

        A shorter `kafka.default.api.timeout.ms` counts here too.
        """
        return cls(Connection(config, min(timeout_ms, config.api_timeout_ms)))

    @property
    def usable(self) -> bool:
        """Whether requests can be sent: not closed, and not inherited from a parent process."""
        return self.connection.usable

    def close(self) -> None:
        """Close all connections; twice is fine."""
        self.connection.close()

    def topics(self) -> tuple[str, ...]:
        """All topic names that we may see, internal ones included, sorted."""
        return tuple(sorted(self._refresh(None)))

    def partitions(self, topics: Iterable[str], *, missing_ok: bool = False) -> dict[str, tuple[int, ...]]:
        """Partition numbers by topic, fresh from the cluster.

        A topic that does not exist raises UnknownTopicError, or is left out if `missing_ok`.
        """
        wanted = sorted(set(topics))
        found = self._refresh(wanted)
        grace_over_at = time.monotonic() + _UNKNOWN_TOPIC_GRACE_S
        # A topic made a moment ago is not yet known to every broker.
        while len(found) < len(wanted) and not missing_ok:
            if time.monotonic() > grace_over_at:
                raise UnknownTopicError.of(next(topic for topic in wanted if topic not in found))
            time.sleep(0.1)
            found = self._refresh(wanted)
        return {topic: tuple(sorted(found[topic].leaders)) for topic in wanted if topic in found}

    def leaders(self, partitions: Iterable[TopicPartition], retry: Retry) -> dict[int, list[TopicPartition]]:
        """The partitions by leading broker, from what is known; asks the cluster about those without one."""
        partitions = list(partitions)
        while True:
            found: dict[int, list[TopicPartition]] = {}
            lacking: list[TopicPartition] = []
            for where in partitions:
                topic = self._topics.get(where.topic)
                leader = topic.leaders.get(where.partition, _NO_LEADER) if topic else _NO_LEADER
                if leader == _NO_LEADER:
                    lacking.append(where)
                else:
                    found.setdefault(leader, []).append(where)
            if not lacking:
                return found
            if all(self._known(where) for where in lacking):
                retry.pause(f"{lacking[0]} has no leader")
            present = self.partitions({where.topic for where in lacking})
            for where in lacking:
                if where.partition not in present[where.topic]:
                    raise UnknownTopicError(
                        f"This server does not host this topic-partition: "
                        f"topic {where.topic!r} has no partition {where.partition}"
                    )

    def forget_leaders(self, topics: Iterable[str]) -> None:
        """Drop what is known about topics whose leaders turned out to be elsewhere."""
        for topic in topics:
            self._topics.pop(topic, None)

    def earliest(self, partitions: Iterable[tuple[str, int]]) -> dict[TopicPartition, int]:
        """The first offset the log holds, by partition."""
        return offsets.earliest(self, partitions)

    def latest(
        self, partitions: Iterable[tuple[str, int]], isolation: Isolation | None = None
    ) -> dict[TopicPartition, int]:
        """The offset after the last readable record: the log end, or with read_committed the last stable offset."""
        return offsets.latest(self, partitions, isolation or self.config.isolation)

    def by_timestamp(self, timestamps_ms: Mapping[tuple[str, int], int]) -> dict[TopicPartition, int | None]:
        """The first offset whose timestamp is at or after the given one; None where there is none."""
        return offsets.by_timestamp(self, timestamps_ms, self.config.isolation)

    def commit_offsets(
        self, group: str, positions: Mapping[tuple[str, int], tuple[int, str]]
    ) -> dict[TopicPartition, Code]:
        """Commit (next offset, metadata) by partition, as no member of the group; gives each partition's answer."""
        return groups.commit(self, group, positions)

    def fetch_offsets(self, group: str, partitions: Iterable[tuple[str, int]]) -> dict[TopicPartition, Committed]:
        """Committed positions of a group; partitions without one are left out.

        Raises GroupAccessError if we may not ask.
        """
        return groups.fetch(self, group, partitions)

    def coordinator(self, key: str, kind: int, retry: Retry) -> int:
        """The node that coordinates a group (kind 0) or a transactional id (kind 1)."""
        node = self._coordinators.get((kind, key))
        if node is None:
            node = groups.find_coordinator(self, key, kind, retry)
            self._coordinators[kind, key] = node
        return node

    def forget_coordinator(self, key: str, kind: int) -> None:
        """Look the coordinator up anew next time."""
        self._coordinators.pop((kind, key), None)

    def _known(self, where: TopicPartition) -> bool:
        return where.topic in self._topics and where.partition in self._topics[where.topic].leaders

    def _refresh(self, topics: list[str] | None) -> dict[str, _Topic]:
        """Ask about topics (None: all) and keep the answer; those that do not exist are not in it."""
        answer = self._metadata(topics)
        found = {
            topic.name: _Topic({part.partition_index: part.leader_id for part in topic.partitions})
            for topic in answer.topics
            if topic.error_code == Code.NONE
        }
        for topic in answer.topics:
            if topics is not None and topic.error_code != Code.NONE:
                _raise_unless_missing(topic.name, topic.error_code)
                self._topics.pop(topic.name, None)
        self._topics.update(found)
        return found

    def _metadata(self, topics: list[str] | None) -> Any:
        """The cluster's answer about topics (None: all), once none of them is without a leader."""
        asked = None if topics is None else [MetadataRequest.MetadataRequestTopic(name=topic) for topic in topics]
        task = "reading the list of topics" if topics is None else f"reading the partitions of {', '.join(topics)}"
        retry = Retry(self.config, task)
        while True:
            try:
                # Reading must not create topics, whatever the broker's auto.create.topics.enable says.
                request = MetadataRequest(topics=asked, allow_auto_topic_creation=False, max_version=12)
                answer = self.connection.call(None, request)
            except TransientError as error:
                retry.pause(error)
                continue
            unready = [topic.name for topic in answer.topics if topic.error_code == Code.LEADER_NOT_AVAILABLE]
            if not unready:
                return answer
            retry.pause(f"topic {unready[0]} has no leader yet")


def _raise_unless_missing(topic: str, code: int) -> None:
    kind = Code.of(code)
    if kind is Code.UNKNOWN_TOPIC_OR_PARTITION:
        return
    if kind.denied:
        raise AccessError(f"not allowed to describe topic {topic!r}: {described(code)}")
    if kind is Code.INVALID_TOPIC:
        raise InputError(f"{topic!r} is not a legal topic name; letters, digits, '.', '_' and '-' are (249 at most)")
    raise UnavailableError(f"the partitions of topic {topic!r} cannot be read: {described(code)}")


_shared: dict[tuple[int, str], Cluster] = {}
_shared_lock = threading.Lock()


def _after_fork() -> None:
    """In a child the lock may be held by a thread that exists only in the parent."""
    global _shared_lock  # noqa: PLW0603 (one lock a process)
    _shared_lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)


def shared(config: ClientConfig) -> Cluster:
    """The one cluster of this process for a configuration; kept between tasks, made anew after a fork or a crash."""
    key = (os.getpid(), config.digest())
    with _shared_lock:
        cluster = _shared.get(key)
        if cluster is None or not cluster.usable:
            # Entries of a parent process stay: they belong to it.
            cluster = _shared[key] = Cluster.connect(config)
        return cluster


def close_shared() -> None:
    """Close what `shared` keeps in this process; whoever asks again gets a new cluster."""
    with _shared_lock:
        ours = [key for key in _shared if key[0] == os.getpid()]
        for key in ours:
            _shared.pop(key).close()
