"""The Delta table: open, check, create, read records, append. All calls to deltalake's log are in this file.

Rule: one commit carries a batch's files, its application transaction and its record, so they become visible together
or not at all. deltalake refuses a commit when another one has changed the same application id meanwhile: this fences.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import takewhile

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.exceptions import DeltaError
from deltalake.fs import DeltaStorageHandler
from deltalake.transaction import AddAction

from keyedwm.core.errors import InputError, UnavailableError
from pyspark_wm_sink.delta.library_errors import access_error, one_line, shown_cause
from pyspark_wm_sink.delta.stage import StagedFile
from pyspark_wm_sink.record import METADATA_KEY, Record

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


def _check_holds(field: pa.Field) -> None:
    try:
        Schema.from_arrow(pa.schema([field]))
    except Exception as error:  # deltalake raises a bare Exception here
        raise InputError(
            f"column {field.name} has type {field.type}, which a Delta table cannot hold ({one_line(error)})"
        ) from error


def check_table(
    table: DeltaTable, wanted: Schema, partition_by: Sequence[str], *, merge: bool, overwrite: bool
) -> None:
    """Refuse a table that these rows do not fit; raises InputError that names the columns which differ.

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
    unsupported = sorted(_unsupported_features(table))
    if unsupported:
        raise InputError(
            f"{where} requires writer features that this version does not support: {', '.join(unsupported)}"
        )
    here, there = _columns(wanted), _columns(table.schema())
    spelled = {name.lower(): name for name in there}
    otherwise = [name for name in here if spelled.get(name.lower(), name) != name]
    differs = [f"{name}: spelled {spelled[name.lower()]} in the table" for name in otherwise]
    if not merge:
        differs += [f"{name}: {here[name]} in the rows, missing in the table" for name in here if name not in there]
        differs += [f"{name}: {there[name]} in the table, missing in the rows" for name in there if name not in here]
    differs += [
        f"{name}: {here[name]} in the rows, {there[name]} in the table"
        for name in here
        if name in there and here[name] != there[name]
    ]
    differs += [f"{name}: not null in the table" for name in _never_null("", json.loads(table.schema().to_json()))]
    if differs:
        fix = "" if merge else "; mergeSchema=true adds columns that are missing"
        raise InputError(f"{where} has another schema than the rows ({'; '.join(differs)}); nothing was written{fix}")


def add_missing(table: DeltaTable, wanted: Schema) -> bool:
    """Add the columns that the table lacks, and say whether there were any; raises deltalake's own errors.

    Its own commit: a batch that is then published, or refused, or tried again finds them there, null so far.
    """
    there = _columns(table.schema())
    missing = [field for field in wanted.fields if field.name not in there]
    if missing:
        table.alter.add_columns(missing)
    return bool(missing)


def _unsupported_features(table: DeltaTable) -> Iterator[str]:
    """The table's settings that appending files without deltalake's own writer would violate."""
    configuration = table.metadata().configuration
    for name, value in configuration.items():
        if name.startswith("delta.constraints.") or (name == "delta.columnMapping.mode" and value != "none"):
            yield name
    for field in table.schema().fields:
        for name in field.metadata:
            if name in {"delta.invariants", "delta.generationExpression"} or name.startswith("delta.identity."):
                yield f"{name} of column {field.name}"


def _columns(schema: Schema) -> dict[str, str]:
    """Each column's type as text, without nullability, which may differ between rows and table."""
    return {field["name"]: _plain(field["type"]) for field in json.loads(schema.to_json())["fields"]}


def _never_null(name: str, kind: object) -> Iterator[str]:
    """Yield the columns that the table declares as not null, nested fields with dots."""
    if not isinstance(kind, dict):
        return
    parts = [(field["name"], field["nullable"], field["type"]) for field in kind.get("fields", ())]
    if kind["type"] == "array":
        parts = [("element", kind["containsNull"], kind["elementType"])]
    if kind["type"] == "map":
        parts = [("key", True, kind["keyType"]), ("value", kind["valueContainsNull"], kind["valueType"])]
    for part, nullable, of_part in parts:
        where = f"{name}.{part}" if name else part
        if not nullable:
            yield where
        yield from _never_null(where, of_part)


def _plain(kind: object) -> str:
    if isinstance(kind, str):
        return kind
    return json.dumps(_stripped(kind), separators=(",", ":"))


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

    Delta keeps application transactions through a RESTORE, so the newest batch alone does not tell.
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
        target = str(commit.get("operationParameters", {}).get("version"))
        if not target.isdigit() or int(target) < version:  # of a restore to a point in time only that is known
            return True
        seen_from = int(target)
    return False


def holds_attempt(table: DeltaTable, attempt: str) -> bool:
    """Whether a commit of the table is the one of this attempt."""
    return any(any(record.attempt == attempt for record in _records(table.history(limit))) for limit in _LOOK_BACK)


def newest_records(table: DeltaTable, most: int) -> list[tuple[int, Record]]:
    """Return the newest records of keyedwm in the table with their versions, at most `most`, oldest first."""
    commits = [commit for commit in table.history() if METADATA_KEY in commit][:most]
    return [(commit["version"], Record.from_json(commit[METADATA_KEY])) for commit in reversed(commits)]


def _records(commits: Sequence[Mapping]) -> Iterator[Record]:
    return (Record.from_json(commit[METADATA_KEY]) for commit in commits if METADATA_KEY in commit)


def append(table: DeltaTable, files: Iterable[StagedFile], record: Record, *, overwrite: bool) -> None:
    """Publish: files, application transaction and record in one commit; raises deltalake's own errors."""
    actions = [
        AddAction(
            path=file.name,
            size=file.size,
            partition_values=dict(file.partition),
            modification_time=file.modified_ms,
            data_change=True,
            stats=file.stats,
        )
        for file in files
    ]
    fence = []
    if record.query is not None and record.batch is not None:
        fence = [Transaction(record.query, record.batch)]
    table.create_write_transaction(
        actions,
        "overwrite" if overwrite else "append",
        table.schema(),
        partition_by=list(table.metadata().partition_columns) or None,
        commit_properties=CommitProperties(
            custom_metadata={METADATA_KEY: record.to_json()}, app_transactions=fence or None
        ),
    )
