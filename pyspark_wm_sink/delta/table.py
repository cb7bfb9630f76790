"""The Delta table: open, check, create, read records, append. All calls to deltalake's log are in this file.

Rule: one commit carries a batch's files, its application transaction and its record, so they become visible together
or not at all. deltalake rejects a commit when another one has changed the same application id meanwhile: this fences.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import takewhile

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.exceptions import DeltaError
from deltalake.fs import DeltaStorageHandler
from deltalake.transaction import AddAction

from keyedwm.core.errors import InputError, UnavailableError
from pyspark_wm_sink.batch.record import METADATA_KEY, Published, Record
from pyspark_wm_sink.delta.features import check_features
from pyspark_wm_sink.delta.library_errors import access_error, unread_feature
from pyspark_wm_sink.delta.stage import DeltaFile
from pyspark_wm_sink.tables.library_errors import one_line, shown_cause
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
    """Return the table schema for these columns; raises InputError naming the first that Delta has no type for."""
    for field in schema:
        _check_holds(field)
    return Schema.from_arrow(schema)


def arrow_schema(schema: Schema) -> pa.Schema:
    """Inverse of `delta_schema`."""
    return pa.schema([field.remove_metadata() for field in pa.schema(schema.to_arrow())])


def check_names(rows_schema: Schema) -> None:
    """Reject columns of a new table whose names Spark takes in no table."""
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

    merge: columns that the table lacks will be added, columns that the rows lack become null. overwrite: its rows go.
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
    """Add the columns, and fields of structs, that the table lacks; says whether there were any.

    Its own commit: a batch that is then published, rejected or tried again finds the columns there, null so far.
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

    Its own commit, so that two creators cannot both have rows in a table whose schema the second one replaced.
    """
    DeltaTable.create(
        path, schema, mode="error", partition_by=list(partition_by) or None, storage_options=dict(storage)
    )


def published_batch(table: DeltaTable, query: str) -> int | None:
    """Return the newest batch of this query that is in the table."""
    return table.transaction_version(query)


def newest_record(table: DeltaTable, query: str, batch: int | None = None) -> Record | None:
    """Return this query's newest record, or the one of `batch`; None if the history no longer reaches it."""
    for limit in _LOOK_BACK:
        commits = table.history(limit)
        for record in _records(commits):
            if record.query == query and (batch is None or record.batch == batch):
                return record
        if limit is None or len(commits) < limit:
            return None
    return None


def is_restored_behind(table: DeltaTable, query: str) -> bool:
    """Whether the table holds an older version again (RESTORE), in which rows of this query's newest record are not.

    Delta keeps application transactions through a RESTORE, so the newest batch alone does not show it.
    """
    for limit in _LOOK_BACK:
        commits = table.history(limit)
        newer = list(takewhile(lambda one: all(record.query != query for record in _records([one])), commits))
        if len(newer) < len(commits):
            return _is_cut_off(newer, commits[len(newer)]["version"])
        if limit is None or len(commits) < limit:
            return False
    return False


def _is_cut_off(newer: Sequence[Mapping], version: int) -> bool:
    """Whether the commits, the newest first, lead back behind this version; a RESTORE to a later one can lead on."""
    seen_from = None
    for commit in newer:
        if commit.get("operation") != "RESTORE" or (seen_from is not None and commit["version"] > seen_from):
            continue
        target = _restored_to(commit)
        if target is None or target < version:  # of a restore to a point in time only that is known
            return True
        seen_from = target
    return False


def newest_commit(table: DeltaTable) -> str:
    """Name the newest commit: its version, what it did, and by which library."""
    newest = table.history(1)[0]
    return f"version {newest['version']} ({newest.get('operation')} by {newest.get('engineInfo', 'an unknown engine')})"


def holds_attempt(table: DeltaTable, attempt: str) -> bool:
    """Whether a commit of the table is the one of this attempt."""
    return any(any(record.attempt == attempt for record in _records(table.history(limit))) for limit in _LOOK_BACK)


def newest_records(table: DeltaTable, most: int) -> list[Published]:
    """Return the newest records of keyedwm in the table, at most `most`, oldest first. Raises UnavailableError."""
    try:
        history = table.history()
    except (DeltaError, OSError) as error:  # files of the log have gone since the table was opened
        raise UnavailableError(
            f"the log of the Delta table {table.table_uri} could not be read: {one_line(error)}"
        ) from shown_cause(error)
    commits = [commit for commit in history if METADATA_KEY in commit][:most]
    return [
        Published(commit["version"], commit["timestamp"], Record.from_json(commit[METADATA_KEY]))
        for commit in reversed(commits)
    ]


def newest_of_each_query(table: DeltaTable) -> dict[str, Record]:
    """Return the newest record of each query whose rows are there, as far back as the table's history reaches."""
    newest: dict[str, Record] = {}
    for record in _records(_valid_commits(table.history())):
        if record.query is not None:
            newest.setdefault(record.query, record)
    return newest


def _valid_commits(commits: Sequence[Mapping]) -> list[Mapping]:
    """The commits, the newest first, without those that a RESTORE took out; none behind one to a point in time."""
    valid: list[Mapping] = []
    seen_from: int | None = None
    for commit in commits:
        if seen_from is not None and commit["version"] > seen_from:
            continue
        valid.append(commit)
        if commit.get("operation") == "RESTORE":
            target = _restored_to(commit)
            if target is None:
                break
            seen_from = target
    return valid


def _restored_to(commit: Mapping) -> int | None:
    """The version that a RESTORE brought back; None of one to a point in time, which does not say it."""
    target = str(commit.get("operationParameters", {}).get("version"))
    return int(target) if target.isdigit() else None


def _records(commits: Sequence[Mapping]) -> Iterator[Record]:
    return (Record.from_json(commit[METADATA_KEY]) for commit in commits if METADATA_KEY in commit)


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
