"""The records in an Iceberg table, and the commit that adds one. All calls of PyIceberg's transactions are here.

Rule: one commit carries a batch's files, its record in the snapshot's summary, and the record as a table property. So
they become visible together or not at all. The property stays when snapshots expire. The catalog rejects a commit if
the branch has another snapshot than the one that was read. So older runs are fenced. PyIceberg must not repeat a commit
by itself: the other writer may have been a twin that published the same batch.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Sequence

from pyiceberg.exceptions import BadRequestError, CommitFailedException, NoSuchTableError, ValidationException
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.table import Table, TableProperties, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import (
    AssertCurrentSchemaId,
    AssertDefaultSpecId,
    AssertTableUUID,
    SetSnapshotRefUpdate,
    TableRequirement,
    TableUpdate,
)
from pyiceberg.typedef import Record as Values
from pyiceberg.utils.properties import property_as_bool

from keyedwm.core.errors import FormatError
from keyedwm.core.parsing import parse_json, whole_number
from keyedwm.core.text import error_text
from pyspark_wm_sink.batch.record import METADATA_KEY, Record
from pyspark_wm_sink.iceberg.partitions import has_float_partitions
from pyspark_wm_sink.iceberg.stage import IcebergFile
from pyspark_wm_sink.tables.log import Commit, NewestBatch, TableLog

VERSION = 1  # of the table property
_RETENTION = ("min_snapshots_to_keep", "max_snapshot_age_ms", "max_ref_age_ms")
_OF_VALUES = (ValueError, TypeError, ArithmeticError, LookupError, AttributeError, struct.error)
_LOCKED = "Failed to acquire lock"  # PyIceberg's text for the lock of a Hive metastore
_TOO_OLD = "older than last sequence number"  # in the text of each catalog if another commit came first; no error type


class ConflictError(Exception):
    """Another commit came before an append."""


class AppendError(Exception):
    """An append failed, or had no answer."""


class RefusedError(Exception):
    """An append will never succeed: PyIceberg cannot write it."""


class IcebergLog(TableLog):
    """The snapshots of an Iceberg table, and the properties with the newest record of each query on a branch."""

    def __init__(self, table: Table, branch: str) -> None:
        self._table, self._branch = table, branch

    def commits(self) -> Iterator[Commit]:
        """Yield the snapshots that the branch leads back to, up to one that has expired; then all others."""
        ancestors = list(_ancestors(self._table, self._branch))
        on_branch = {snapshot.snapshot_id for snapshot in ancestors}
        others = [snapshot for snapshot in self._table.snapshots() if snapshot.snapshot_id not in on_branch]
        yield from (_commit_of(snapshot, is_current=True) for snapshot in ancestors)
        for snapshot in sorted(others, key=_age, reverse=True):
            # The branch may lead back to an older one: an expired snapshot between them is no longer its parent.
            is_older = bool(ancestors) and _age(snapshot) < _age(ancestors[-1])
            yield _commit_of(snapshot, is_current=None if is_older else False)

    def newest(self, query: str) -> NewestBatch | None:
        """Return the newest batch by the table's property, or by a snapshot of the branch if that is newer or alone."""
        text = self._table.properties.get(_property(query, self._branch))
        if text is None:
            commits = (commit for commit in self.commits() if commit.is_current)
            records = ((commit.version, commit.record_of(query)) for commit in commits)
            version, record = next(((version, record) for version, record in records if record), (None, None))
            is_restored_behind = False
        else:
            record, version, sequence = _read(text)
            newer = self._newer(query, record, version, sequence)
            record, version = newer or (record, version)
            is_restored_behind = newer is None and self._is_restored_behind(query, record, version, sequence)
        if record is None or record.batch is None:
            return None
        return NewestBatch(batch=record.batch, record=record, version=version, is_restored_behind=is_restored_behind)

    def _newer(self, query: str, newest: Record, snapshot_id: int, sequence: int) -> tuple[Record, int] | None:
        """Return the record of a newer snapshot, which the query wrote to another branch; this one then followed it."""
        for at in _ancestors(self._table, self._branch):
            if at.snapshot_id == snapshot_id or (at.sequence_number or 0) < sequence:
                return None
            record = _commit_of(at, is_current=True).record_of(query)
            if record is not None:
                return (
                    None if sequence == 0 and (record.batch or 0) <= (newest.batch or 0) else (record, at.snapshot_id)
                )
        return None

    def queries(self) -> list[str]:
        """Return the queries that wrote to the branch, by their properties."""
        start = _property("", self._branch)
        return [name.removeprefix(start) for name in sorted(self._table.properties) if name.startswith(start)]

    def newest_commit(self) -> str:
        """Name the newest snapshot of the branch."""
        if self._table.snapshot_by_name(self._branch) is None:
            return f"one that left branch {self._branch} without a snapshot"
        return super().newest_commit()

    def _is_restored_behind(self, query: str, newest: Record, snapshot_id: int, sequence: int) -> bool:
        """Whether the branch is now at a state before this query's newest batch."""
        for at in _ancestors(self._table, self._branch):
            if at.snapshot_id == snapshot_id:
                return False
            if at.sequence_number is not None and at.sequence_number < sequence:
                return True
            if sequence == 0:  # version 1 numbers none
                earlier = _commit_of(at, is_current=True).record_of(query)
                if earlier is not None and (earlier.batch or 0) < (newest.batch or 0):
                    return True
        if self._table.snapshot_by_name(self._branch) is None:
            return True
        # Older snapshots have expired, perhaps also the snapshot of the batch.
        return sequence == 0 and self._table.snapshot_by_id(snapshot_id) is not None


def _commit_of(snapshot: Snapshot, *, is_current: bool | None) -> Commit:
    summary = snapshot.summary
    operation = "an unknown operation" if summary is None else summary.operation.value
    properties = {} if summary is None else summary.additional_properties
    return Commit(
        version=snapshot.snapshot_id,
        at_ms=snapshot.timestamp_ms,
        name=f"snapshot {snapshot.snapshot_id} ({operation} by {properties.get('engine-name', 'an unknown engine')})",
        text=properties.get(METADATA_KEY),
        is_current=is_current,
    )


def append(table: Table, files: Sequence[IcebergFile], record: Record, *, branch: str, overwrite: bool) -> None:
    """Publish in one commit.

    Raises ConflictError; RefusedError if the same commit will never succeed; AppendError if it may have happened in
    spite of the error.
    """
    try:
        _commit(table, files, record, branch=branch, overwrite=overwrite)
    except Exception as error:
        reason = str(error) if isinstance(error, _UnwritableError) else f"{type(error).__name__}: {error}"
        if _LOCKED in reason:
            reason += (
                ": another writer has the Hive metastore's lock of the table. The lock of a killed writer stays until "
                "the metastore removes it, after its metastore.txn.timeout"
            )
        raise _kind_of(error)(reason) from error


def _kind_of(error: Exception) -> type[Exception]:
    """Return the kind of error: another commit came first, this one will never succeed, or an answer is missing."""
    if isinstance(error, _UnwritableError | BadRequestError):
        return RefusedError
    is_behind = isinstance(error, CommitFailedException | ValidationException | NoSuchTableError)
    return ConflictError if is_behind or _TOO_OLD in str(error) else AppendError


class _UnwritableError(Exception):
    """PyIceberg found values that it cannot write, before it sent a request to the catalog."""


def _commit(table: Table, files: Sequence[IcebergFile], record: Record, *, branch: str, overwrite: bool) -> None:
    try:
        updates, requirements = _prepared(table, files, record, branch=branch, overwrite=overwrite)
    except OSError:  # of the store, though some are a ValueError as well
        raise
    except _OF_VALUES as error:
        raise _UnwritableError(f"{type(error).__name__}: {error}") from error
    table._do_commit(updates, requirements)  # noqa: SLF001 - a transaction of PyIceberg tries again by itself


def _prepared(
    table: Table, files: Sequence[IcebergFile], record: Record, *, branch: str, overwrite: bool
) -> tuple[tuple[TableUpdate, ...], tuple[TableRequirement, ...]]:
    """Write the manifests; return the changes for the catalog, and the requirements of these changes."""
    text = record.to_json()
    metadata = table.metadata
    transaction = _Uncopied(table)
    update = transaction.update_snapshot(
        branch=branch, snapshot_properties={METADATA_KEY: text, "engine-name": "keyedwm"}
    )
    if overwrite:
        producer = update.overwrite()
        for task in table.scan(snapshot_id=_head(table, branch)).plan_files() if _head(table, branch) else ():
            producer.delete_data_file(task.file)
    elif _joins_manifests(table):
        producer = update.merge_append()
    else:
        producer = update.fast_append()
    for file in files:
        producer.append_data_file(_data_file(file, metadata.default_spec_id))
    producer.commit()
    if record.query is not None:
        sequence = metadata.next_sequence_number()
        transaction.set_properties(
            {_property(record.query, branch): _property_text(text, producer.snapshot_id, sequence)}
        )
    requirements = (
        *transaction._requirements,  # noqa: SLF001 - as is the next
        AssertTableUUID(uuid=metadata.table_uuid),
        AssertCurrentSchemaId(current_schema_id=metadata.current_schema_id),
        AssertDefaultSpecId(default_spec_id=metadata.default_spec_id),
    )
    return tuple(_with_retention(update, metadata) for update in transaction._updates), requirements  # noqa: SLF001


def _joins_manifests(table: Table) -> bool:
    """Whether a commit joins manifests, as the table asks; never with float partitions, which it would round."""
    is_enabled = property_as_bool(table.properties, TableProperties.MANIFEST_MERGE_ENABLED, False)  # noqa: FBT003 - PyIceberg's
    return is_enabled and not has_float_partitions(table.metadata)


def _with_retention(update: TableUpdate, metadata: TableMetadata) -> TableUpdate:
    """Keep a branch's settings of retention, which PyIceberg's commits would remove."""
    branch = metadata.refs.get(update.ref_name) if isinstance(update, SetSnapshotRefUpdate) else None
    if branch is None:
        return update
    return update.model_copy(update={name: getattr(branch, name) for name in _RETENTION})


class _Uncopied(Transaction):
    """A transaction that hands out the metadata itself as long as it changes nothing.

    PyIceberg hands out a deep copy, thirteen times a commit: with a thousand snapshots this took over a second.
    """

    @property
    def table_metadata(self) -> TableMetadata:
        return super().table_metadata if self._updates else self._table.metadata


def _head(table: Table, branch: str) -> int | None:
    snapshot = table.snapshot_by_name(branch)
    return None if snapshot is None else snapshot.snapshot_id


def _data_file(file: IcebergFile, spec_id: int) -> DataFile:
    return DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=file.name,
        file_format=FileFormat.PARQUET,
        partition=Values(*file.partition),
        file_size_in_bytes=file.size,
        sort_order_id=None,
        spec_id=spec_id,
        equality_ids=None,
        key_metadata=None,
        **file.metrics,
    )


def _property(query: str, branch: str) -> str:
    return f"{METADATA_KEY}.{branch}.{query}"


def _property_text(record: str, snapshot_id: int, sequence: int) -> str:
    """Return the value of the property: the record, and the snapshot that contains the record too."""
    value = {"version": VERSION, "record": record, "snapshot-id": snapshot_id, "sequence-number": sequence}
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def _read(text: str) -> tuple[Record, int, int]:
    try:
        value = parse_json(text)
        version = whole_number(value["version"], "its version")
        if version != VERSION:
            raise FormatError(
                f"a table property {METADATA_KEY}.* of the table has format version {version}, "
                f"this keyedwm reads version {VERSION}"
            )
        snapshot_id = whole_number(value["snapshot-id"], "its snapshot")
        return Record.from_json(value["record"]), snapshot_id, whole_number(value["sequence-number"], "its sequence")
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise FormatError(f"a table property {METADATA_KEY}.* of the table is damaged: {error_text(error)}") from error


def _ancestors(table: Table, branch: str) -> Iterator[Snapshot]:
    """The snapshots that the branch leads back to, the newest first, up to one that has expired."""
    known = {snapshot.snapshot_id: snapshot for snapshot in table.snapshots()}
    at = table.snapshot_by_name(branch)
    while at is not None:
        yield at
        at = None if at.parent_snapshot_id is None else known.get(at.parent_snapshot_id)


def _age(snapshot: Snapshot) -> tuple[int, int]:
    return snapshot.sequence_number or 0, snapshot.timestamp_ms
