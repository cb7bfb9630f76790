"""Topics, partitions and leaders of one cluster, as its metadata has them, and the largest record batch of a topic.

Rule: a read never creates a topic. A cached leader is a hint: a caller that finds another leader calls
`forget_leaders`. A topic's limit is a hint, too: a client that may not read it, or reads it too early, sees the
broker's error.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar
from uuid import UUID

from kafka.protocol.admin import DescribeConfigsRequest
from kafka.protocol.metadata import MetadataRequest

from keyedwm.core.errors import InputError
from keyedwm.kafka.client.connection import Connection, Retry, TransientError
from keyedwm.kafka.client.errors import AccessError, Code, UnknownTopicError, UnsupportedRequestError, described
from keyedwm.kafka.client.values import TopicPartition, number_of
from keyedwm.kafka.requests.reactions import Api, reaction
from keyedwm.kafka.requests.versions import VERSIONS

_NO_LEADER = -1
_NO_ID = UUID(int=0)
_NO_EPOCH = -1
_UNKNOWN_TOPIC_ANSWERS = 4
_A = TypeVar("_A")
_SOUND_EPOCHS_SINCE = 9  # the version of Metadata


@dataclass(frozen=True, slots=True)
class Leader:
    """The broker that leads a partition, and its leader epoch (-1: unknown)."""

    node: int
    epoch: int


_leader = functools.lru_cache(maxsize=1_000)(Leader)  # a broker leads many partitions in the same epoch


@dataclass(frozen=True, slots=True)
class _Topic:
    topic_id: UUID | None  # None: the broker is older than topic ids (Kafka 3.1)
    leaders: Mapping[int, Leader]  # the node is _NO_LEADER without a leader


class Metadata:
    """The metadata of a connected cluster; thread-safe."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._topics: dict[str, _Topic] = {}
        self._counts: dict[UUID, int] = {}  # of the partitions, by topic id
        self._cluster_id: str | None = None

    def topics(self) -> tuple[str, ...]:
        """All topic names that this client may describe, internal ones included, sorted.

        A topic that has no leader at the moment is included. A broker that has just started may list no topic: the list
        counts as empty only if it stays empty for the time that an unknown topic gets.
        """
        answer = self._until_known(lambda: self._ask(None), lambda answer: not answer.topics)
        self._keep(answer, answer.topics)
        there = {topic.name for topic in answer.topics if topic.error_code == Code.NONE or _repeats(topic)}
        return tuple(sorted(there))

    def partitions(self, topics: Iterable[str], *, missing_ok: bool = False) -> dict[str, tuple[int, ...]]:
        """Partition numbers by topic, fresh from the cluster.

        A topic that does not exist raises UnknownTopicError, or is absent if `missing_ok`.
        """
        by_name = self._described(topics, missing_ok=missing_ok)
        return {name: tuple(sorted(topic.leaders)) for name, topic in by_name.items()}

    def topic_ids(self, topics: Iterable[str], *, missing_ok: bool = False) -> dict[str, UUID]:
        """Topic ids by name, fresh from the cluster: a topic that was deleted and recreated has another id.

        A topic of a broker older than topic ids (Kafka 3.1) is absent; `missing_ok` as for `partitions`.
        """
        by_name = self._described(topics, missing_ok=missing_ok)
        return {name: topic.topic_id for name, topic in by_name.items() if topic.topic_id is not None}

    def topic_id(self, topic: str) -> UUID | None:
        """The id of a topic in the last answer; None if unknown."""
        known = self._topics.get(topic)
        return None if known is None else known.topic_id

    def leader_epoch(self, tp: TopicPartition) -> int:
        """The leader epoch of a partition in the last answer; -1 if unknown."""
        known = self._topics.get(tp.topic)
        leader = None if known is None else known.leaders.get(tp.partition)
        return _NO_EPOCH if leader is None else leader.epoch

    def leaders(self, partitions: Iterable[TopicPartition], retry: Retry) -> dict[int, list[TopicPartition]]:
        """Return the partitions by leading broker, from the cache or, without a leader there, from the cluster."""
        partitions = list(partitions)
        while True:
            by_node: dict[int, list[TopicPartition]] = {}
            leaderless: list[TopicPartition] = []
            for tp in partitions:
                topic = self._topics.get(tp.topic)
                leader = topic.leaders.get(tp.partition) if topic else None
                if leader is None or leader.node == _NO_LEADER:
                    leaderless.append(tp)
                else:
                    by_node.setdefault(leader.node, []).append(tp)
            if not leaderless:
                return by_node
            if all(self._known(tp) for tp in leaderless):
                retry.pause(f"{leaderless[0]} has no leader")
            present = self.partitions({tp.topic for tp in leaderless})
            for tp in leaderless:
                if tp.partition not in present[tp.topic]:
                    raise UnknownTopicError(
                        f"This server does not host this topic-partition: "
                        f"topic {tp.topic!r} has no partition {tp.partition}"
                    )

    def forget_leaders(self, topics: Iterable[str]) -> None:
        """Drop the cached leaders of topics whose leaders have moved."""
        for topic in topics:
            self._topics.pop(topic, None)

    def _known(self, tp: TopicPartition) -> bool:
        return tp.topic in self._topics and tp.partition in self._topics[tp.topic].leaders

    def _described(self, topics: Iterable[str], *, missing_ok: bool) -> dict[str, _Topic]:
        names = sorted(set(topics))
        by_name = self._until_known(
            lambda: self._refresh(names), lambda known: len(known) < len(names) and not missing_ok
        )
        if len(by_name) < len(names) and not missing_ok:
            raise UnknownTopicError.of(next(topic for topic in names if topic not in by_name))
        return {topic: by_name[topic] for topic in names if topic in by_name}

    def _until_known(self, ask: Callable[[], _A], lacks: Callable[[_A], bool]) -> _A:
        """Ask again while an answer lacks topics, for the time until all brokers know a new topic.

        A throttled answer alone may take longer than this time.
        """
        answer = ask()
        deadline_s, answers = time.monotonic() + self.connection.config.limits.unknown_topic_grace_s, 1
        while lacks(answer) and (time.monotonic() <= deadline_s or answers < _UNKNOWN_TOPIC_ANSWERS):
            time.sleep(0.1)
            answer, answers = ask(), answers + 1
        return answer

    def _refresh(self, topics: list[str]) -> dict[str, _Topic]:
        """Ask about topics and cache the answer; topics that do not exist are absent."""
        answer = self._ask(topics)
        answers = [topic for topic in answer.topics if topic.name in topics]
        for topic in answers:
            if topic.error_code != Code.NONE:
                _raise_unless_missing(topic.name, topic.error_code)
                self._topics.pop(topic.name, None)
        return self._keep(answer, answers)

    def _keep(self, answer: Any, topics: Iterable[Any]) -> dict[str, _Topic]:
        sound = [topic for topic in topics if topic.error_code == Code.NONE]
        by_name = {topic.name: _topic(topic, answer.API_VERSION) for topic in sound}
        self._counts.update({one.topic_id: len(one.leaders) for one in by_name.values() if one.topic_id is not None})
        self._topics.update(by_name)
        return by_name

    def _ask(self, topics: list[str] | None) -> Any:
        """Return the cluster's answer about topics (None: all), when it is complete for each of them."""
        requested = None if topics is None else [MetadataRequest.MetadataRequestTopic(name=topic) for topic in topics]
        task = "reading the list of topics" if topics is None else f"reading the partitions of {', '.join(topics)}"
        retry = Retry(self.connection.config, task)
        while True:
            try:
                # Reading must not create topics, whatever the broker's auto.create.topics.enable says.
                request = MetadataRequest(
                    topics=requested, allow_auto_topic_creation=False, **VERSIONS[Api.METADATA].limits
                )
                answer = self.connection.call(None, request)
            except TransientError as error:
                retry.pause(error)
                continue
            self._check_cluster(answer.cluster_id)
            lack = self._lack(answer, topics or ())
            if lack is None:
                return answer
            retry.pause(lack)

    def _lack(self, answer: Any, topics: Sequence[str]) -> str | None:
        """Return why an answer is incomplete about the requested topics; None if it is complete."""
        by_name = {topic.name: topic for topic in answer.topics}
        for name in topics:
            topic = by_name.get(name)
            if topic is None:
                return f"the answer leaves topic {name} out"
            if _repeats(topic):
                return f"topic {name}: {described(topic.error_code)}"
            numbers = {part.partition_index for part in topic.partitions}
            topic_id = _id_of(topic)
            least = 1 if topic_id is None else self._counts.get(topic_id, 1)  # a topic never loses partitions
            if topic.error_code == Code.NONE and (gaps := set(range(max(len(numbers), least))) - numbers):
                return f"the answer leaves partition {min(gaps)} of topic {name} out"
        return None

    def _check_cluster(self, cluster_id: str | None) -> None:
        """Raise InputError if another cluster answers than before, with other offsets and topics."""
        if cluster_id is None:
            return
        if self._cluster_id not in {None, cluster_id}:
            raise InputError(
                f"the brokers at {self.connection.config.addresses} belong to cluster {cluster_id!r} now, "
                f"it was cluster {self._cluster_id!r}: check kafka.bootstrap.servers and name resolution"
            )
        self._cluster_id = cluster_id


def _topic(entry: Any, version: int) -> _Topic:
    # A broker before Kafka 2.4 may answer an old leader epoch (KAFKA-9212), a broker before 2.1 none.
    has_epochs = version >= _SOUND_EPOCHS_SINCE
    leaders = {
        part.partition_index: _leader(part.leader_id, part.leader_epoch if has_epochs else _NO_EPOCH)
        for part in entry.partitions
    }
    return _Topic(_id_of(entry), leaders)


def _id_of(entry: Any) -> UUID | None:
    return None if entry.topic_id in {None, _NO_ID} else entry.topic_id


def _repeats(topic: Any) -> bool:
    return reaction(Api.METADATA, topic.error_code).repeats


def _raise_unless_missing(topic: str, code: int) -> None:
    kind = Code.of(code)
    if kind is Code.UNKNOWN_TOPIC_OR_PARTITION:
        return
    if kind.denied:
        raise AccessError(f"not allowed to describe topic {topic!r}: {described(code)}")
    if kind is Code.INVALID_TOPIC:
        raise InputError(f"{topic!r} is not a legal topic name; letters, digits, '.', '_' and '-' are (249 at most)")
    raise InputError(f"the partitions of topic {topic!r} cannot be read: {described(code)}")


_TOPIC_RESOURCE, _LIMIT = 2, "max.message.bytes"


def largest_batch_bytes(connection: Connection, topic: str) -> int | None:
    """Return the largest record batch, compressed, that a topic accepts; None if that cannot be read."""
    resource = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=_TOPIC_RESOURCE, resource_name=topic, configuration_keys=[_LIMIT]
    )
    limits = VERSIONS[Api.DESCRIBE_CONFIGS].limits
    request = DescribeConfigsRequest(resources=[resource], include_synonyms=False, **limits)
    try:
        answer = connection.call(None, request)
    except (TransientError, UnsupportedRequestError):
        return None
    sound = [result for result in answer.results if Code.of(result.error_code) is Code.NONE]
    values = [number_of(config.value) for result in sound for config in result.configs if config.name == _LIMIT]
    return next((value for value in values if value), None)
