"""The brokers of a simulated cluster: the effect of each request and its response.

Rule: a handler gets a decoded request and returns a response; the connection decides whether the response arrives. The
semantics are Kafka's: leaders and epochs, high watermark and last stable offset, idempotent producers, transactions
with time-outs and fencing, committed offsets of groups.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from typing import Any

from kafka.protocol.consumer import FetchResponse, ListOffsetsResponse, OffsetForLeaderEpochResponse
from kafka.protocol.metadata import MetadataResponse
from kafka.protocol.producer import ProduceResponse

from keyedwm.kafka.client.errors import Code
from keyedwm.testing.simulated_kafka.coordinators import ADDRESSES, Coordinators
from keyedwm.testing.simulated_kafka.log import HEADER, Clock, Header, Log


class Brokers(Coordinators):
    """The state of the cluster, and the handlers of requests: `_NAME` handles `NAMERequest`."""

    def __init__(self, clock: Clock, addresses: Mapping[int, tuple[str, int]] = ADDRESSES) -> None:
        super().__init__(clock, addresses)
        self.topic_ids: dict[str, uuid.UUID] = {}
        self.earlier_ids: dict[str, uuid.UUID] = {}
        self.muted_until_ms: dict[int, float] = {}
        self.silent_until_ms: dict[int, float] = {}
        self.empty_fetch: Callable[[], bool] = lambda: False
        self.stale: Callable[[], bool] = lambda: False

    def create(self, topic: str, partitions: int) -> None:
        """Create a topic with a new id."""
        self.topic_ids[topic] = uuid.uuid4()
        for partition in range(partitions):
            self.logs[topic, partition] = Log(leader=self.nodes[partition % len(self.nodes)])

    def recreate(self, topic: str, partitions: int) -> None:
        """Delete a topic with the offsets that groups have committed for it, and create it again."""
        self.earlier_ids[topic] = self.topic_ids[topic]
        for offsets in self.groups.values():
            for tp in [tp for tp in offsets if tp[0] == topic]:
                del offsets[tp]
        self.create(topic, partitions)

    def is_silent(self, node: int) -> bool:
        """Whether a broker answers no request now."""
        return self.silent_until_ms.get(node, 0) > self.clock.now_ms

    def any_node(self) -> int:
        """Return the broker for a request that any broker can answer: the first one that is not silent."""
        return next((node for node in self.nodes if not self.is_silent(node)), self.nodes[0])

    def replace(self, node: int) -> None:
        """Move the partitions and coordinators of a broker to the next broker."""
        following = self._after(node)
        for tp, log in self.logs.items():
            if log.leader == node:
                self.move_leader(tp, following)
        for key in [key for key, coordinator in self.coordinator_of.items() if coordinator == node]:
            self.coordinator_of[key] = following

    def move_leader(self, tp: tuple[str, int], node: int) -> None:
        """Let another broker lead a partition."""
        log = self.logs[tp]
        log.leader, log.epoch = node, log.epoch + 1

    def answer(self, node: int, request: Any) -> Any:
        """Handle a request at a broker."""
        name = type(request).__name__.split("_v")[0].removesuffix("Request")
        return getattr(self, f"_{name}")(node, request)

    # -- topics and offsets

    def _Metadata(self, _node: int, request: Any) -> Any:
        topic_type = MetadataResponse.MetadataResponseTopic
        names = sorted(self.topic_ids) if request.topics is None else [topic.name for topic in request.topics]
        stale = self.stale()
        ids = {**self.topic_ids, **self.earlier_ids} if stale else self.topic_ids
        omitted = names[:1] if stale and names and names[0] not in self.earlier_ids else []
        topics = []
        for name in names:
            known = name in self.topic_ids and name not in omitted
            parts = [
                topic_type.MetadataResponsePartition(
                    error_code=0, partition_index=partition, leader_id=log.leader, leader_epoch=log.epoch,
                    replica_nodes=list(self.nodes), isr_nodes=list(self.nodes), offline_replicas=[],
                )
                for (topic, partition), log in sorted(self.logs.items())
                if topic == name and known
            ]  # fmt: skip
            if not known and request.topics is None:
                continue
            topics.append(
                topic_type(
                    error_code=0 if known else int(Code.UNKNOWN_TOPIC_OR_PARTITION), name=name,
                    topic_id=ids[name] if known else uuid.UUID(int=0), is_internal=False, partitions=parts,
                )
            )  # fmt: skip
        brokers = [
            MetadataResponse.MetadataResponseBroker(node_id=node, host=host, port=port, rack=None)
            for node, (host, port) in self.addresses.items()
        ]
        return MetadataResponse(throttle_time_ms=0, brokers=brokers, cluster_id="world", controller_id=1, topics=topics)

    def _log(self, node: int, tp: tuple[str, int], epoch: int = -1) -> tuple[Code, Log | None]:
        log = self.logs.get(tp)
        if log is None:
            return Code.UNKNOWN_TOPIC_OR_PARTITION, None
        if log.leader != node:
            return Code.NOT_LEADER_OR_FOLLOWER, None
        if 0 <= epoch < log.epoch:
            return Code.FENCED_LEADER_EPOCH, None
        return (Code.UNKNOWN_LEADER_EPOCH, None) if epoch > log.epoch else (Code.NONE, log)

    def _ListOffsets(self, node: int, request: Any) -> Any:
        topic_type = ListOffsetsResponse.ListOffsetsTopicResponse
        topics = []
        for topic in request.topics:
            parts = []
            for part in topic.partitions:
                code, log = self._log(node, (topic.name, part.partition_index), part.current_leader_epoch)
                offset = -1
                if log is not None:
                    end = log.stable if request.isolation_level else log.end
                    offset = {-1: end, -2: log.start}[part.timestamp]
                parts.append(
                    topic_type.ListOffsetsPartitionResponse(
                        partition_index=part.partition_index, error_code=int(code), timestamp=-1, offset=offset,
                        leader_epoch=-1 if log is None else log.epoch,
                    )
                )  # fmt: skip
            topics.append(topic_type(name=topic.name, partitions=parts))
        return ListOffsetsResponse(throttle_time_ms=0, topics=topics)

    def _OffsetForLeaderEpoch(self, node: int, request: Any) -> Any:
        topic_type = OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult
        topics = []
        for topic in request.topics:
            parts = []
            for part in topic.partitions:
                code, log = self._log(node, (topic.topic, part.partition), part.current_leader_epoch)
                parts.append(
                    topic_type.EpochEndOffset(
                        error_code=int(code), partition=part.partition, leader_epoch=part.leader_epoch,
                        end_offset=-1 if log is None else log.epoch_end(part.leader_epoch),
                    )
                )  # fmt: skip
            topics.append(topic_type(topic=topic.topic, partitions=parts))
        return OffsetForLeaderEpochResponse(throttle_time_ms=0, topics=topics)

    def _Fetch(self, node: int, request: Any) -> Any:
        topic_type = FetchResponse.FetchableTopicResponse
        names = {topic_id: name for name, topic_id in self.topic_ids.items()}
        committed, empty = bool(request.isolation_level), self.empty_fetch()
        topics, left = [], request.max_bytes
        for topic in request.topics:
            name = topic.topic or names.get(topic.topic_id)
            parts = []
            for part in topic.partitions:
                code, log = (
                    (Code.UNKNOWN_TOPIC_ID, None)
                    if name is None
                    else self._log(node, (name, part.partition), part.current_leader_epoch)
                )
                records: bytes = b""
                aborted: list[tuple[int, int]] = []
                if log is not None and not log.start <= part.fetch_offset <= log.end:
                    code, log = Code.OFFSET_OUT_OF_RANGE, None
                # A remote read that takes too long returns no records; local records are always returned.
                if log is not None and left > 0 and not (empty and part.fetch_offset < log.local):
                    most = min(left, part.partition_max_bytes)
                    records, aborted = log.read(part.fetch_offset, committed=committed, most_bytes=most)
                    left -= len(records)
                pairs = [topic_type.PartitionData.AbortedTransaction(producer_id=p, first_offset=f) for p, f in aborted]
                parts.append(
                    topic_type.PartitionData(
                        partition_index=part.partition, error_code=int(code),
                        high_watermark=log.end if log else -1, last_stable_offset=log.stable if log else -1,
                        log_start_offset=log.start if log else -1, aborted_transactions=pairs,
                        preferred_read_replica=-1, records=records,
                    )
                )  # fmt: skip
            topics.append(topic_type(topic=name, topic_id=topic.topic_id, partitions=parts))
        return FetchResponse(throttle_time_ms=0, error_code=0, session_id=0, responses=topics)

    # -- writing

    def _Produce(self, node: int, request: Any) -> Any:
        topic_type = ProduceResponse.TopicProduceResponse
        topics = []
        for topic in request.topic_data:
            parts = []
            for part in topic.partition_data:
                tp = (topic.name, part.index)
                code, log = self._log(node, tp)
                base = -1
                if log is not None:
                    data = bytes(part.records)
                    code = self._writable(request.transactional_id, tp, Header(*HEADER.unpack_from(data)))
                    if code is Code.NONE:
                        word, base = log.produce(data, self.clock.now_ms)
                        code = Code[word]
                parts.append(
                    topic_type.PartitionProduceResponse(
                        index=part.index, error_code=int(code), base_offset=base, log_append_time_ms=-1,
                        log_start_offset=0, record_errors=[], error_message=None,
                    )
                )  # fmt: skip
            topics.append(topic_type(name=topic.name, partition_responses=parts))
        return ProduceResponse(responses=topics, throttle_time_ms=0)

    def _writable(self, name: str | None, tp: tuple[str, int], header: Header) -> Code:
        if name is None:
            return Code.NONE
        known = self.transactions.get(name)
        if known is None or known.producer_id != header.producer_id:
            return Code.INVALID_PRODUCER_ID_MAPPING
        if known.epoch != header.producer_epoch:
            return Code.INVALID_PRODUCER_EPOCH
        return Code.NONE if known.state == "Ongoing" and tp in known.partitions else Code.INVALID_TXN_STATE
