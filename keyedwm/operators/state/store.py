"""State of an operator: logs of tables in a blob store, where a batch appends and reads happen on demand.

Theory. A log is a sequence of Arrow tables under one name. Each table is one blob, a part of the log, numbered from 0:

    name     frame-7    frame-7+5   frame-7+6   frame-7+7      oldest part first
    bytes    130 KiB    40 KiB      3 KiB       2 KiB          larger parts stand before smaller ones

The operator declares what rows mean together (`table.py`): a reduce function adds the accumulators of a key, or keeps
its newest row. Rows mean the same in many parts and in one, so compaction may happen at any time, or never.

A batch ends with one call of `drain`, which does four things for each log with new rows:

1. Append. The new rows become one part behind the others. No older part is read.
2. Merge. Sizes are in classes: up to 4 KiB, and each next class 16 times as large. The 16th newest part of a class or
   smaller merges with the parts of its run, without parts beyond 128 KiB. So a row is rewritten about once for each
   class.
3. Reduce. A log of 8 MiB or more that has grown by half since the last try is merged as a whole. If that halves its
   size, the log is rewritten: many rows of the same keys become one. `tried` in the manifest is the size at the last
   try.
4. Cut. A table larger than 4 MiB is cut into several parts, since Spark writes a value as a whole.

`drain` returns the blobs that it wrote or removed, no others: an untouched log costs nothing, however large it
is. A log is read when the operator asks for it, and its decoded parts are kept for the life of the instance.

The manifest knows the rows of each log. A log with fewer rows, or without its blobs, is damaged, for example by
a lost file. Reading it raises DamagedError.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, cast

import pyarrow as pa

from keyedwm.config.validation import expect
from keyedwm.core.errors import OptionError
from keyedwm.core.text import short_repr
from keyedwm.operators.state.blobs import damaged, read_stored, stored

# Larger parts are few. They are merged with all others or not at all.
_PART_BYTES = 128 << 10
PART = "+"

Reduce = Callable[[Sequence[pa.Table]], pa.Table]  # merges several parts of a log, oldest first, into one table


@dataclass(frozen=True, slots=True, kw_only=True)
class StateLimits:
    """The limits of a state that no plan sets; they belong to its store, and no result depends on them.

    fan_out: this number of parts of one size class become one part of the next class, which is this many times as
    large: few parts to read, and rows are rewritten rarely. class_bytes: the largest size in the first class.
    whole_bytes: from this size on a log is merged as a whole. blob_bytes: the most bytes of a blob. few_rows, few_keys,
    few_changes: logs, dictionaries and tables up to this number of rows, keys or changes are not rewritten. piece_rows:
    the approximate number of messages in the panes or pairs of one output. result_rows, running_rows: the most rows in
    one output of a join, or of running aggregates.

    passed_keys: the average number of passed keys in a log, above which its slice continues in 16 times as many logs.
    passed_slices: the most slices of one width ahead of the watermark; slices beyond are twice as wide.

    For sessions without panes: the horizon advances by 1/session_steps of the span of all ends ahead, so all parts are
    read this many times per span. due_rows: the rows of a blob of due parts. session_shards: the number of parts by the
    hash of the key, from undivided_rows on: then the keys of late rows need few parts of `rest`.
    """

    fan_out: int = 16
    class_bytes: int = 4096
    whole_bytes: int = 8 << 20
    blob_bytes: int = 4 << 20
    few_rows: int = 1 << 10
    few_keys: int = 4096
    few_changes: int = 4096
    piece_rows: int = 1 << 20
    result_rows: int = 200_000
    running_rows: int = 1 << 16
    passed_keys: int = 1 << 16
    passed_slices: int = 128
    session_steps: int = 32
    due_rows: int = 4096
    session_shards: int = 16
    undivided_rows: int = 65_536

    def size_class(self, size: int) -> int:
        """Return the class of a blob of this size."""
        number = 0
        while size > self.class_bytes:
            size //= self.fan_out
            number += 1
        return number


LIMITS = StateLimits()


class BlobStore(Protocol):
    """The store of blobs: Spark's state, or memory. A store with an attribute `limits` has other `StateLimits`."""

    @property
    def sizes(self) -> Mapping[str, int]:
        """The names of all blobs and their sizes in bytes."""

    def get(self, name: str) -> bytes:
        """Read one blob; raise DamagedError if it is missing."""


class StateChanges(NamedTuple):
    """Changes of a batch: blobs to write, and the names of blobs to remove."""

    blobs: Mapping[str, bytes]
    removed: frozenset[str]


@dataclass(slots=True)
class MemoryStore:
    """Blobs in memory."""

    blobs: dict[str, bytes] = field(default_factory=dict)
    limits: StateLimits = LIMITS

    def __post_init__(self) -> None:
        expect("the blobs of a store", self.blobs, MutableMapping, "a dict of names and bytes")
        for name, blob in self.blobs.items():
            expect(f"the blob {name!r} of a store", blob, bytes, "bytes")

    @property
    def sizes(self) -> Mapping[str, int]:
        """The names of all blobs and their sizes in bytes."""
        return {name: len(blob) for name, blob in self.blobs.items()}

    def get(self, name: str) -> bytes:
        """Read one blob; raise DamagedError if it is missing."""
        if name not in self.blobs:
            raise damaged(name, "is missing")
        return self.blobs[name]

    def apply(self, changes: StateChanges) -> None:
        """Apply the changes of a batch."""
        self.blobs.update(changes.blobs)
        for name in changes.removed:
            del self.blobs[name]


def checked_store(store: object) -> MemoryStore:
    """Return the store, a new empty store for None; raise OptionError if it lacks a method of a store."""
    if store is None:
        return MemoryStore()
    if not all(hasattr(store, call) for call in ("sizes", "get", "apply")):
        raise OptionError(
            f"store is {short_repr(store)}: a MemoryStore() is expected, or an object with sizes, get and apply"
        )
    return cast("MemoryStore", store)


def limits_of(store: BlobStore) -> StateLimits:
    """Return the limits of a state in this store."""
    return getattr(store, "limits", LIMITS)


class TableLogs:
    """Logs by name. The first part of a log is a blob of its name, later ones are `NAME+1`, `NAME+2` and so on."""

    def __init__(self, store: BlobStore, *, manifest: str, state: Mapping[str, Any]) -> None:
        """manifest: the name of a blob that is no log. state: the result of `state`; older formats have fewer facts."""
        self._store = store
        self.limits = limits_of(store)
        self.rows: dict[str, int] = dict(state.get("rows", {}))  # the rows of each log, if known
        # Log → its bytes at the last try to merge it as a whole.
        self._tried_bytes: dict[str, int] = dict(state.get("tried", {}))
        self._parts: dict[str, dict[int, int]] = {}  # log → part number → bytes
        self._decoded: dict[str, pa.Table] = {}
        self._appended: dict[str, list[pa.Table]] = {}
        self._removed: set[str] = set()
        self._reduces: dict[str, Reduce] = {}  # by log
        self._compressions: dict[str, str | None] = {}
        self._prefixes: dict[str, Reduce] = {}  # by the prefix of several logs' names
        for name, size in store.sizes.items():
            if name == manifest:
                continue
            log, _, number = name.partition(PART)
            self._parts.setdefault(log, {})[int(number or 0)] = size
        for log in sorted(self.rows.keys() - self._parts.keys()):
            raise damaged(log, f"is missing, and held {self.rows[log]} rows")

    def state(self) -> dict[str, Any]:
        """Return the state beside the blobs, ready for JSON."""
        return {"rows": self.rows, "tried": self._tried_bytes}

    def declare(self, name: str, reduce: Reduce, *, is_prefix: bool = False, compression: str | None = None) -> None:
        """Declare the function that merges parts of a log. name: the log's name, or the prefix of several logs' names.

        compression: the compression of the log's stored parts.
        """
        (self._prefixes if is_prefix else self._reduces)[name] = reduce
        self._compressions[name] = compression

    def names(self, prefix: str) -> Iterator[str]:
        """Yield the logs whose names have this prefix."""
        logs = self._parts.keys() | self._appended.keys()
        return (name for name in logs if name.startswith(prefix))

    def append(self, log: str, table: pa.Table) -> None:
        """Add rows to a log."""
        self._appended.setdefault(log, []).append(table)
        self.rows[log] = self.rows.get(log, 0) + table.num_rows

    def read(self, log: str) -> list[pa.Table]:
        """Return the tables of a log, oldest first; none if the log does not exist."""
        parts = [self._part(log, number) for number in sorted(self._parts.get(log, ()))]
        tables = [*parts, *self._appended.get(log, ())]
        # Manifests of older formats may have fewer rows, never more.
        if (count := sum(table.num_rows for table in tables)) < (rows := self.rows.get(log, 0)):
            raise damaged(log, f"holds {count} rows of {rows}: a part of it is missing")
        return tables

    def drop(self, log: str) -> None:
        """Remove a log."""
        self._appended.pop(log, None)
        self.rows.pop(log, None)
        self._tried_bytes.pop(log, None)
        for number in self._parts.pop(log, ()):
            self._remove(_name(log, number))

    def replace(self, log: str, table: pa.Table) -> None:
        """Replace the rows of a log."""
        self.drop(log)
        self.append(log, table)

    def drain(self) -> StateChanges:
        """Return the changes since the last call."""
        blobs: dict[str, bytes] = {}
        for log, appended in self._appended.items():
            tables = list(appended)
            parts = self._parts.setdefault(log, {})
            due = self._due(parts, sum(table.nbytes for table in tables))
            tables[:0] = [self._part(log, number) for number in due]
            table = self._reduce(log, tables) if len(tables) > 1 else tables[0]
            for number in due:
                del parts[number]
                self._remove(_name(log, number))
            self.rows[log] += table.num_rows - sum(one.num_rows for one in tables)
            self._write(log, table, blobs)
            self._shrink(log, blobs)
        self._appended.clear()
        removed, self._removed = frozenset(self._removed - blobs.keys()), set()
        return StateChanges(blobs, removed)

    def _write(self, log: str, table: pa.Table, blobs: dict[str, bytes]) -> None:
        parts = self._parts[log]
        for piece in _pieces(table, self.limits.blob_bytes):
            number = max(parts, default=-1) + 1
            name = _name(log, number)
            blobs[name] = stored(name, piece, self._compressions.get(log))
            parts[number] = len(blobs[name])
            self._decoded[name] = piece

    def _reduce(self, log: str, tables: Sequence[pa.Table]) -> pa.Table:
        if log not in self._reduces:
            self._reduces[log] = next(one for name, one in self._prefixes.items() if log.startswith(name))
        return self._reduces[log](tables)

    def _shrink(self, log: str, blobs: dict[str, bytes]) -> None:
        """Rewrite a log that has grown by half, if merging rows of the same keys halves it."""
        parts = self._parts[log]
        size = sum(parts.values())
        if len(parts) < 2 or size < max(self.limits.whole_bytes, 3 * self._tried_bytes.get(log, 0) // 2):
            return
        table = self._reduce(log, [self._part(log, number) for number in sorted(parts)])
        if 2 * table.nbytes <= size:
            for number in list(parts):
                name = _name(log, number)
                if blobs.pop(name, None) is None:
                    self._remove(name)
            parts.clear()
            self.rows[log] = table.num_rows
            self._write(log, table, blobs)
        self._tried_bytes[log] = sum(parts.values())

    def _part(self, log: str, number: int) -> pa.Table:
        name = _name(log, number)
        if name not in self._decoded:
            self._decoded[name] = read_stored(name, self._store.get(name))
        return self._decoded[name]

    def _remove(self, name: str) -> None:
        self._decoded.pop(name, None)
        self._removed.add(name)

    def _due(self, parts: Mapping[int, int], size: int) -> list[int]:
        """Return the newest parts to merge with a new part of this size: none, or enough parts of its class."""
        newest = self.limits.size_class(size)
        due: list[int] = []
        for number in sorted(parts, reverse=True):
            if self.limits.size_class(parts[number]) > newest or parts[number] > _PART_BYTES:
                break
            due.append(number)
        return sorted(due) if len(due) + 1 >= self.limits.fan_out else []


def _name(log: str, number: int) -> str:
    return f"{log}{PART}{number}" if number else log


def _pieces(table: pa.Table, blob_bytes: int) -> Iterable[pa.Table]:
    """Cut a table so that no blob is much larger than `blob_bytes`."""
    count = max(1, -(-table.nbytes // blob_bytes))
    rows = max(1, -(-table.num_rows // count))
    return [table.slice(start, rows) for start in range(0, max(table.num_rows, 1), rows)]


def logs_of(blobs: Mapping[str, bytes]) -> TableLogs:
    """Return the logs among blobs, for reading only."""
    return TableLogs(MemoryStore(dict(blobs)), manifest="", state={})


def part_numbers(blobs: Sequence[Sequence[str]]) -> dict[tuple[int, str], int]:
    """Return a unique part number for each blob of each old bucket, ascending within a log."""
    numbers: dict[tuple[int, str], int] = {}
    for bucket, names in enumerate(blobs):
        for name in sorted(names, key=_place):
            numbers[bucket, name] = len(numbers) + 1  # the first part of a log has no number
    return numbers


def _place(name: str) -> tuple[str, int]:
    log, _, number = name.partition(PART)
    return log, int(number or 0)
