"""Record batches in pieces worth decoding together, each of a bounded size, even if a batch decompresses to much more.

Rule: many small batches form one piece, and a batch that decompresses to much more than a piece is cut into several. A
piece ends at the end of a record. Nothing longer than one record, or one block of snappy, is ever held as a whole.
"""

from __future__ import annotations

import io
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple, NoReturn

import numpy as np

from keyedwm.kafka.client.errors import CorruptRecordError, RecordTooLargeError
from keyedwm.kafka.client.values import Codec, TopicPartition, WireLimits
from keyedwm.kafka.records.batches import CODEC_BITS, HEADER_BYTES, LOG_APPEND_TIME, Batches, BatchField
from keyedwm.kafka.records.codecs import DamagedBytesError, TooLargeError, chunks
from keyedwm.kafka.records.decode import FAULTS, Fault, PlanColumn, whole_records

ENLARGE = "a larger kafka.fetch.max.bytes allows more"
CLAIM = "claims more records than its bytes or its offsets can hold"


class Piece(NamedTuple):
    """Bytes and the plan into them (see PlanColumn); `open`: more records of the plan's last batch follow."""

    data: bytes
    plan: np.ndarray
    open: bool = False


def pieces(batches: Batches, row_numbers: np.ndarray, limits: WireLimits) -> Iterator[Piece]:
    """Cut the batches with these row numbers into pieces, by the limits."""
    table = batches.table[row_numbers]
    plan = _plan(table)
    if not (table[:, BatchField.ATTRIBUTES] & CODEC_BITS).any():
        yield Piece(batches.raw, plan)
        return
    view = memoryview(batches.raw)
    first, size = 0, 0
    buffered: list[bytes] = []
    for i in range(len(row_numbers)):
        stream = opened(batches.tp, table[i], view[plan[i, PlanColumn.START] : plan[i, PlanColumn.END]], limits)
        head, second = next(stream, b""), next(stream, None)
        if buffered and (second is not None or size + len(head) > limits.first_bytes):
            yield Piece(b"".join(buffered), plan[first:i])
            first, size, buffered = i, 0, []
        if second is not None:
            chunks = deque((head, second))
            del head, second
            yield from _long(batches.tp, plan[i], _continued(chunks, stream), limits)
            first = i + 1
            continue
        plan[i, PlanColumn.START], plan[i, PlanColumn.END] = size, size + len(head)
        size += len(head)
        buffered.append(head)
    if buffered:
        yield Piece(b"".join(buffered), plan[first:])


def corrupt(tp: TopicPartition, batch: np.ndarray, damage: str) -> CorruptRecordError:
    """Return the error for the damaged batch of one row of a plan."""
    return CorruptRecordError.of(tp, int(batch[PlanColumn.BASE_OFFSET]), damage, int(batch[PlanColumn.LAST_OFFSET]) + 1)


def _plan(table: np.ndarray) -> np.ndarray:
    plan = np.empty((len(table), len(PlanColumn)), np.int64)
    plan[:, PlanColumn.START] = table[:, BatchField.START] + HEADER_BYTES
    plan[:, PlanColumn.END] = table[:, BatchField.END]
    plan[:, PlanColumn.BASE_OFFSET] = table[:, BatchField.BASE_OFFSET]
    plan[:, PlanColumn.LAST_OFFSET] = table[:, BatchField.LAST_OFFSET]
    plan[:, PlanColumn.COUNT] = table[:, BatchField.COUNT]
    plan[:, PlanColumn.FIRST_TIME] = table[:, BatchField.FIRST_TIME]
    plan[:, PlanColumn.APPEND_TIME] = table[:, BatchField.MAX_TIME]
    plan[:, PlanColumn.LOG_APPENDED] = (table[:, BatchField.ATTRIBUTES] & LOG_APPEND_TIME) != 0
    plan[:, PlanColumn.LEAST_OFFSET] = table[:, BatchField.BASE_OFFSET]
    return plan


def opened(tp: TopicPartition, row: np.ndarray, data: memoryview, limits: WireLimits) -> Iterator[bytes]:
    """The records of one batch as they are decompressed."""
    offset, after = int(row[BatchField.BASE_OFFSET]), int(row[BatchField.LAST_OFFSET]) + 1
    number = int(row[BatchField.ATTRIBUTES]) & CODEC_BITS
    if number not in Codec._value2member_map_:
        raise CorruptRecordError.of(tp, offset, f"is compressed by an unknown codec ({number})", after)
    codec = Codec(number)
    try:
        yield from chunks(codec, data, limits)
    except TooLargeError as error:
        problem = f"cannot be decompressed ({codec.name.lower()}) in {limits.unit_bytes} bytes of memory: {ENLARGE}"
        raise RecordTooLargeError(f"the record batch at offset {offset} of {tp} {problem}") from error
    except DamagedBytesError as error:
        problem = f"cannot be decompressed ({codec.name.lower()}: {error})"
        raise CorruptRecordError.of(tp, offset, problem, after) from error


def _continued(chunks: deque[bytes], stream: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the chunks made so far, without keeping them, and then the others."""
    while chunks:
        yield chunks.popleft()
    yield from stream


def _long(tp: TopicPartition, batch: np.ndarray, stream: Iterator[bytes], limits: WireLimits) -> Iterator[Piece]:
    """Cut one batch, while it is decompressed, after the last complete record so far."""
    left, least = int(batch[PlanColumn.COUNT]), int(batch[PlanColumn.LEAST_OFFSET])
    if left < 0:
        raise corrupt(tp, batch, CLAIM)
    buffer, needed_bytes = io.BytesIO(), 0
    for chunk in stream:
        some = buffer.write(chunk)
        del chunk
        if buffer.tell() < needed_bytes or not some:
            continue
        if not left:
            _refuse(tp, batch, Fault.LEFTOVER)
        data = buffer.getvalue()  # no copy: they are the buffer's own bytes
        rows, end, needed_bytes, last = whole_records(np.frombuffer(data, np.uint8), left)
        if needed_bytes < 0:
            _refuse(tp, batch, Fault(-needed_bytes))
        if needed_bytes > limits.unit_bytes:
            raise RecordTooLargeError(
                f"the record batch at offset {batch[PlanColumn.BASE_OFFSET]} of {tp} has a record of {needed_bytes} "
                f"bytes, above the {limits.unit_bytes} that may be decompressed at once: {ENLARGE}"
            )
        if rows:
            piece = batch.copy()
            piece[[PlanColumn.START, PlanColumn.END, PlanColumn.COUNT, PlanColumn.LEAST_OFFSET]] = 0, end, rows, least
            left -= rows
            least = int(batch[PlanColumn.BASE_OFFSET]) + last + 1
            yield Piece(data, piece[None], open=left > 0)
        buffer = io.BytesIO()
        buffer.write(memoryview(data)[end:])
        del data
    if left or buffer.tell():
        _refuse(tp, batch, Fault.LENGTH if left else Fault.LEFTOVER)


def _refuse(tp: TopicPartition, batch: np.ndarray, fault: Fault) -> NoReturn:
    raise corrupt(tp, batch, FAULTS[fault])
