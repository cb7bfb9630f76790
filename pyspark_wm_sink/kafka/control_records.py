"""Writes the control rows of a batch into the output topic (`controlRows=inline`).

Rule: the driver writes them in a separate transaction, after all tasks have flushed their rows and before anything is
decided. The driver ends that transaction after the others. So in every partition control rows follow the rows that they
refer to, whichever task wrote these rows. A read_committed reader that sees a control row has seen these rows. Each
change of a batch is written once, with its value at the end of the batch. Then follows the barrier, in every partition,
since a reader coalesces each partition on its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress

import pyarrow as pa

from keyedwm.arrow.schema import HEADERS_TYPE
from keyedwm.core.control_row import ControlRow
from keyedwm.core.errors import FencedError, KeyedwmError
from keyedwm.core.inline import HEADER, VERSION, Upstream, UpstreamBarrier, encode_change, encode_cut, sign
from keyedwm.core.rows import ORDER, ControlKind
from keyedwm.kafka.client.values import TopicPartition
from keyedwm.kafka.requests.cluster import Cluster
from keyedwm.kafka.requests.produce import Sender, new_producer
from keyedwm.kafka.requests.transactions import Transaction, add_partitions, begin, end
from pyspark_wm_sink.batch.record import Record
from pyspark_wm_sink.batch.reports import BatchReport
from pyspark_wm_sink.kafka.stage import KafkaStagePlan, explain_fenced, partition_count

_Row = tuple[bytes, bytes]


def write_control(
    plan: KafkaStagePlan, cluster: Cluster, report: BatchReport, record: Record, secret: bytes | None
) -> tuple[Transaction, ...]:
    """Write a batch's control rows to all partitions of the topic; returns their open transaction, if there is one.

    secret: the secret of each record's code, None for records without a code. Raises UnavailableError, AccessError,
    FencedError: nothing becomes visible (at-least-once: perhaps some records).
    """
    if plan.topic is None or not (report.rows or report.control):
        return ()
    tables = _tables(plan.topic, partition_count(cluster, plan.topic), list(_rows(report, record)), secret)
    if not plan.transactional:
        Sender(cluster, new_producer(cluster)).send(plan.topic, tables)
        return ()
    # Used by this call alone: a repeated commit writes under another id.
    name = f"{plan.stem_of(report.query)}-{report.batch}-control-{report.attempt[:12]}"
    transaction = begin(cluster, name, plan.timeout_ms)
    try:
        add_partitions(cluster, transaction, [TopicPartition(plan.topic, partition) for partition in tables])
        Sender(cluster, transaction.producer, transactional_id=name).send(plan.topic, tables)
    except FencedError as error:
        raise explain_fenced(cluster, transaction, plan.timeout_ms, error) from error
    except BaseException:
        with suppress(KeyedwmError):  # the broker aborts it when it times out
            end(cluster, [transaction], commit=False)
        raise
    return (transaction,)


def _tables(topic: str, partitions: int, rows: Sequence[_Row], secret: bytes | None) -> dict[int, pa.Table]:
    """Return the records of each partition: the same in all partitions, apart from their codes."""
    columns = {
        "key": pa.array([key for key, _ in rows], pa.binary()),
        "value": pa.array([value for _, value in rows], pa.binary()),
        "headers": pa.array([[{"key": HEADER, "value": VERSION}]] * len(rows), HEADERS_TYPE),
    }
    if secret is None:
        return dict.fromkeys(range(partitions), pa.table(columns))
    signed = {
        partition: pa.array([sign(value, secret, VERSION, topic, partition) for _, value in rows], pa.binary())
        for partition in range(partitions)
    }
    return {partition: pa.table({**columns, "value": values}) for partition, values in signed.items()}


def _rows(report: BatchReport, record: Record) -> Iterator[_Row]:
    """The channels' last control rows, then the barrier; with record keys, which compacted topics require."""
    query, snapshot = record.query or "", _snapshot(record)
    last: dict[tuple[str, str, int], ControlRow] = {}
    for row in sorted(report.control, key=_order):
        if row.channel is None or row.kind in (ControlKind.BARRIER, ControlKind.RESET):
            continue  # a reader reads a channel's state from the barriers, and ignores a lower watermark there
        status = row.kind is not ControlKind.WATERMARK
        # A status row replaces the status row before it.
        last[row.channel, "status" if status else "watermark", 0 if status else row.key or 0] = row
    for (channel, role, key), row in sorted(last.items(), key=lambda item: _order(item[1])):
        ms = record.channels[channel].watermarks[key] if row.kind is ControlKind.WATERMARK else None
        value = encode_change(row.kind, query, snapshot, channel, key=None if ms is None else key, watermark_ms=ms)
        yield f"{HEADER} {role} {channel} {key}".encode(), value
    yield (
        f"{HEADER} {ControlKind.BARRIER.value}".encode(),
        encode_cut(_upstream_barrier(query, snapshot, report, record)),
    )


def _upstream_barrier(query: str, snapshot: int, report: BatchReport, record: Record) -> UpstreamBarrier:
    """Return the state of every channel, also of a source without a batch: its channels block the watermark.

    Records do not show whether a channel that never named its source still exists. Of such channels only those that
    delivered a barrier count, or all if there is no barrier at all (snapshot=batch).
    """
    delivered = report.delivered()
    names = sorted(
        name for name, of in record.channels.items() if not report.barriers or name in delivered or of.source
    )
    return UpstreamBarrier(
        query=query,
        snapshot=snapshot,
        channels={
            name: Upstream(offset=of.offset, idle=of.idle, watermarks=of.watermarks)
            for name, of in ((name, record.channels[name]) for name in names)
        },
    )


def _snapshot(record: Record) -> int:
    """The snapshot that the batch closed; without barriers the batch is a snapshot."""
    return record.snapshot if record.snapshot is not None else record.batch or 0


def _order(row: ControlRow) -> tuple[str, int, int]:
    return (row.channel or "", -1 if row.offset is None else row.offset, ORDER[row.kind])
