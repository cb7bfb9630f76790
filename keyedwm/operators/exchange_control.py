"""The control rows of a task as columns for the buckets: every bucket gets all of them, so each byte counts.

Theory of operation. A bucket coalesces the channels itself (docs/design/operators.md), and a channel without rows in a
batch keeps its last watermark. So a task may not reduce its channels to their minimum: a later batch reads some of
these channels in other tasks, and the minimum of the rest would be unknown. Therefore a task ships the facts of every
channel, without details that no bucket needs:

- Of the watermarks of one key that a channel has in a batch only the first and the last. The coalescer evaluates once a
  batch, so those between have no effect; the first is where a regression against the batch before shows (rule 1).
- No offsets. Within a batch of a source, or of an operator, a channel's rows come as reset, active, rising watermarks,
  idle, barrier (docs/design/rows.md): their kinds are their order.
- No names of channels: `TOPIC-PARTITION` and `NAME#BUCKET` are numbers behind a prefix, and runs of them.
- No texts for each row. Channels with the same kinds and the same snapshot are one group, which has its channels and
  one column for each watermark: how many steps above the least one, as planes of bits. So a watermark takes the
  logarithm of the spread, in steps of the throttle. A task compresses all of it once.

A row stays a text of its own where this does not hold: rows about all channels; rows of format version 1 and of tables,
which name no source and may have several snapshots in a batch; channels whose offsets order them otherwise; channels
with a name of another form. A bucket reads `ControlRow`s again and knows nothing of this form; it lives for the length
of a shuffle and is never stored.
"""

from __future__ import annotations

import functools
import json
import zlib
from collections.abc import Iterable, Sequence
from itertools import starmap
from typing import NamedTuple

import numpy as np

from keyedwm.arrow.columns import Ints
from keyedwm.core.channel_names import numbers_of, runs_of, split_name
from keyedwm.core.control_row import ControlRow, decode_rows, encode_rows
from keyedwm.core.rows import ORDER, ControlKind

# Results for this number of tasks are cached; in a batch with more tasks each bucket decodes all of them.
_CACHED_TASKS = 32


class _Group(NamedTuple):
    """The control rows that its channels share. kinds: in order, no watermarks. keys: one for each watermark column."""

    prefix: str
    source: str
    kinds: tuple[str, ...]
    snapshot: int | None
    channels: int | None
    keys: tuple[int, ...]


class _Span(NamedTuple):
    """The lowest value of a column, the step of the distances from it, and the bits that a number of steps needs."""

    lowest: int
    step: int
    width: int


def pack_control(rows: Iterable[ControlRow]) -> bytes:
    """Write the control rows of a task, in any order; equal rows count once."""
    of_channel: dict[tuple[str, str], list[ControlRow]] = {}
    texts: list[ControlRow] = []
    for row in dict.fromkeys(rows):
        if row.channel is None or row.source is None:
            texts.append(row)
        else:
            of_channel.setdefault((row.source, row.channel), []).append(row)
    groups: dict[_Group, list[tuple[int, ...]]] = {}
    for channel_rows in of_channel.values():
        grouped = _grouped(sorted(channel_rows, key=_turn))
        if grouped is None:
            texts += channel_rows
        else:
            group, line = grouped
            groups.setdefault(group, []).append(line)
    head: list[tuple] = []
    planes: list[bytes] = []
    for group, lines in groups.items():
        numbers, *watermarks = (np.array(column, np.int64) for column in zip(*sorted(lines), strict=True))
        spans = [_span(column) for column in watermarks]
        planes += (_planes(column, span) for column, span in zip(watermarks, spans, strict=True))
        head.append((group, runs_of(numbers.tolist()), spans))
    header = json.dumps([head, encode_rows(texts)], separators=(",", ":")).encode()
    return zlib.compress(b"".join([header, b"\n", *planes]))


@functools.lru_cache(maxsize=_CACHED_TASKS)
def unpack_control(packed: bytes) -> tuple[ControlRow, ...]:
    """Read the output of `pack_control`: the rows that a bucket needs, in no order; rows of groups have no offsets.

    The last results are cached: the buckets of a process get the same rows, one after another.
    """
    header, _, planes = zlib.decompress(packed).partition(b"\n")
    head, texts = json.loads(header)
    rows = decode_rows(texts)
    at = 0
    for group_fields, runs, spans in head:
        group = _Group(*group_fields)
        names = [f"{group.prefix}{number}" for number in numbers_of(runs)]
        for kind in map(ControlKind, group.kinds):
            barrier = {"snapshot": group.snapshot, "channels": group.channels} if kind is ControlKind.BARRIER else {}
            rows += (ControlRow(kind=kind, channel=name, source=group.source, **barrier) for name in names)
        for key, span in zip(group.keys, starmap(_Span, spans), strict=True):
            size = span.width * -(-len(names) // 8)
            column = _column(planes[at : at + size], len(names), span)
            at += size
            rows += (
                ControlRow(kind=ControlKind.WATERMARK, channel=name, source=group.source, key=key, watermark_ms=ms)
                for name, ms in zip(names, column, strict=True)
            )
    return tuple(rows)


def _grouped(channel_rows: Sequence[ControlRow]) -> tuple[_Group, tuple[int, ...]] | None:
    """Return the group of a channel's rows, and the channel's number and watermarks; None if the rows stay texts."""
    numbered = split_name(channel_rows[0].channel or "")
    if numbered is None:
        return None
    kinds: list[str] = []
    watermarks: dict[int, list[int]] = {}
    before = None
    for row in channel_rows:
        place = ORDER[row.kind]
        if before is not None and place < before:
            return None
        if row.key is not None and row.watermark_ms is not None:
            of_key = watermarks.get(row.key, [])
            if of_key and row.watermark_ms <= of_key[-1]:
                return None
            watermarks[row.key] = [*of_key[:1], row.watermark_ms]
        elif place == before:
            return None
        else:
            kinds.append(row.kind.value)
        before = place
    keys = sorted(watermarks)
    last = channel_rows[-1]  # the barrier, if there is one
    columns = tuple(key for key in keys for _ in watermarks[key])
    group = _Group(numbered[0], channel_rows[0].source or "", tuple(kinds), last.snapshot, last.channels, columns)
    return group, (numbered[1], *(ms for key in keys for ms in watermarks[key]))


def _turn(row: ControlRow) -> tuple[int, int, int, int]:
    """The order of a channel's rows (docs/design/rows.md)."""
    return (-1 if row.offset is None else row.offset, ORDER[row.kind], row.key or 0, row.watermark_ms or 0)


def _span(column: Ints) -> _Span:
    lowest = int(column.min())
    distances = _distances(column, lowest)
    step = int(np.gcd.reduce(distances)) or 1
    return _Span(lowest, step, (int(distances.max()) // step).bit_length())


def _planes(column: Ints, span: _Span) -> bytes:
    """The steps above the lowest, plane of bits by plane, each filled up to whole bytes."""
    steps = _distances(column, span.lowest) // np.uint64(span.step)
    bits = steps >> np.arange(span.width, dtype=np.uint64)[:, None] & np.uint64(1)
    return np.packbits(bits.astype(np.bool_), axis=1).tobytes()


def _column(planes: bytes, count: int, span: _Span) -> list[int]:
    """The inverse of `_planes`."""
    packed = np.frombuffer(planes, np.uint8).reshape(span.width, -(-count // 8))
    bits = np.unpackbits(packed, axis=1, count=count).astype(np.uint64)
    steps = (bits << np.arange(span.width, dtype=np.uint64)[:, None]).sum(axis=0, dtype=np.uint64)
    return (steps * np.uint64(span.step) + _unsigned(span.lowest)).view(np.int64).tolist()


def _distances(column: Ints, lowest: int) -> np.ndarray:
    """Return how far these are above the lowest, modulo 2^64, since times can be more than 63 bits apart."""
    return column.view(np.uint64) - _unsigned(lowest)


def _unsigned(number: int) -> np.uint64:
    return np.uint64(number % 2**64)
