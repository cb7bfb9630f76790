"""Transactions that one process writes and another process ends (KIP-98, as brokers before KIP-890's part 2 do it).

Rule: a client that knows (transactional id, producer id, epoch) may end a transaction. The ids created here belong to
one transaction each and are never used again. So an end may be repeated, and after a rejected end the coordinator is
asked. These versions belong together: AddPartitionsToTxn 3, Produce up to 11, EndTxn 3. Newer versions change the epoch
at each end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from functools import partial
from typing import Any, NamedTuple

from kafka.protocol.admin import DescribeConfigsRequest, DescribeTransactionsRequest, ListTransactionsRequest
from kafka.protocol.producer import AddPartitionsToTxnRequest, EndTxnRequest, InitProducerIdRequest

from keyedwm.core.errors import FencedError, InputError, KeyedwmError, OptionError
from keyedwm.kafka.client.connection import Retry, TransientError, call_with_retries, first_of
from keyedwm.kafka.client.errors import AccessError, Code, UnsupportedRequestError, described
from keyedwm.kafka.client.values import TopicPartition, by_topic, number_of
from keyedwm.kafka.records.encode import Producer
from keyedwm.kafka.requests.cluster import Cluster
from keyedwm.kafka.requests.coordinators import TRANSACTION
from keyedwm.kafka.requests.listing import brokers, listed_by_brokers
from keyedwm.kafka.requests.reactions import Api, Reaction, reaction
from keyedwm.kafka.requests.versions import VERSIONS

_AMBIGUOUS = frozenset({
    Code.INVALID_PRODUCER_EPOCH, Code.PRODUCER_FENCED, Code.INVALID_TXN_STATE, Code.INVALID_PRODUCER_ID_MAPPING,
})  # fmt: skip
_OPEN, _COMMITTED = "Ongoing", frozenset({"PrepareCommit", "CompleteCommit"})
_ABORTED = frozenset({"PrepareAbort", "CompleteAbort", "PrepareEpochFence"})
_BROKER_RESOURCE, _LONGEST = 4, "transaction.max.timeout.ms"


class Transaction(NamedTuple):
    """A transaction: the values that are needed to end it."""

    transactional_id: str
    producer_id: int
    epoch: int

    @property
    def producer(self) -> Producer:
        """The producer of its records."""
        return Producer(self.producer_id, self.epoch, transactional=True)


class TransactionStatus(NamedTuple):
    """A transaction as its coordinator sees it; started_ms and timeout_ms are 0 if the coordinator does not say."""

    fate: Fate
    started_ms: int
    timeout_ms: int


class Fate(Enum):
    """The fate of a transaction; UNKNOWN: the coordinator has forgotten it, or its id was used by someone else."""

    OPEN = "open"
    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"


class IdHolder(Enum):
    """The holder of a transactional id; NOBODY: the coordinator has forgotten it."""

    THIS_PRODUCER = "ours"
    ANOTHER = "another"
    NOBODY = "nobody"


def begin(cluster: Cluster, transactional_id: str, timeout_ms: int) -> Transaction:
    """Initialize the id: brokers abort an open transaction under it.

    The new transaction begins with its first partition.
    """
    request = InitProducerIdRequest(
        transactional_id=transactional_id, transaction_timeout_ms=timeout_ms, **VERSIONS[Api.INIT_PRODUCER_ID].limits
    )
    retry = Retry(cluster.config, f"beginning transaction {transactional_id!r}")
    answer, code = ask(cluster, (transactional_id, TRANSACTION), request, _own_code, retry)
    if code is Code.NONE:
        return Transaction(transactional_id, answer.producer_id, answer.producer_epoch)
    if code is Code.INVALID_TRANSACTION_TIMEOUT:
        raise OptionError(
            f"option transactionTimeout: {timeout_ms} ms is more than the broker's {_LONGEST} allows: lower it"
        )
    raise refusal(transactional_id, "begun", answer.error_code)


def add_partitions(cluster: Cluster, transaction: Transaction, partitions: Iterable[TopicPartition]) -> None:
    """Add partitions to the transaction; call this before the first batch to each."""
    requested = [TopicPartition(*tp) for tp in partitions]
    numbers = by_topic(requested, lambda tp: tp.partition)
    topic_type = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=transaction.transactional_id,
        v3_and_below_producer_id=transaction.producer_id,
        v3_and_below_producer_epoch=transaction.epoch,
        v3_and_below_topics=[topic_type(name=name, partitions=parts) for name, parts in numbers.items()],
        **VERSIONS[Api.ADD_PARTITIONS_TO_TXN].limits,
    )
    retry = Retry(cluster.config, f"adding partitions to transaction {transaction.transactional_id!r}")
    answer, code = ask(
        cluster, (transaction.transactional_id, TRANSACTION), request, lambda of: _worst(of, requested)[1], retry
    )
    if code is not Code.NONE:
        tp, number = _worst(answer, requested)
        raise refusal(transaction.transactional_id, f"extended to {tp}", number)


def end(cluster: Cluster, transactions: Sequence[Transaction], *, commit: bool) -> dict[Transaction, Fate]:
    """Commit or abort all transactions, with retries; return the fate of each: COMMITTED, ABORTED or UNKNOWN.

    Raises UnavailableError if a coordinator does not answer in time: nothing is known then, and nothing is lost.
    """
    retry = Retry(cluster.config, f"{'committing' if commit else 'aborting'} {len(transactions)} transactions")
    fates: dict[Transaction, Fate] = {}
    pending = list(transactions)
    while pending:
        submitted = [(transaction, _submit_end(cluster, transaction, retry, commit=commit)) for transaction in pending]
        pending, reason = [], ""
        for transaction, answer in submitted:
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
    limits = VERSIONS[Api.LIST_TRANSACTIONS].limits
    request = partial(ListTransactionsRequest, state_filters=[_OPEN], producer_id_filters=[], **limits)
    answers = listed_by_brokers(cluster, Api.LIST_TRANSACTIONS, "transactions", request)
    ids = {state.transactional_id for answer in answers for state in answer.transaction_states}
    states = [_describe(cluster, name) for name in sorted(ids) if name.startswith(prefix)]
    return [
        Transaction(state.transactional_id, state.producer_id, state.producer_epoch)
        for state in states
        if state is not None and state.transaction_state == _OPEN
    ]


def fate(cluster: Cluster, transaction: Transaction) -> Fate:
    """Ask the coordinator for the fate of a transaction."""
    state = _describe(cluster, transaction.transactional_id)
    return Fate.UNKNOWN if state is None else _fate_of(transaction, state)


def statuses(cluster: Cluster, transactions: Iterable[Transaction]) -> dict[Transaction, TransactionStatus]:
    """Ask for all transactions, one request per coordinator; raises UnavailableError, AccessError."""
    pending = list(transactions)
    retry = Retry(cluster.config, f"describing {len(pending)} transactions")
    by_transaction: dict[Transaction, TransactionStatus] = {}
    while pending:
        by_node: dict[int, list[Transaction]] = {}
        for transaction in pending:
            node = cluster.coordinator(transaction.transactional_id, TRANSACTION, retry)
            by_node.setdefault(node, []).append(transaction)
        submitted = [(group, _submit_describe(cluster, node, group)) for node, group in by_node.items()]
        pending, reason = [], ""
        for group, answer in submitted:
            try:
                states = {s.transactional_id: s for s in cluster.connection.result(answer).transaction_states}
            except TransientError as error:
                states, reason = {}, str(error)
            for transaction in group:
                status = _status_of(transaction, states.get(transaction.transactional_id))
                if status is None:
                    cluster.forget_coordinator(transaction.transactional_id, TRANSACTION)
                    pending.append(transaction)
                else:
                    by_transaction[transaction] = status
        if pending:
            retry.pause(reason or "a coordinator did not answer for all of them")
    return by_transaction


def _submit_describe(cluster: Cluster, node: int, transactions: Iterable[Transaction]) -> Any:
    ids = [transaction.transactional_id for transaction in transactions]
    limits = VERSIONS[Api.DESCRIBE_TRANSACTIONS].limits
    return cluster.connection.submit(node, DescribeTransactionsRequest(transactional_ids=ids, **limits))


def _status_of(transaction: Transaction, state: Any) -> TransactionStatus | None:
    """Return the status, None for an answer that requires a retry."""
    if state is None or reaction(Api.DESCRIBE_TRANSACTIONS, state.error_code).repeats:
        return None
    if Code.of(state.error_code) is Code.TRANSACTIONAL_ID_NOT_FOUND:
        return TransactionStatus(Fate.UNKNOWN, 0, 0)
    if Code.of(state.error_code) is not Code.NONE:
        raise refusal(transaction.transactional_id, "described", state.error_code)
    return TransactionStatus(
        _fate_of(transaction, state), max(state.transaction_start_time_ms, 0), max(state.transaction_timeout_ms, 0)
    )


def _fate_of(transaction: Transaction, state: Any) -> Fate:
    """Return the fate of a transaction by the coordinator's state of its id."""
    is_same_producer = (state.producer_id, state.producer_epoch) == (transaction.producer_id, transaction.epoch)
    if is_same_producer and state.transaction_state in _COMMITTED:
        return Fate.COMMITTED
    if is_same_producer and state.transaction_state == _OPEN:
        return Fate.OPEN
    # A broker that times a transaction out raises the epoch; an id is never used twice, so no other producer does.
    return Fate.ABORTED if state.transaction_state in _ABORTED else Fate.UNKNOWN


def holder(cluster: Cluster, transaction: Transaction) -> IdHolder:
    """Ask who has begun a transaction under this id last."""
    state = _describe(cluster, transaction.transactional_id)
    if state is None:
        return IdHolder.NOBODY
    is_same_producer = (state.producer_id, state.producer_epoch) == (transaction.producer_id, transaction.epoch)
    return IdHolder.THIS_PRODUCER if is_same_producer else IdHolder.ANOTHER


def longest_timeout_ms(cluster: Cluster) -> int | None:
    """Return the longest transaction time-out that the brokers allow; None if this client may not ask."""
    resource = DescribeConfigsRequest.DescribeConfigsResource
    allowed = []
    for node in brokers(cluster):
        submitted = resource(resource_type=_BROKER_RESOURCE, resource_name=str(node), configuration_keys=[_LONGEST])
        limits = VERSIONS[Api.DESCRIBE_CONFIGS].limits
        request = DescribeConfigsRequest(resources=[submitted], include_synonyms=False, **limits)
        try:
            answer = call_with_retries(cluster.connection, node, request, f"reading {_LONGEST}")
        except UnsupportedRequestError:
            return None
        configs = [config for result in answer.results for config in result.configs if config.name == _LONGEST]
        allowed += [number_of(config.value) for config in configs]
    return min((longest for longest in allowed if longest is not None), default=None)


def _submit_end(cluster: Cluster, transaction: Transaction, retry: Retry, *, commit: bool) -> Any:
    node = cluster.coordinator(transaction.transactional_id, TRANSACTION, retry)
    request = EndTxnRequest(
        transactional_id=transaction.transactional_id,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.epoch,
        committed=commit,
        **VERSIONS[Api.END_TXN].limits,
    )
    return cluster.connection.submit(node, request)


def _fate_by_code(cluster: Cluster, transaction: Transaction, number: int, *, commit: bool) -> Fate:
    """OPEN: ask once more."""
    if Code.of(number) is Code.NONE:
        return Fate.COMMITTED if commit else Fate.ABORTED
    then = reaction(Api.END_TXN, number)
    if then is Reaction.ANSWER:
        return fate(cluster, transaction)
    if then is Reaction.FINAL:
        raise refusal(transaction.transactional_id, "ended", number)
    if then is Reaction.REFRESH:
        cluster.forget_coordinator(transaction.transactional_id, TRANSACTION)
    return Fate.OPEN


def _describe(cluster: Cluster, transactional_id: str) -> Any:
    """Return the coordinator's view; None if it knows no such id."""
    limits = VERSIONS[Api.DESCRIBE_TRANSACTIONS].limits
    request = DescribeTransactionsRequest(transactional_ids=[transactional_id], **limits)
    retry = Retry(cluster.config, f"asking about transaction {transactional_id!r}")

    def state(answer: Any) -> Any:
        return first_of(answer.transaction_states, "transaction", transactional_id=transactional_id)

    answer, code = ask(cluster, (transactional_id, TRANSACTION), request, lambda of: state(of).error_code, retry)
    if code is Code.TRANSACTIONAL_ID_NOT_FOUND:
        return None
    if code is not Code.NONE:
        raise refusal(transactional_id, "looked up", state(answer).error_code)
    return state(answer)


def ask(
    cluster: Cluster, whom: tuple[str, int], request: Any, code_of: Callable[[Any], int], retry: Retry
) -> tuple[Any, Code]:
    """Send to the coordinator of (id, TRANSACTION) or (group, GROUP) until the answer is final."""
    while True:
        node = cluster.coordinator(*whom, retry)
        try:
            answer = cluster.connection.call(node, request)
            number = code_of(answer)
        except TransientError as error:
            cluster.forget_coordinator(*whom)
            retry.pause(error)
            continue
        then = reaction(request.API_KEY, number)
        if not then.repeats:
            return answer, Code.of(number)
        if then is Reaction.REFRESH:
            cluster.forget_coordinator(*whom)
        retry.pause(described(number))


def _own_code(answer: Any) -> int:
    return answer.error_code


def _worst(answer: Any, requested: Sequence[TopicPartition]) -> tuple[TopicPartition, int]:
    """Return the partition with the worst code: if one is rejected, the broker does not try the others.

    A final code is worse than a code to retry. Raises TransientError for an answer that lacks a partition.
    """
    codes = {
        TopicPartition(topic.name, part.partition_index): part.partition_error_code
        for topic in answer.results_by_topic_v3_and_below
        for part in topic.results_by_partition
    }
    for tp in requested:
        if tp not in codes:
            raise TransientError(f"{tp}: the answer leaves this partition out")
    order = [Reaction.FINAL, Reaction.REFRESH, Reaction.RETRY, Reaction.ANSWER]
    worst = min(requested, key=lambda tp: order.index(reaction(Api.ADD_PARTITIONS_TO_TXN, codes[tp])))
    return worst, codes[worst]


def refusal(transactional_id: str, action: str, number: int) -> KeyedwmError:
    """Return the error for an answer that a retry does not change."""
    code, why = Code.of(number), described(number)
    if code.denied:
        return AccessError(f"not allowed: transaction {transactional_id!r} cannot be {action}: {why}")
    if code in _AMBIGUOUS:
        return FencedError(
            f"transaction {transactional_id!r} cannot be {action}, it has ended, or another producer has fenced it: "
            f"{why}"
        )
    return InputError(f"transaction {transactional_id!r} cannot be {action}: {why}")
