"""Transactions that one process writes and another one ends (KIP-98, in the way of brokers before KIP-890's part 2).

Rule: whoever knows (transactional id, producer id, epoch) may end a transaction. The ids given here belong to one
transaction each and are never used again, so an end may be repeated, and a refused one can be told apart by asking.
Versions are kept together: AddPartitionsToTxn 3, Produce up to 11, EndTxn 3; newer ones change the epoch at each end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from typing import Any, NamedTuple

from kafka.protocol.admin import DescribeConfigsRequest, DescribeTransactionsRequest, ListTransactionsRequest
from kafka.protocol.metadata import MetadataRequest
from kafka.protocol.producer import AddPartitionsToTxnRequest, EndTxnRequest, InitProducerIdRequest

from keyedwm.core.errors import FencedError, InputError, OptionError
from keyedwm.kafka.cluster import Cluster
from keyedwm.kafka.connection import Retry, TransientError
from keyedwm.kafka.encode import Producer
from keyedwm.kafka.errors import AccessError, Code, described
from keyedwm.kafka.groups import TRANSACTION
from keyedwm.kafka.values import TopicPartition

_ELSEWHERE = frozenset({Code.NOT_COORDINATOR, Code.COORDINATOR_NOT_AVAILABLE})
_AMBIGUOUS = frozenset({
    Code.INVALID_PRODUCER_EPOCH, Code.PRODUCER_FENCED, Code.INVALID_TXN_STATE, Code.INVALID_PRODUCER_ID_MAPPING,
})  # fmt: skip
_OPEN, _COMMITTED = "Ongoing", frozenset({"PrepareCommit", "CompleteCommit"})
_ABORTED = frozenset({"PrepareAbort", "CompleteAbort", "PrepareEpochFence"})
_BROKER_RESOURCE, _LONGEST = 4, "transaction.max.timeout.ms"


class Transaction(NamedTuple):
    """What it takes to end a transaction."""

    transactional_id: str
    producer_id: int
    epoch: int

    @property
    def producer(self) -> Producer:
        """Who writes its records."""
        return Producer(self.producer_id, self.epoch, transactional=True)


class Fate(Enum):
    """What became of a transaction; UNKNOWN: the coordinator has forgotten it, or its id was used by someone else."""

    OPEN = "open"
    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"


def begin(cluster: Cluster, transactional_id: str, timeout_ms: int) -> Transaction:
    """Make the id ours; what was open under it is aborted. The transaction begins with its first partition."""
    request = InitProducerIdRequest(
        transactional_id=transactional_id, transaction_timeout_ms=timeout_ms, min_version=1, max_version=4
    )
    retry = Retry(cluster.config, f"beginning transaction {transactional_id!r}")
    answer, code = _ask(cluster, transactional_id, request, _own_code, retry)
    if code is Code.NONE:
        return Transaction(transactional_id, answer.producer_id, answer.producer_epoch)
    if code is Code.INVALID_TRANSACTION_TIMEOUT:
        raise OptionError(
            f"option transactionTimeout: {timeout_ms} ms is more than the broker's {_LONGEST} allows: lower it"
        )
    raise _refusal(transactional_id, "begun", answer.error_code)


def add_partitions(cluster: Cluster, transaction: Transaction, partitions: Iterable[TopicPartition]) -> None:
    """Take partitions into the transaction; must come before the first batch to each."""
    by_topic: dict[str, list[int]] = {}
    for where in partitions:
        by_topic.setdefault(where.topic, []).append(where.partition)
    topic_type = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=transaction.transactional_id,
        v3_and_below_producer_id=transaction.producer_id,
        v3_and_below_producer_epoch=transaction.epoch,
        v3_and_below_topics=[topic_type(name=name, partitions=parts) for name, parts in by_topic.items()],
        max_version=3,
    )
    retry = Retry(cluster.config, f"adding partitions to transaction {transaction.transactional_id!r}")
    answer, code = _ask(cluster, transaction.transactional_id, request, _partitions_code, retry)
    if code is not Code.NONE:
        name, number = next(
            (f"{topic.name}-{part.partition_index}", part.partition_error_code)
            for topic in answer.results_by_topic_v3_and_below
            for part in topic.results_by_partition
            if Code.of(part.partition_error_code) is code
        )
        raise _refusal(transaction.transactional_id, f"extended to {name}", number)


def end(cluster: Cluster, transactions: Sequence[Transaction], *, commit: bool) -> dict[Transaction, Fate]:
    """Commit or abort all of them, again if need be; gives what became of each: COMMITTED, ABORTED or UNKNOWN.

    Raises UnavailableError if a coordinator does not answer in time: nothing is known then, and nothing is lost.
    """
    retry = Retry(cluster.config, f"{'committing' if commit else 'aborting'} {len(transactions)} transactions")
    fates: dict[Transaction, Fate] = {}
    pending = list(transactions)
    while pending:
        asked = [(transaction, _submit_end(cluster, transaction, retry, commit=commit)) for transaction in pending]
        pending, reason = [], ""
        for transaction, answer in asked:
            try:
                number = cluster.connection.result(answer).error_code
            except TransientError as error:
                cluster.forget_coordinator(transaction.transactional_id, TRANSACTION)
                pending, reason = [*pending, transaction], str(error)
                continue
            fate = _fate_by_code(cluster, transaction, number, commit=commit)
            if fate is Fate.OPEN:
                pending, reason = [*pending, transaction], described(number)
            else:
                fates[transaction] = fate
        if pending:
            retry.pause(reason)
    return fates


def lingering(cluster: Cluster, prefix: str) -> list[Transaction]:
    """Return the open transactions whose ids begin with `prefix`, in order of their ids."""
    ids: set[str] = set()
    for node in brokers(cluster):
        request = ListTransactionsRequest(state_filters=[_OPEN], producer_id_filters=[], max_version=1)
        answer = _patiently(cluster, node, request, "listing transactions")
        ids |= {found.transactional_id for found in answer.transaction_states}
    found = [_describe(cluster, name) for name in sorted(ids) if name.startswith(prefix)]
    return [
        Transaction(state.transactional_id, state.producer_id, state.producer_epoch)
        for state in found
        if state is not None and state.transaction_state == _OPEN
    ]


def fate(cluster: Cluster, transaction: Transaction) -> Fate:
    """Ask the coordinator what became of a transaction."""
    found = _describe(cluster, transaction.transactional_id)
    if found is None:
        return Fate.UNKNOWN
    ours = (found.producer_id, found.producer_epoch) == (transaction.producer_id, transaction.epoch)
    if ours and found.transaction_state in _COMMITTED:
        return Fate.COMMITTED
    if ours and found.transaction_state == _OPEN:
        return Fate.OPEN
    # A broker that times a transaction out raises the epoch; an id is never used twice, so nobody else does.
    return Fate.ABORTED if found.transaction_state in _ABORTED else Fate.UNKNOWN


def unchanged(cluster: Cluster, begun: Transaction) -> bool:
    """Whether nobody has begun anything under this id since; a forgotten id counts as unchanged."""
    found = _describe(cluster, begun.transactional_id)
    return found is None or (found.producer_id, found.producer_epoch) == (begun.producer_id, begun.epoch)


def longest_timeout_ms(cluster: Cluster) -> int | None:
    """Return the longest transaction time-out that the brokers allow; None if we may not ask."""
    resource = DescribeConfigsRequest.DescribeConfigsResource
    allowed = []
    for node in brokers(cluster):
        asked = resource(resource_type=_BROKER_RESOURCE, resource_name=str(node), configuration_keys=[_LONGEST])
        request = DescribeConfigsRequest(resources=[asked], include_synonyms=False, max_version=2)
        answer = _patiently(cluster, node, request, f"reading {_LONGEST}")
        allowed += [int(config.value) for config in answer.results[0].configs if config.value]
    return min(allowed, default=None)


def brokers(cluster: Cluster) -> list[int]:
    """Return the node ids of all brokers."""
    request = MetadataRequest(topics=[], allow_auto_topic_creation=False, max_version=12)
    answer = _patiently(cluster, None, request, "reading the list of brokers")
    return sorted(broker.node_id for broker in answer.brokers)


def _submit_end(cluster: Cluster, transaction: Transaction, retry: Retry, *, commit: bool) -> Any:
    node = cluster.coordinator(transaction.transactional_id, TRANSACTION, retry)
    request = EndTxnRequest(
        transactional_id=transaction.transactional_id,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.epoch,
        committed=commit,
        max_version=3,
    )
    return cluster.connection.submit(node, request)


def _fate_by_code(cluster: Cluster, transaction: Transaction, number: int, *, commit: bool) -> Fate:
    """OPEN: ask once more."""
    code = Code.of(number)
    if code is Code.NONE:
        return Fate.COMMITTED if commit else Fate.ABORTED
    if code in _AMBIGUOUS:
        return fate(cluster, transaction)
    if not code.retriable:
        raise _refusal(transaction.transactional_id, "ended", number)
    if code in _ELSEWHERE:
        cluster.forget_coordinator(transaction.transactional_id, TRANSACTION)
    return Fate.OPEN


def _describe(cluster: Cluster, transactional_id: str) -> Any:
    """Return the coordinator's view; None if it knows no such id."""
    request = DescribeTransactionsRequest(transactional_ids=[transactional_id], max_version=0)
    retry = Retry(cluster.config, f"asking about transaction {transactional_id!r}")
    answer, code = _ask(cluster, transactional_id, request, _described_code, retry)
    if code is Code.TRANSACTIONAL_ID_NOT_FOUND:
        return None
    if code is not Code.NONE:
        raise _refusal(transactional_id, "looked up", answer.transaction_states[0].error_code)
    return answer.transaction_states[0]


def _ask(
    cluster: Cluster, transactional_id: str, request: Any, code_of: Callable[[Any], int], retry: Retry
) -> tuple[Any, Code]:
    """Send to the id's coordinator until the answer is final."""
    while True:
        node = cluster.coordinator(transactional_id, TRANSACTION, retry)
        try:
            answer = cluster.connection.call(node, request)
        except TransientError as error:
            cluster.forget_coordinator(transactional_id, TRANSACTION)
            retry.pause(error)
            continue
        number = code_of(answer)
        code = Code.of(number)
        if not code.retriable:
            return answer, code
        if code in _ELSEWHERE:
            cluster.forget_coordinator(transactional_id, TRANSACTION)
        retry.pause(described(number))


def _own_code(answer: Any) -> int:
    return answer.error_code


def _described_code(answer: Any) -> int:
    return answer.transaction_states[0].error_code


def _partitions_code(answer: Any) -> int:
    """Return the worst code: one refused partition leaves the others unattempted, a retriable one counts last."""
    topics = answer.results_by_topic_v3_and_below
    numbers = [part.partition_error_code for topic in topics for part in topic.results_by_partition]
    wrong = [n for n in numbers if Code.of(n) not in {Code.NONE, Code.OPERATION_NOT_ATTEMPTED}]
    final = [n for n in wrong if not Code.of(n).retriable]
    return next(iter([*final, *wrong]), 0)


def _patiently(cluster: Cluster, node: int | None, request: Any, task: str) -> Any:
    """Send to one broker until it answers."""
    retry = Retry(cluster.config, task)
    while True:
        try:
            answer = cluster.connection.call(node, request)
        except TransientError as error:
            retry.pause(error)
            continue
        return answer


def _refusal(transactional_id: str, what: str, number: int) -> Exception:
    code, why = Code.of(number), described(number)
    if code.denied:
        return AccessError(f"transaction {transactional_id!r} may not be {what}: {why}")
    if code in _AMBIGUOUS:
        return FencedError(f"transaction {transactional_id!r} cannot be {what}, it is over or not ours any more: {why}")
    return InputError(f"transaction {transactional_id!r} cannot be {what}: {why}")
