"""The coordinators: transactions with time-outs and fencing, committed offsets of groups."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kafka.protocol.admin import (
    DescribeConfigsResponse,
    DescribeTransactionsResponse,
    ListGroupsResponse,
    ListTransactionsResponse,
)
from kafka.protocol.consumer import OffsetCommitResponse, OffsetFetchResponse
from kafka.protocol.metadata import FindCoordinatorResponse
from kafka.protocol.producer import (
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnResponse,
    EndTxnResponse,
    InitProducerIdResponse,
    TxnOffsetCommitResponse,
)

from keyedwm.kafka.client.errors import Code
from keyedwm.testing.simulated_kafka.log import Clock, Log

NODES = (1, 2, 3)
ADDRESSES = {node: ("b", node) for node in NODES}
_LONGEST_MS = "900000"  # transaction.max.timeout.ms


@dataclass(slots=True)
class Transaction:
    """A coordinator's entry for a transactional id."""

    producer_id: int
    epoch: int
    timeout_ms: int
    state: str = "Empty"
    started_ms: float = 0
    partitions: set[tuple[str, int]] = field(default_factory=set)
    offsets: dict[str, dict[tuple[str, int], tuple[int, str]]] = field(default_factory=dict)  # by group


class Coordinators:
    """The state of all coordinators, which a cluster has in internal topics: it survives the end of a coordinator.

    addresses: broker id -> host and port.
    """

    def __init__(self, clock: Clock, addresses: Mapping[int, tuple[str, int]] = ADDRESSES) -> None:
        self.clock = clock
        self.addresses = dict(addresses)
        self.nodes = tuple(sorted(self.addresses))
        self.logs: dict[tuple[str, int], Log] = {}
        self.transactions: dict[str, Transaction] = {}
        self._ongoing: dict[str, Transaction] = {}
        self.groups: dict[str, dict[tuple[str, int], tuple[int, str]]] = {}
        self.coordinator_of: dict[str, int] = {}
        self.producers = 1_000
        self.expired_at_ms: dict[str, float] = {}
        self.coordinator_moves: Callable[[], bool] = lambda: False
        clock.on_pass.append(self.expire)

    @property
    def has_open(self) -> bool:
        """Whether a transaction of a transactional id is open."""
        return bool(self._ongoing)

    def expire_oldest(self) -> None:
        """Let time pass until the first open transaction times out."""
        ends = [one.started_ms + one.timeout_ms for one in self._ongoing.values()]
        self.clock.pass_ms(max(min(ends) + 1 - self.clock.now_ms, 0))

    def expire(self) -> None:
        """Abort the transactions that have been open for longer than their time-out."""
        for name, transaction in list(self._ongoing.items()):
            if self.clock.now_ms > transaction.started_ms + transaction.timeout_ms:
                self._finish(name, transaction, commit=False)
                transaction.epoch += 1
                self.expired_at_ms[name] = self.clock.now_ms

    def _coordinator(self, key: str) -> int:
        return self.coordinator_of.setdefault(key, self.nodes[sum(key.encode()) % len(self.nodes)])

    def _after(self, node: int) -> int:
        """Return the next broker; after the last one, the first."""
        return self.nodes[(self.nodes.index(node) + 1) % len(self.nodes)]

    def _FindCoordinator(self, _node: int, request: Any) -> Any:
        key = (request.coordinator_keys or [request.key])[0]
        if self.coordinator_moves():
            self.coordinator_of[key] = self._after(self._coordinator(key))
        node = self._coordinator(key)
        host, port = self.addresses[node]
        coordinator = FindCoordinatorResponse.Coordinator(
            key=key, node_id=node, host=host, port=port, error_code=0, error_message=None
        )
        return FindCoordinatorResponse(throttle_time_ms=0, coordinators=[coordinator])

    def _transaction(self, node: int, name: str, producer_id: int, epoch: int) -> tuple[Code, Transaction | None]:
        if self._coordinator(name) != node:
            return Code.NOT_COORDINATOR, None
        known = self.transactions.get(name)
        if known is None or known.producer_id != producer_id:
            return Code.INVALID_PRODUCER_ID_MAPPING, None
        return (Code.NONE, known) if known.epoch == epoch else (Code.PRODUCER_FENCED, None)

    def _InitProducerId(self, node: int, request: Any) -> Any:
        name = request.transactional_id
        if name is not None and self._coordinator(name) != node:
            return InitProducerIdResponse(
                throttle_time_ms=0, error_code=int(Code.NOT_COORDINATOR), producer_id=-1, producer_epoch=-1
            )
        known = self.transactions.get(name) if name is not None else None
        if known is None:
            self.producers += 1
            known = Transaction(self.producers, 0, request.transaction_timeout_ms)
            if name is not None:
                self.transactions[name] = known
        else:
            if known.state == "Ongoing":
                self._finish(name, known, commit=False)
            known.epoch, known.state = known.epoch + 1, "Empty"
            known.timeout_ms = request.transaction_timeout_ms
        return InitProducerIdResponse(
            throttle_time_ms=0, error_code=0, producer_id=known.producer_id, producer_epoch=known.epoch
        )

    def _AddPartitionsToTxn(self, node: int, request: Any) -> Any:
        topic_type = AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult
        code, known = self._transaction(
            node, request.v3_and_below_transactional_id, request.v3_and_below_producer_id,
            request.v3_and_below_producer_epoch,
        )  # fmt: skip
        partitions = [(topic.name, part) for topic in request.v3_and_below_topics for part in topic.partitions]
        if known is not None:
            self._open(request.v3_and_below_transactional_id, known)
            known.partitions |= set(partitions)
        results = [
            topic_type(
                name=name,
                results_by_partition=[
                    topic_type.AddPartitionsToTxnPartitionResult(partition_index=part, partition_error_code=int(code))
                    for of, part in partitions
                    if of == name
                ],
            )
            for name in dict.fromkeys(name for name, _ in partitions)
        ]
        return AddPartitionsToTxnResponse(throttle_time_ms=0, results_by_topic_v3_and_below=results)

    def _open(self, name: str, known: Transaction) -> None:
        if known.state != "Ongoing":
            known.state, known.started_ms, known.partitions, known.offsets = "Ongoing", self.clock.now_ms, set(), {}
            self._ongoing[name] = known

    def _AddOffsetsToTxn(self, node: int, request: Any) -> Any:
        code, known = self._transaction(node, request.transactional_id, request.producer_id, request.producer_epoch)
        if known is not None:
            self._open(request.transactional_id, known)
            known.offsets.setdefault(request.group_id, {})
        return AddOffsetsToTxnResponse(throttle_time_ms=0, error_code=int(code))

    def _TxnOffsetCommit(self, node: int, request: Any) -> Any:
        topic_type = TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic
        known = self.transactions.get(request.transactional_id)
        code = Code.NONE
        if self._coordinator(request.group_id) != node:
            code = Code.NOT_COORDINATOR
        elif known is None or (known.producer_id, known.epoch) != (request.producer_id, request.producer_epoch):
            code = Code.INVALID_PRODUCER_EPOCH
        elif known.state != "Ongoing" or request.group_id not in known.offsets:
            code = Code.INVALID_TXN_STATE
        topics = []
        for topic in request.topics:
            parts = []
            for part in topic.partitions:
                if code is Code.NONE and known is not None:
                    position = (part.committed_offset, part.committed_metadata or "")
                    known.offsets[request.group_id][topic.name, part.partition_index] = position
                parts.append(
                    topic_type.TxnOffsetCommitResponsePartition(
                        partition_index=part.partition_index, error_code=int(code)
                    )
                )
            topics.append(topic_type(name=topic.name, partitions=parts))
        return TxnOffsetCommitResponse(throttle_time_ms=0, topics=topics)

    def _EndTxn(self, node: int, request: Any) -> Any:
        code, known = self._transaction(node, request.transactional_id, request.producer_id, request.producer_epoch)
        if known is not None:
            done = "CompleteCommit" if request.committed else "CompleteAbort"
            if known.state == "Ongoing":
                self._finish(request.transactional_id, known, commit=request.committed)
            elif known.state != done:
                code = Code.INVALID_TXN_STATE
        return EndTxnResponse(throttle_time_ms=0, error_code=int(code))

    def _finish(self, name: str, transaction: Transaction, *, commit: bool) -> None:
        del self._ongoing[name]
        for tp in sorted(transaction.partitions):
            self.logs[tp].finish(transaction.producer_id, transaction.epoch, commit=commit, now_ms=self.clock.now_ms)
        for group, offsets in transaction.offsets.items():
            self.groups.setdefault(group, {}).update(offsets if commit else {})
        transaction.state = "CompleteCommit" if commit else "CompleteAbort"
        transaction.partitions, transaction.offsets = set(), {}

    def _DescribeTransactions(self, node: int, request: Any) -> Any:
        states = []
        for name in request.transactional_ids:
            known = self.transactions.get(name)
            code = Code.NONE if known else Code.TRANSACTIONAL_ID_NOT_FOUND
            if self._coordinator(name) != node:
                code, known = Code.NOT_COORDINATOR, None
            states.append(
                DescribeTransactionsResponse.TransactionState(
                    error_code=int(code), transactional_id=name, transaction_state=known.state if known else "",
                    transaction_timeout_ms=known.timeout_ms if known else 0,
                    transaction_start_time_ms=int(known.started_ms) if known else -1,
                    producer_id=known.producer_id if known else -1, producer_epoch=known.epoch if known else -1,
                    topics=[],
                )
            )  # fmt: skip
        return DescribeTransactionsResponse(throttle_time_ms=0, transaction_states=states)

    def _ListTransactions(self, node: int, request: Any) -> Any:
        state_type = ListTransactionsResponse.TransactionState
        states = [
            state_type(transactional_id=name, producer_id=known.producer_id, transaction_state=known.state)
            for name, known in sorted(self.transactions.items())
            if self._coordinator(name) == node and (not request.state_filters or known.state in request.state_filters)
        ]
        return ListTransactionsResponse(
            throttle_time_ms=0, error_code=0, unknown_state_filters=[], transaction_states=states
        )

    def _ListGroups(self, node: int, _request: Any) -> Any:
        listed = ListGroupsResponse.ListedGroup
        groups = [
            listed(group_id=name, protocol_type="", group_state="Empty")
            for name in sorted(self.groups)
            if self._coordinator(name) == node
        ]
        return ListGroupsResponse(throttle_time_ms=0, error_code=0, groups=groups)

    def _DescribeConfigs(self, _node: int, request: Any) -> Any:
        result_type = DescribeConfigsResponse.DescribeConfigsResult
        results = [
            result_type(
                error_code=0, error_message=None, resource_type=one.resource_type, resource_name=one.resource_name,
                configs=[
                    result_type.DescribeConfigsResourceResult(
                        name=name, value=_LONGEST_MS, read_only=True, config_source=5, is_sensitive=False, synonyms=[]
                    )
                    for name in one.configuration_keys
                ],
            )
            for one in request.resources
        ]  # fmt: skip
        return DescribeConfigsResponse(throttle_time_ms=0, results=results)

    # -- groups

    def _OffsetCommit(self, node: int, request: Any) -> Any:
        topic_type = OffsetCommitResponse.OffsetCommitResponseTopic
        code = Code.NONE if self._coordinator(request.group_id) == node else Code.NOT_COORDINATOR
        offsets = self.groups.setdefault(request.group_id, {})
        topics = []
        for topic in request.topics:
            parts = []
            for part in topic.partitions:
                if code is Code.NONE:
                    offsets[topic.name, part.partition_index] = (part.committed_offset, part.committed_metadata or "")
                parts.append(
                    topic_type.OffsetCommitResponsePartition(partition_index=part.partition_index, error_code=int(code))
                )
            topics.append(topic_type(name=topic.name, partitions=parts))
        return OffsetCommitResponse(throttle_time_ms=0, topics=topics)

    def _OffsetFetch(self, node: int, request: Any) -> Any:
        group_type = OffsetFetchResponse.OffsetFetchResponseGroup
        topic_type = group_type.OffsetFetchResponseTopics
        groups = []
        for group in request.groups:
            is_coordinator = self._coordinator(group.group_id) == node
            offsets = self.groups.get(group.group_id, {}) if is_coordinator else {}
            partitions = [(topic.name, part) for topic in group.topics or () for part in topic.partition_indexes]
            if group.topics is None:
                partitions = sorted(offsets)
            topics = [
                topic_type(
                    name=name,
                    partitions=[
                        topic_type.OffsetFetchResponsePartitions(
                            partition_index=part, committed_offset=offsets.get((name, part), (-1, ""))[0],
                            committed_leader_epoch=-1, metadata=offsets.get((name, part), (-1, ""))[1], error_code=0,
                        )
                        for of, part in partitions
                        if of == name
                    ],
                )
                for name in dict.fromkeys(name for name, _ in partitions)
            ]  # fmt: skip
            code = Code.NONE if is_coordinator else Code.NOT_COORDINATOR
            groups.append(group_type(group_id=group.group_id, topics=topics, error_code=int(code)))
        return OffsetFetchResponse(throttle_time_ms=0, groups=groups)
