"""The control rows of a batch, written into the output topic (`controlRows=inline`).

Rule: the driver writes them, when all tasks have flushed their rows and before anything is decided, in a transaction of
their own that is ended after the others. So in every partition they stand behind the rows they speak of, whichever task
wrote those, and a read_committed reader that sees them has seen those. What moved in a batch is told once, as it stands
at the batch's end; then the barrier, in every partition of the topic, since a reader coalesces each for itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import pyarrow as pa

from keyedwm.arrow.rows import ControlRow
from keyedwm.core.errors import KeyedwmError
from keyedwm.core.inline import HEADER, VERSION, Cut, Upstream, encode_change, encode_cut
from keyedwm.core.rows import ORDER, Kind
from keyedwm.kafka.cluster import Cluster
from keyedwm.kafka.produce import Sender, new_producer
from keyedwm.kafka.records import HEADERS_TYPE
from keyedwm.kafka.transactions import Transaction, add_partitions, begin, end
from keyedwm.kafka.values import TopicPartition
from pyspark_wm_sink.kafka_stage import KafkaPlan, partition_count
from pyspark_wm_sink.record import Record
from pyspark_wm_sink.seal import Brought

_Row = tuple[bytes, bytes]


def write_control(plan: KafkaPlan, cluster: Cluster, brought: Brought, record: Record) -> tuple[Transaction, ...]:
    """Write a batch's control rows to all partitions of the topic; returns their open transaction, if there is one.

    Raises UnavailableError, AccessError, FencedError: nothing becomes visible (at-least-once: perhaps some of it).
    """
    if plan.topic is None or not (brought.rows or brought.control):
        return ()
    rows = list(_rows(brought, record))
    table = pa.table(
        {
            "key": pa.array([key for key, _ in rows], pa.binary()),
            "value": pa.array([value for _, value in rows], pa.binary()),
            "headers": pa.array([[{"key": HEADER, "value": VERSION}]] * len(rows), HEADERS_TYPE),
        }
    )
    tables = dict.fromkeys(range(partition_count(cluster, plan.topic)), table)
    if not plan.transactional:
        Sender(cluster, new_producer(cluster)).send(plan.topic, tables)
        return ()
    # Used by this call alone: a commit that is asked for again writes under another id.
    name = f"{plan.stem_of(brought.query)}-{brought.batch}-control-{brought.attempt[:12]}"
    transaction = begin(cluster, name, plan.timeout_ms)
    try:
        add_partitions(cluster, transaction, [TopicPartition(plan.topic, partition) for partition in tables])
        Sender(cluster, transaction.producer, transactional_id=name).send(plan.topic, tables)
    except BaseException:
        with suppress(KeyedwmError):  # the broker aborts it when its time is up
            end(cluster, [transaction], commit=False)
        raise
    return (transaction,)


def _rows(brought: Brought, record: Record) -> Iterator[_Row]:
    """What the channels' last rows say, by channel, then the barrier; with keys, or compacted topics refuse them."""
    query, snapshot = record.query or "", _snapshot(record)
    last: dict[tuple[str, str, int], ControlRow] = {}
    for row in sorted(brought.control, key=_order):
        if row.channel is None or row.kind is Kind.BARRIER:
            continue
        status = row.kind is not Kind.WATERMARK
        # A status row takes the place of the one before, whatever that said.
        last[row.channel, "status" if status else "watermark", 0 if status else row.key or 0] = row
    for (channel, what, key), row in sorted(last.items(), key=lambda item: _order(item[1])):
        ms = record.channels[channel].watermarks[key] if row.kind is Kind.WATERMARK else None
        value = encode_change(row.kind, query, snapshot, channel, key=None if ms is None else key, watermark_ms=ms)
        yield f"{HEADER} {what} {channel} {key}".encode(), value
    yield f"{HEADER} {Kind.BARRIER.value}".encode(), encode_cut(_cut(query, snapshot, brought, record))


def _cut(query: str, snapshot: int, brought: Brought, record: Record) -> Cut:
    """The state of every channel that delivered a barrier, of every known one if there are none (snapshot=batch)."""
    names = sorted(brought.delivered() or record.channels)
    return Cut(
        query=query,
        snapshot=snapshot,
        channels={
            name: Upstream(offset=of.offset, idle=of.idle, watermarks=of.watermarks)
            for name, of in ((name, record.channels[name]) for name in names)
        },
    )


def _snapshot(record: Record) -> int:
    """The snapshot that the batch closed; without barriers the batch is one."""
    return record.snapshot if record.snapshot is not None else record.batch or 0


def _order(row: ControlRow) -> tuple[str, int, int]:
    return (row.channel or "", -1 if row.offset is None else row.offset, ORDER[row.kind])
