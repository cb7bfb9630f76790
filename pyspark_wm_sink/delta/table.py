"""The Delta table: open, check, create, read records, append. All calls to deltalake's log are in this file.

Rule: one commit carries a batch's files, its application transaction and its record, so they become visible together or
not at all. deltalake rejects a commit if another one has changed the same application id meanwhile. So older runs are
fenced.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.exceptions import DeltaError
from deltalake.fs import DeltaStorageHandler
from deltalake.transaction import AddAction

from keyedwm.core.errors import InputError, UnavailableError
from pyspark_wm_sink.batch.record import METADATA_KEY, Record
from pyspark_wm_sink.delta.features import check_features
from pyspark_wm_sink.delta.library_errors import access_error, unread_feature
from pyspark_wm_sink.delta.stage import DeltaFile
from pyspark_wm_sink.tables.library_errors import one_line, shown_cause
from pyspark_wm_sink.tables.log import Commit, NewestBatch, TableLog
from pyspark_wm_sink.tables.schema_check import ODD_NAME, Fields, fit_or_refuse, odd_names

# How many commits of the history are searched for the record, step by step: it is nearly always in the newest.
_LOOK_BACK: tuple[int | None, ...] = (1, 32, 1_024, None)
_TORN = "Json error"  # deltalake has no exception of its own for an entry that is not JSON
_NULLABILITY = ("nullable", "containsNull", "valueContainsNull", "metadata")


def open_table(path: str, storage: Mapping[str, str]) -> DeltaTable | None:
    """Open the table at its latest version, None if there is none.

    Raises OptionError for an address that deltalake does not know, InputError for a damaged log, UnavailableError.
    """
    try:
        if "://" in path:
            DeltaStorageHandler(path, dict(storage))  # for an unknown scheme the question below is answered with no
        if not DeltaTable.is_deltatable(path, dict(storage)):
            return None
        return DeltaTable(path, storage_options=dict(storage))
    except (DeltaError, OSError) as error:
        if (refused := access_error(path, error)) is not None:
            raise refused from shown_cause(error)
        if (feature := unread_feature(error)) is not None:
            raise InputError(
                f"the Delta table {path} has the feature {feature}, which deltalake does not read: drop it (ALTER "
                f"TABLE ... DROP FEATURE), or write to another table"
            ) from shown_cause(error)
        if _TORN in str(error):
            raise InputError(
                f"the log of the Delta table {path} is damaged ({one_line(error)}): restore its last entry"
            ) from shown_cause(error)
        raise UnavailableError(f"the Delta table {path} could not be opened: {one_line(error)}") from shown_cause(error)


def delta_schema(schema: pa.Schema) -> Schema:
    """Return the table schema for these columns; raises InputError for the first without a type in Delta."""
    for field in schema:
        _check_holds(field)
    return Schema.from_arrow(schema)


def arrow_schema(schema: Schema) -> pa.Schema:
    """Inverse of `delta_schema`."""
    return pa.schema([field.remove_metadata() for field in pa.schema(schema.to_arrow())])


def check_names(rows_schema: Schema) -> None:
    """Reject columns of a new table whose names no table of Spark can have."""
    odd = [name for field in _fields(rows_schema) for name in odd_names(field["name"], field)]
    if odd:
        raise InputError(
            f"column {odd[0]!r} cannot be in a new Delta table, because {ODD_NAME}: rename it, for example "
            f".withColumnRenamed({odd[0]!r}, {re.sub('[^A-Za-z0-9_.]+', '_', odd[0]).strip('_')!r})"
        )


def _check_holds(field: pa.Field) -> None:
    try:
        Schema.from_arrow(pa.schema([field]))
    except Exception as error:  # deltalake raises a bare Exception here
        raise InputError(
            f"column {field.name} has type {field.type}, which a Delta table cannot hold ({one_line(error)})"
        ) from error


def check_table(
    table: DeltaTable, rows_schema: Schema, partition_by: Sequence[str], *, merge: bool, overwrite: bool
) -> Schema:
    """Reject a table that these rows do not fit; returns the columns as they are written.

    merge: columns that the table lacks will be added, columns that the rows lack become null. overwrite: the batch
    replaces its rows.
    """
    where = f"the Delta table {table.table_uri}"
    if overwrite and table.metadata().configuration.get("delta.appendOnly", "").lower() == "true":
        raise InputError(f"{where} has delta.appendOnly=true, so its rows cannot be replaced: append, or unset it")
    if list(table.metadata().partition_columns) != list(partition_by):
        names = ", ".join(table.metadata().partition_columns) or "nothing"
        raise InputError(
            f"{where} is partitioned by {names}, option partitionBy says {', '.join(partition_by) or 'nothing'}: leave "
            f"the option out, or write to another table"
        )
    check_features(table, where)
    there = _fields(table.schema())
    fitted = fit_or_refuse(where, _fields(rows_schema), there, merge=merge)
    return Schema.from_json(json.dumps({"type": "struct", "fields": fitted.fields}))


def add_missing(table: DeltaTable, rows_schema: Schema) -> bool:
    """Add the columns, and fields of structs, that the table lacks; return whether there were any.

    It is a separate commit: a batch that is published, rejected or tried again finds the columns, with nulls so far.
    Raises deltalake's own errors.
    """
    there = columns_of(table.schema())
    missing = [
        field for field in rows_schema.fields if there.get(field.name) != columns_of(Schema([field]))[field.name]
    ]
    if missing:
        table.alter.add_columns(missing)
    return bool(missing)


def columns_of(schema: Schema) -> dict[str, str]:
    """Each column's type as text, without nullability, which may differ between rows and table."""
    return {field["name"]: json.dumps(_stripped(field["type"])) for field in _fields(schema)}


def _fields(schema: Schema) -> Fields:
    return json.loads(schema.to_json())["fields"]


def _stripped(value: object) -> object:
    if isinstance(value, dict):
        return {name: _stripped(part) for name, part in value.items() if name not in _NULLABILITY}
    return [_stripped(part) for part in value] if isinstance(value, list) else value


def create(path: str, storage: Mapping[str, str], schema: Schema, partition_by: Sequence[str]) -> None:
    """Create the table empty; raises DeltaError when another writer has created it meanwhile.

    It is a separate commit, so that two creators cannot both have rows in a table whose schema the second one replaced.
    """
    DeltaTable.create(
        path, schema, mode="error", partition_by=list(partition_by) or None, storage_options=dict(storage)
    )


class DeltaLog(TableLog):
    """The log of a Delta table."""

    def __init__(self, table: DeltaTable) -> None:
        self._table = table
        self._history = functools.cache(self._read_history)

    def commits(self) -> Iterator[Commit]:
        """Yield the commits; the first of them costs one file of the log."""
        return (commit for commit, _ in self._walk())

    def _walk(self) -> Iterator[tuple[Commit, bool]]:
        """Yield each commit, and whether a restore may have removed commits before it, too."""
        highest: int | None = None  # of the versions that the table has again
        is_known = True  # not after a RESTORE to a point in time
        older = 0
        for limit in _LOOK_BACK:
            history = self._history(limit)
            for commit in history[older:]:
                version = commit["version"]
                is_current = is_known and (highest is None or version <= highest)
                if is_current and commit.get("operation") == "RESTORE":
                    highest = _restored_to(commit)
                    is_known = highest is not None
                yield Commit(
                    version=version, at_ms=commit.get("timestamp"), name=_name(commit), text=commit.get(METADATA_KEY),
                    is_current=is_current if is_known or is_current else None,
                ), not is_known or (highest is not None and highest < version - 1)  # fmt: skip
            if limit is None or len(history) < limit:
                return
            older = len(history)

    def newest(self, query: str) -> NewestBatch | None:
        """Return the newest batch by its application transaction, which a RESTORE does not remove."""
        batch = self._table.transaction_version(query)
        if batch is None:
            return None
        is_restored_behind = False
        for commit, is_restored_behind in self._walk():  # noqa: B007 - of the log's oldest commit it is used below
            if (record := commit.record_of(query)) is not None:
                return NewestBatch(
                    batch=batch, record=record, version=commit.version, is_restored_behind=not commit.is_current
                )
        return NewestBatch(batch=batch, record=None, version=None, is_restored_behind=is_restored_behind)

    def _read_history(self, limit: int | None) -> list[dict[str, Any]]:
        try:
            return self._table.history(limit)
        except (DeltaError, OSError) as error:  # files of the log have gone since the table was opened
            raise UnavailableError(
                f"the log of the Delta table {self._table.table_uri} could not be read: {one_line(error)}"
            ) from shown_cause(error)


def _name(commit: Mapping[str, Any]) -> str:
    return f"version {commit['version']} ({commit.get('operation')} by {commit.get('engineInfo', 'an unknown engine')})"


def _restored_to(commit: Mapping[str, Any]) -> int | None:
    """The version that a RESTORE brought back; None of one to a point in time, which does not name the version."""
    target = str(commit.get("operationParameters", {}).get("version"))
    return int(target) if target.isdigit() else None


def append(table: DeltaTable, files: Iterable[DeltaFile], record: Record, *, overwrite: bool) -> None:
    """Publish: files, application transaction and record in one commit; raises deltalake's own errors."""
    file_list = list(files)
    actions = [
        AddAction(
            path=file.name,
            size=file.size,
            partition_values=dict(file.partition),
            modification_time=file.modified_ms,
            data_change=True,
            stats=file.stats,
        )
        for file in file_list
    ]
    fence = []
    if record.query is not None and record.batch is not None:
        fence = [Transaction(record.query, record.batch)]
    metrics = {
        "numFiles": str(len(file_list)),
        "numOutputRows": str(sum(file.rows for file in file_list)),
        "numOutputBytes": str(sum(file.size for file in file_list)),
    }
    table.create_write_transaction(
        actions,
        "overwrite" if overwrite else "append",
        table.schema(),
        partition_by=list(table.metadata().partition_columns) or None,
        commit_properties=CommitProperties(
            custom_metadata={METADATA_KEY: record.to_json(), "operationMetrics": metrics},
            app_transactions=fence or None,
        ),
    )
