"""A transaction's end by somebody who did not write it, repeated, too late, and told apart by asking."""

from __future__ import annotations

import uuid

import pyarrow as pa
import pytest

from keyedwm.core.errors import FencedError, OptionError, UnavailableError
from keyedwm.kafka.client.values import Isolation, TopicPartition
from keyedwm.kafka.requests import transactions as txn
from keyedwm.kafka.requests.fetch import OffsetRange, read_ranges
from keyedwm.kafka.requests.produce import Sender
from keyedwm.kafka.requests.transactions import Fate
from tests.support import kafka_versions
from tests.tools import wait_for_markers

pytestmark = kafka_versions.since("3.0", "DescribeTransactions and ListTransactions")


@pytest.fixture
def write(cluster, make_topic):
    """Write some values in a new transaction and leave it open."""

    def run(topic, values, name=None, timeout_ms=900_000):
        transaction = txn.begin(cluster, name or f"{topic}-{uuid.uuid4().hex}", timeout_ms)
        txn.add_partitions(cluster, transaction, [TopicPartition(topic, 0)])
        sender = Sender(cluster, transaction.producer, transactional_id=transaction.transactional_id)
        sender.send(topic, {0: pa.table({"value": values})})
        return transaction

    return run


@pytest.fixture
def committed(kafka, cluster):
    """What a read_committed reader sees, once nothing is open any more."""
    from dataclasses import replace

    from keyedwm.kafka.requests.cluster import Cluster

    connected = Cluster.connect(replace(cluster.config, isolation=Isolation.READ_COMMITTED))

    def read(topic):
        wait_for_markers(kafka.bootstrap, topic)
        place = TopicPartition(topic, 0)
        parts = read_ranges(connected, [OffsetRange(topic, 0, 0, connected.latest([place])[place])])
        return [value.decode() for part in parts for value in part.records.value.to_pylist()]

    yield read
    connected.close()


def test_nothing_is_visible_before_the_end_and_a_repeated_commit_changes_nothing(cluster, make_topic, write, committed):
    topic = make_topic(1)
    transaction = write(topic, ["a", "b"])
    place = TopicPartition(topic, 0)
    assert cluster.latest([place], Isolation.READ_COMMITTED)[place] == 0
    assert txn.fate(cluster, transaction) is Fate.OPEN
    for _ in range(3):
        assert txn.end(cluster, [transaction], commit=True) == {transaction: Fate.COMMITTED}
    assert committed(topic) == ["a", "b"]
    assert txn.fate(cluster, transaction) is Fate.COMMITTED


def test_an_aborted_transaction_stays_invisible_and_cannot_be_committed(cluster, make_topic, write, committed):
    topic = make_topic(1)
    aborted_transaction, open_transaction = write(topic, ["a"]), write(topic, ["b"])
    assert txn.end(cluster, [aborted_transaction], commit=False) == {aborted_transaction: Fate.ABORTED}
    assert txn.end(cluster, [aborted_transaction, open_transaction], commit=True) == {
        aborted_transaction: Fate.ABORTED,
        open_transaction: Fate.COMMITTED,
    }
    assert committed(topic) == ["b"]


@pytest.mark.parametrize("commit", [True, False])
def test_rows_for_a_transaction_that_was_ended_meanwhile_may_be_written_again(cluster, make_topic, committed, commit):
    topic = make_topic(1)
    transaction = txn.begin(cluster, f"{topic}-{uuid.uuid4().hex}", 60_000)
    txn.add_partitions(cluster, transaction, [TopicPartition(topic, 0)])
    sender = Sender(cluster, transaction.producer, transactional_id=transaction.transactional_id)
    sender.send(topic, {0: pa.table({"value": ["a"]})})
    txn.end(cluster, [transaction], commit=commit)
    committed(topic)  # waits for the markers: until they are written, rows still belong to the transaction
    with pytest.raises(UnavailableError, match=f"the transaction that writes to {topic}-0 was ended before all"):
        sender.send(topic, {0: pa.table({"value": ["b"]})})


def test_a_committed_transaction_cannot_be_aborted(cluster, make_topic, write, committed):
    topic = make_topic(1)
    transaction = write(topic, ["a"])
    txn.end(cluster, [transaction], commit=True)
    committed(topic)  # waits for the markers
    assert txn.end(cluster, [transaction], commit=False) == {transaction: Fate.COMMITTED}


def test_a_transaction_that_its_id_was_taken_from_is_told_as_lost(cluster, make_topic, write):
    topic = make_topic(1)
    first = write(topic, ["a"], f"{topic}-one")
    write(topic, ["b"], f"{topic}-one")
    assert txn.end(cluster, [first], commit=True) == {first: Fate.UNKNOWN}
    with pytest.raises(FencedError, match=f"{topic}-one"):
        txn.add_partitions(cluster, first, [TopicPartition(topic, 0)])


def test_open_transactions_are_found_by_their_prefix(cluster, make_topic, write):
    topic = make_topic(1)
    own_transactions = [write(topic, ["a"], f"{topic}-x-{n}") for n in range(2)]
    write(topic, ["a"], f"{topic}-y")
    assert txn.lingering(cluster, f"{topic}-x-") == own_transactions
    txn.end(cluster, own_transactions[:1], commit=False)
    assert txn.lingering(cluster, f"{topic}-x-") == own_transactions[1:]


def test_an_unknown_transaction_is_unknown(cluster, topic):
    assert txn.fate(cluster, txn.Transaction(f"{topic}-never", 1, 0)) is Fate.UNKNOWN


def test_a_timeout_above_the_brokers_is_an_option_error(cluster, topic):
    longest_ms = txn.longest_timeout_ms(cluster)
    assert longest_ms is not None
    with pytest.raises(OptionError, match=r"transactionTimeout: .* transaction\.max\.timeout\.ms"):
        txn.begin(cluster, topic, longest_ms + 1)
