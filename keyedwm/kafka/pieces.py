"""Record batches in pieces worth decoding together, each of a bounded size, however far a batch decompresses.

Rule: many small batches make one piece, a batch that decompresses to much more than a piece comes in several. A piece
ends where a record ends; nothing longer than one record, or one block of snappy, is ever held whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import NamedTuple, NoReturn

import numpy as np

from keyedwm.kafka.batches import CODEC_BITS, HEADER_BYTES, LOG_APPEND_TIME, Batches, Header
from keyedwm.kafka.codecs import FIRST_BYTES, DamagedError, TooLargeError, chunks
from keyedwm.kafka.decode import FAULTS, Fault, Plan, whole_records
from keyedwm.kafka.errors import CorruptRecordError
from keyedwm.kafka.values import Codec, TopicPartition

LARGEST_UNIT_BYTES = 14 << 20
CLAIM = "claims more records than its bytes or its offsets can hold"
_ENLARGE = "a larger kafka.fetch.max.bytes allows more"


class Piece(NamedTuple):
    """Bytes and the plan into them (see Plan); `open`: more records of the plan's last batch follow."""

    data: bytes
    plan: np.ndarray
    open: bool = False


def pieces(batches: Batches, chosen: np.ndarray, unit_bytes: int) -> Iterator[Piece]:
    """Cut the chosen batches (row numbers) into pieces; unit_bytes: the longest record or block to decompress."""
    table = batches.table[chosen]
    plan = _plan(table)
    if not (table[:, Header.ATTRIBUTES] & CODEC_BITS).any():
        yield Piece(batches.raw, plan)
        return
    view = memoryview(batches.raw)
    first, size = 0, 0
    held: list[bytes] = []
    for i in range(len(chosen)):
        stream = _opened(batches.where, table[i], view[plan[i, Plan.START] : plan[i, Plan.END]], unit_bytes)
        head, second = next(stream, b""), next(stream, None)
        if held and (second is not None or size + len(head) > FIRST_BYTES):
            yield Piece(b"".join(held), plan[first:i])
            first, size, held = i, 0, []
        if second is not None:
            yield from _long(batches.where, plan[i], chain((head, second), stream), unit_bytes)
            first = i + 1
            continue
        plan[i, Plan.START], plan[i, Plan.END] = size, size + len(head)
        size += len(head)
        held.append(head)
    if held:
        yield Piece(b"".join(held), plan[first:])


def corrupt(where: TopicPartition, batch: np.ndarray, found: str) -> CorruptRecordError:
    """Name the batch of one row of a plan as damaged."""
    return CorruptRecordError.of(where, int(batch[Plan.BASE_OFFSET]), found, int(batch[Plan.LAST_OFFSET]) + 1)


def _plan(table: np.ndarray) -> np.ndarray:
    plan = np.empty((len(table), len(Plan)), np.int64)
    plan[:, Plan.START] = table[:, Header.START] + HEADER_BYTES
    plan[:, Plan.END] = table[:, Header.END]
    plan[:, Plan.BASE_OFFSET] = table[:, Header.BASE_OFFSET]
    plan[:, Plan.LAST_OFFSET] = table[:, Header.LAST_OFFSET]
    plan[:, Plan.COUNT] = table[:, Header.COUNT]
    plan[:, Plan.FIRST_TIME] = table[:, Header.FIRST_TIME]
    plan[:, Plan.APPEND_TIME] = table[:, Header.MAX_TIME]
    plan[:, Plan.LOG_APPENDED] = (table[:, Header.ATTRIBUTES] & LOG_APPEND_TIME) != 0
    plan[:, Plan.LEAST_OFFSET] = table[:, Header.BASE_OFFSET]
    return plan


def _opened(where: TopicPartition, row: np.ndarray, data: memoryview, unit_bytes: int) -> Iterator[bytes]:
    """The records of one batch as they are decompressed."""
    offset, after = int(row[Header.BASE_OFFSET]), int(row[Header.LAST_OFFSET]) + 1
    number = int(row[Header.ATTRIBUTES]) & CODEC_BITS
    if number not in Codec._value2member_map_:
        raise CorruptRecordError.of(where, offset, f"is compressed by an unknown codec ({number})", after)
    codec = Codec(number)
    try:
        yield from chunks(codec, data, unit_bytes)
    except TooLargeError as error:
        found = f"cannot be decompressed ({codec.name.lower()}) in {unit_bytes} bytes of memory: {_ENLARGE}"
        raise CorruptRecordError.of(where, offset, found, after) from error
    except DamagedError as error:
        found = f"cannot be decompressed ({codec.name.lower()}: {error})"
        raise CorruptRecordError.of(where, offset, found, after) from error


def _long(where: TopicPartition, batch: np.ndarray, stream: Iterator[bytes], unit_bytes: int) -> Iterator[Piece]:
    """Cut one batch, as it is decompressed, behind the last whole record of what there is."""
    left, least = int(batch[Plan.COUNT]), int(batch[Plan.LEAST_OFFSET])
    if left < 0:
        raise corrupt(where, batch, CLAIM)
    held: list[bytes] = []
    size, needed = 0, 0
    for chunk in stream:
        held.append(chunk)
        size += len(chunk)
        if size < needed or not chunk:
            continue
        if not left:
            _refuse(where, batch, Fault.LEFTOVER)
        data = b"".join(held)
        held.clear()
        rows, end, needed, last = whole_records(np.frombuffer(data, np.uint8), left)
        if needed < 0:
            _refuse(where, batch, Fault(-needed))
        if needed > unit_bytes:
            raise corrupt(where, batch, f"has a record of {needed} bytes, above {unit_bytes}: {_ENLARGE}")
        if rows:
            piece = batch.copy()
            piece[[Plan.START, Plan.END, Plan.COUNT, Plan.LEAST_OFFSET]] = 0, end, rows, least
            left -= rows
            least = int(batch[Plan.BASE_OFFSET]) + last + 1
            yield Piece(data, piece[None], open=left > 0)
        held, size = [data[end:]], len(data) - end
    if left or size:
        _refuse(where, batch, Fault.LENGTH if left else Fault.LEFTOVER)


def _refuse(where: TopicPartition, batch: np.ndarray, fault: Fault) -> NoReturn:
    raise corrupt(where, batch, FAULTS[fault])
