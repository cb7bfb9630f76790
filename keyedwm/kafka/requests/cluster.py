"""One cluster as the other packages see it: topics, partitions, leaders, offsets and committed positions.

Rule: one request per broker, never one per partition; retriable answers are retried within a bounded time; every other
error has a message for the user.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterable, Mapping
from uuid import UUID

from keyedwm.kafka.client.config import ClientConfig
from keyedwm.kafka.client.connection import Connection, Retry
from keyedwm.kafka.client.errors import Code, UnsupportedRequestError
from keyedwm.kafka.client.values import Committed, Isolation, LogEnd, TopicPartition
from keyedwm.kafka.requests import groups, leader_epochs, metadata, offsets, versions
from keyedwm.kafka.requests.coordinators import Coordinators
from keyedwm.kafka.requests.metadata import Metadata
from keyedwm.kafka.requests.versions import Use

_log = logging.getLogger("keyedwm.kafka")
_warned: set[tuple[str, tuple[str, ...]]] = set()  # addresses and losses that this process has warned of


class Cluster:
    """A connected cluster; made by `connect` or `shared`, thread-safe."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.config = connection.config
        self.metadata = Metadata(connection)
        self.coordinators = Coordinators(connection)
        self._largest_batches: dict[str, int | None] = {}

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

    def warn_of_losses(self, use: Use) -> None:
        """Warn once in a process of what is lost in a use with these brokers' versions of requests."""
        texts = tuple(
            f"{loss.check}: {loss.consequence}" for loss in versions.losses(use, self.connection.api_versions)
        )
        if texts and (self.config.addresses, texts) not in _warned:
            _warned.add((self.config.addresses, texts))
            _log.warning(
                "the brokers at %s offer older requests than %s uses (docs/reference/versions.md): %s",
                self.config.addresses, use.value, "; ".join(texts),
            )  # fmt: skip

    def require(self, use: Use) -> None:
        """Raise UnsupportedRequestError if these brokers do not offer a request that a use needs."""
        if absent := versions.absent_sentence(use, self.connection.api_versions):
            raise UnsupportedRequestError(f"{self.config.addresses} (kafka.bootstrap.servers): {absent}")

    def topics(self) -> tuple[str, ...]:
        """All topic names that this client may describe, internal ones included, sorted."""
        return self.metadata.topics()

    def partitions(self, topics: Iterable[str], *, missing_ok: bool = False) -> dict[str, tuple[int, ...]]:
        """Partition numbers by topic, fresh from the cluster.

        A topic that does not exist raises UnknownTopicError, or is absent if `missing_ok`.
        """
        return self.metadata.partitions(topics, missing_ok=missing_ok)

    def topic_ids(self, topics: Iterable[str], *, missing_ok: bool = False) -> dict[str, UUID]:
        """Topic ids by name, fresh from the cluster: a topic that was deleted and recreated has another id.

        A topic of a broker older than topic ids (Kafka 3.1) is absent; `missing_ok` as for `partitions`.
        """
        return self.metadata.topic_ids(topics, missing_ok=missing_ok)

    def leaders(self, partitions: Iterable[TopicPartition], retry: Retry) -> dict[int, list[TopicPartition]]:
        """Return the partitions by leading broker, from the cache or, without a leader there, from the cluster."""
        return self.metadata.leaders(partitions, retry)

    def forget_leaders(self, topics: Iterable[str]) -> None:
        """Drop the cached leaders of topics whose leaders have moved."""
        self.metadata.forget_leaders(topics)

    def earliest(self, partitions: Iterable[tuple[str, int]]) -> dict[TopicPartition, int]:
        """The first offset the log holds, by partition."""
        return offsets.earliest(self.metadata, partitions)

    def latest(
        self, partitions: Iterable[tuple[str, int]], isolation: Isolation | None = None
    ) -> dict[TopicPartition, int]:
        """The offset after the last readable record: the log end, or with read_committed the last stable offset."""
        return offsets.latest(self.metadata, partitions, isolation or self.config.isolation)

    def log_ends(
        self, partitions: Iterable[tuple[str, int]], isolation: Isolation | None = None
    ) -> dict[TopicPartition, LogEnd]:
        """As `latest`, with the leader epoch of the answer."""
        return offsets.log_ends(self.metadata, partitions, isolation or self.config.isolation)

    def newest_times(self, partitions: Iterable[tuple[str, int]]) -> dict[TopicPartition, int | None]:
        """The highest timestamp (ms) of the records in the log, by partition; None without a record.

        Raises OptionError for a broker older than Kafka 3.0.
        """
        return offsets.newest_times(self.metadata, partitions)

    def epoch_ends(self, epochs: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        """The end of the records of leader epochs up to the given one in the present log; None if unknown."""
        return leader_epochs.epoch_ends(self.metadata, epochs)

    def lost_records(self, reads: Mapping[TopicPartition, tuple[int, int]]) -> set[TopicPartition]:
        """The partitions whose logs do not hold the record before a position as it was read.

        reads: the position, and the highest leader epoch before it, when it was read.
        """
        return leader_epochs.lost_records(self.metadata, reads)

    def by_timestamp(self, timestamps_ms: Mapping[tuple[str, int], int]) -> dict[TopicPartition, int | None]:
        """The first offset whose timestamp is at or after the given one; None if there is none."""
        return offsets.by_timestamp(self.metadata, timestamps_ms, self.config.isolation)

    def largest_batch_bytes(self, topic: str) -> int | None:
        """The largest record batch that a topic accepts, requested once; None if this client may not read it."""
        if topic not in self._largest_batches:
            self._largest_batches[topic] = metadata.largest_batch_bytes(self.connection, topic)
        return self._largest_batches[topic]

    def commit_offsets(
        self, group: str, positions: Mapping[tuple[str, int], tuple[int, str]], *, timeout_ms: int | None = None
    ) -> dict[TopicPartition, Code]:
        """Commit (next offset, metadata) by partition, as no member of the group; return each partition's answer.

        timeout_ms: None for the configured one.
        """
        return groups.commit(self.connection, self.coordinators, group, positions, timeout_ms)

    def fetch_offsets(
        self, group: str, partitions: Iterable[tuple[str, int]] | None, *, timeout_ms: int | None = None
    ) -> dict[TopicPartition, Committed]:
        """Return the committed positions of a group; partitions without one are absent. partitions: None for all.

        timeout_ms: None for the configured one.

        Raises GroupAccessError if we may not ask.
        """
        return groups.fetch(self.connection, self.coordinators, group, partitions, timeout_ms)

    def coordinator(self, key: str, kind: int, retry: Retry) -> int:
        """The node that coordinates a group (kind GROUP) or a transactional id (kind TRANSACTION)."""
        return self.coordinators.find(key, kind, retry)

    def forget_coordinator(self, key: str, kind: int) -> None:
        """Ask for the coordinator again next time."""
        self.coordinators.forget(key, kind)


class _Slot:
    """One configuration's cluster of this process. Callers hold its lock while it connects."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.cluster: Cluster | None = None


_shared: dict[tuple[int, str], _Slot] = {}
_shared_lock = threading.Lock()  # held only for access to the dictionary, never during a wait


def _after_fork() -> None:
    """Replace the lock in a forked child: a thread of the parent may have acquired it."""
    global _shared_lock  # noqa: PLW0603 (one lock a process)
    _shared_lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)


def shared(config: ClientConfig) -> Cluster:
    """The one cluster of this process for a configuration; kept between tasks, replaced after a fork or a crash."""
    key = (os.getpid(), config.digest())
    with _shared_lock:
        # Entries of a parent process stay, since they belong to the parent.
        slot = _shared.setdefault(key, _Slot())
    with slot.lock:
        if slot.cluster is None or not slot.cluster.usable:
            slot.cluster = Cluster.connect(config)
        return slot.cluster


def close_shared() -> None:
    """Close the clusters of `shared` in this process; the next `shared` connects again."""
    with _shared_lock:
        slots = [_shared.pop(key) for key in list(_shared) if key[0] == os.getpid()]
    for slot in slots:
        with slot.lock:
            if slot.cluster is not None:
                slot.cluster.close()
