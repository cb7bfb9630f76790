"""The ids without a schema when a batch was first read, noted so that later reads of the batch find none, too.

Rule: `onBadValue=null` and `reject` make rows of values with an unknown id, which may be registered a moment later. So
a task notes the id in Kafka before it yields such a row, and reads the notes before its first row. Retries, replays and
recovery reads of the batch then give the same rows. A note belongs to one range of one batch: the next batch asks
again. Notes are metadata of committed offsets in a consumer group of their own.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from keyedwm.core.encoding import METADATA_BYTES
from keyedwm.core.errors import InputError, UnavailableError
from keyedwm.kafka.client.errors import Code
from keyedwm.kafka.client.values import Committed, TopicPartition
from pyspark_wm_source.values.offsets import STATE_TIMEOUT_MS
from pyspark_wm_source.values.ranges import ChannelRange, part_group

VERSION = 1
_MARK = f"keyedwm-unknown{VERSION}"
_CODE_DIGITS = 32


class Offsets(Protocol):
    """A client that commits and fetches offsets of consumer groups."""

    def commit_offsets(
        self, group: str, positions: Mapping[tuple[str, int], tuple[int, str]], *, timeout_ms: int | None = None
    ) -> Mapping[TopicPartition, Code]:
        """Commit offsets with metadata."""

    def fetch_offsets(
        self, group: str, partitions: Iterable[tuple[str, int]] | None, *, timeout_ms: int | None = None
    ) -> Mapping[TopicPartition, Committed]:
        """Return committed offsets."""


class Piece(NamedTuple):
    """Offsets from `start` up to `end`, and the names of the ids that are unknown there."""

    start: int
    end: int
    names: set[str]


@dataclass(frozen=True, slots=True)
class Notes:
    """The notes that count for one reader."""

    _ids: UnknownIds
    _indexes: Sequence[int]

    def pieces(self) -> list[Piece]:
        """Return the noted ids, by range. Raises UnavailableError."""
        return [self._ids.piece(index) for index in self._indexes]

    def add(self, names: Iterable[str]) -> None:
        """Note ids of the range that the task reads."""
        for index in self._indexes:
            self._ids.add(index, names)


class UnknownIds:
    """The unknown ids of the ranges that one task reads. key: the query's secret."""

    def __init__(
        self,
        offsets: Offsets,
        group: str,
        batch: int,
        ranges: Sequence[ChannelRange],
        key: bytes,
        *,
        writes: bool = True,
    ) -> None:
        self._offsets, self._batch, self._ranges, self._key = offsets, batch, ranges, key
        self._group, self._writes = group, writes
        self._names: dict[int, set[str]] | None = None

    def of(self, indexes: Sequence[int]) -> Notes:
        """Return the notes of a range, or of the parts in which it was read."""
        return Notes(self, indexes)

    def names(self, index: int) -> set[str]:
        """Return the notes of a range, which are fetched once for all ranges. Raises UnavailableError."""
        if self._names is None:
            self._names = self._fetched()
        return self._names[index]

    def add(self, index: int, names: Iterable[str]) -> None:
        """Note ids of a range. Raises UnavailableError, and InputError if they are too many."""
        noted, fresh = self.names(index), set(names)
        if fresh <= noted:
            return
        noted |= fresh
        if not self._writes:
            return
        task = self._ranges[index]
        group, note = self._group_of(task), self._note(task, noted)
        if len(note) > METADATA_BYTES:
            raise InputError(
                f"{task.channel}, offsets {task.start} to {task.end - 1}: {len(noted)} ids have no schema, and no note "
                f"has room for so many: check the format of the topic, or read fewer records a batch "
                "(maxOffsetsPerTrigger)"
            )
        code = self._offsets.commit_offsets(group, {task.channel: (task.end, note)}, timeout_ms=STATE_TIMEOUT_MS)
        if any(one is not Code.NONE for one in code.values()) or not code:
            raise UnavailableError(
                f"{task.channel}: an id without a schema could not be noted in consumer group {group} "
                f"({', '.join(one.name for one in code.values()) or 'no answer'}), so no row is made of its records"
            )

    def piece(self, index: int) -> Piece:
        """Return a range with its notes."""
        return Piece(self._ranges[index].start, self._ranges[index].end, self.names(index))

    def _fetched(self) -> dict[int, set[str]]:
        by_group: dict[str, list[int]] = {}
        for index, task in enumerate(self._ranges):
            by_group.setdefault(self._group_of(task), []).append(index)
        names = {index: set[str]() for index in range(len(self._ranges))}
        for group, indexes in by_group.items():
            channels = [self._ranges[index].channel for index in indexes]
            committed = self._offsets.fetch_offsets(group, channels, timeout_ms=STATE_TIMEOUT_MS)
            for index in indexes:
                position = committed.get(self._ranges[index].channel)
                if position is not None:
                    names[index] = self._read(self._ranges[index], position.metadata or "")
        return names

    def _group_of(self, task: ChannelRange) -> str:
        return part_group(self._group, task.part, task.parts)

    def _note(self, task: ChannelRange, names: Iterable[str]) -> str:
        text = ",".join(sorted(names))
        return f"{_MARK}:{self._code(task, text)}:{text}"

    def _read(self, task: ChannelRange, note: str) -> set[str]:
        """Read a note; return no ids for a note of another batch, range or query."""
        mark, _, rest = note.partition(":")
        code, _, text = rest.partition(":")
        is_ours = mark == _MARK and hmac.compare_digest(code.encode(), self._code(task, text).encode())
        return set(text.split(",")) if is_ours else set()

    def _code(self, task: ChannelRange, text: str) -> str:
        place = f"{self._group} {task.channel} {task.start} {task.end} {self._batch} {text}"
        return hmac.digest(self._key, place.encode(), "sha256").hex()[:_CODE_DIGITS]
