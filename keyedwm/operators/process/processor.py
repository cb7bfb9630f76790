"""A user's own operator: rows in, tables out, and tables held between batches (`keyedwm.spark.process`).

Rule: a processor is a function of its calls and of its state, so that a batch that runs again gives the same rows. It
uses no clock except `on_timer`, no random numbers, and keeps nothing on the instance, which lives for a batch. The
input can be cut in any way; a processor whose results depend on the cut is wrong, and the package cannot detect it.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

from keyedwm.core.errors import FormatError, InputError
from keyedwm.operators.keyed.key_watermark_log import KEYS_LOG, is_own
from keyedwm.operators.state.manifest import MANIFEST
from keyedwm.operators.state.store import StateLimits, TableLogs
from keyedwm.operators.state.table import SlicedTable, StateTable

# A column of rows whose keys have their own watermarks: the effective watermark of the row's key at the start of the
# batch, in ms.
KEY_WATERMARK = "key_watermark_ms"
# Columns beside the keys' in `Processor.on_key_watermark`.
RISEN = ("before_ms", "watermark_ms")


class ProcessState:
    """State of a processor between batches: logs of tables by name, and a few facts.

    A log is read only on request. facts: values of JSON, by name, read and written with every batch.
    """

    def __init__(self, logs: TableLogs, facts: dict[str, Any], schemas: dict[str, int]) -> None:
        """schemas: log → the digest of its tables' schema, if known."""
        self._logs = logs
        self.facts = facts
        self.schemas = schemas

    @property
    def limits(self) -> StateLimits:
        """The limits of the store."""
        return self._logs.limits

    def logs(self, prefix: str = "") -> list[str]:
        """Return the names of the logs with this prefix, in order."""
        return sorted(name for name in self._logs.names(prefix) if not is_own(name, KEYS_LOG))

    def count(self, log: str) -> int:
        """Return how many rows a log has, without reading it."""
        return self._logs.rows.get(log, 0)

    def read(self, log: str) -> pa.Table | None:
        """Return all rows of a log, in the order in which they were appended; None if there is no such log."""
        tables = self._logs.read(log)
        return joined(log, tables) if tables else None

    def append(self, log: str, table: pa.Table) -> None:
        """Add rows to a log, without reading it. All rows of a log have one schema."""
        _check_log(log)
        if not isinstance(table, pa.Table):
            raise InputError(
                f"process: {type(table).__name__} was appended to the log {log!r}, an Arrow table is expected"
            )
        if table.num_rows:
            self._check_schema(log, table.schema)
            self._logs.declare(log, lambda tables: joined(log, tables).combine_chunks())
            self._logs.append(log, table)

    def replace(self, log: str, table: pa.Table) -> None:
        """Replace the rows of a log."""
        self.drop(log)
        self.append(log, table)

    def drop(self, log: str) -> None:
        """Remove a log."""
        self._logs.drop(log)

    def table(self, log: str) -> StateTable:
        """Return a log as a table whose rows have a fixed schema, so that no schema is compared."""
        return StateTable(self._logs, log)

    def slices(self, prefix: str) -> SlicedTable:
        """Return the logs with this prefix as a sliced table; see `table`."""
        return SlicedTable(self._logs, prefix)

    def known_schemas(self) -> dict[str, int]:
        """Return the digests of the schemas of logs that exist."""
        return {log: digest for log, digest in self.schemas.items() if log in self._logs.rows}

    def _check_schema(self, log: str, schema: pa.Schema) -> None:
        digest = _digest(schema)
        if log in self._logs.rows and self.schemas.get(log) != digest:
            # The schema of a log that was moved, or is older than these facts, is unknown: read it once.
            schemas = [table.schema for table in self._logs.read(log)]
            if any(_digest(one) != digest for one in schemas):
                raise _of_several(log, [*schemas, schema])
        self.schemas[log] = digest


class Processor:
    """The base of a user's operator: one instance serves one bucket of keys in one batch.

    Override the methods that you need. `state` and `watermarks_ms`, the last watermark of each input or None, are there
    before the first call. `watermark_ms` is the lowest of them, None until each input has one. Every answer is an
    iterable of Arrow tables with the columns of the result's schema and `event_time`. late_rows: count late rows here,
    if the processor drops them. next_timer_ms: when `on_timer` must be called, if the class has `uses_clock = True`.
    version: raise it when the new code cannot use the state of the old code.
    """

    uses_clock = False
    version = 1
    state: ProcessState
    watermarks_ms: tuple[int | None, ...] = (None,)
    watermark_ms: int | None = None
    late_rows = 0
    next_timer_ms: int | None = None

    def on_rows(self, input_number: int, rows: pa.Table) -> Iterable[pa.Table]:
        """Process event rows of an input, in order of task; rows below the last watermark of the input are late."""
        raise NotImplementedError

    def on_watermark(self, input_number: int, key: int, time_ms: int) -> Iterable[pa.Table]:  # noqa: ARG002
        """Called before and after the rows of a batch: from now on, rows of the input below `time_ms` are late."""
        return ()

    def on_key_watermark(self, input_number: int, keys: pa.Table) -> Iterable[pa.Table]:  # noqa: ARG002
        """Called after the rows of a batch: from now on, rows of these keys below their `watermark_ms` are late.

        Only with `key_watermark`; keys: the columns that own a watermark, `before_ms`, null if there was none, and
        `watermark_ms`. `on_watermark` and `watermark_ms` then have `W - behind`, which counts for every key.
        """
        return ()

    def on_idle(self, input_number: int) -> Iterable[pa.Table]:  # noqa: ARG002
        """All partitions of the input are silent."""
        return ()

    def on_barrier(self, snapshot: int) -> Iterable[pa.Table]:  # noqa: ARG002
        """The batch ends: all rows of this snapshot were processed."""
        return ()

    def on_timer(self, now_ms: int) -> Iterable[pa.Table]:  # noqa: ARG002
        """Wall-clock time has reached `now_ms`."""
        return ()

    def output_watermark_ms(self, watermark_ms: int) -> int:
        """Return the watermark to pass on: lower than the inputs' lowest watermark if rows are emitted later."""
        return watermark_ms


def joined(log: str, tables: Sequence[pa.Table]) -> pa.Table:
    """Return the tables of a log as one; raise InputError if they are of several schemas."""
    try:
        return pa.concat_tables(tables)
    except pa.ArrowInvalid as error:
        raise _of_several(log, [table.schema for table in tables]) from error


def _digest(schema: pa.Schema) -> int:
    return zlib.crc32(schema.to_string(show_field_metadata=False, show_schema_metadata=False).encode())


def _of_several(log: str, schemas: Sequence[pa.Schema]) -> InputError:
    listing = " and ".join(dict.fromkeys(str(schema).replace("\n", ", ") for schema in schemas))
    return InputError(
        f"process: the log {log!r} would hold tables of several schemas ({listing}): append tables of one "
        "schema to it, or give the others a log of their own"
    )


def _check_log(log: str) -> None:
    if not isinstance(log, str) or not log or log == MANIFEST or is_own(log, KEYS_LOG) or "+" in log:
        raise FormatError(f"process: a log cannot be called {log!r}: any other name without '+' would do")
