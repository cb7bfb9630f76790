"""The publication of a query to an Iceberg table: the checks before a row is written, and the table of a commit.

Rule: files hold the table's field ids, so the table is created, and columns are added to it, when the query starts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import pyarrow as pa
from pyiceberg import __version__ as pyiceberg_version
from pyiceberg.exceptions import CommitFailedException, NoSuchNamespaceError, TableAlreadyExistsError
from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType

from keyedwm.core.errors import InputError, OptionError
from pyspark_wm_sink.batch.record import Record
from pyspark_wm_sink.iceberg import table as iceberg
from pyspark_wm_sink.iceberg.catalog import (
    NO_LOGIN,
    CatalogAccessError,
    explaining,
    open_catalog,
    open_table,
    without_secrets,
)
from pyspark_wm_sink.iceberg.partitions import (
    add_terms,
    canonical,
    check_sources,
    has_float_partitions,
    has_lost_source,
    parse_term,
    spec_terms,
)
from pyspark_wm_sink.iceberg.schema import (
    changed_field,
    file_columns,
    keep_table_types,
    rows_fields,
    table_fields,
    written_schema,
)
from pyspark_wm_sink.iceberg.stage import IcebergFile, IcebergStagePlan, check_properties
from pyspark_wm_sink.options.iceberg_target import IcebergTarget
from pyspark_wm_sink.options.sink_options import SinkOptions
from pyspark_wm_sink.tables.library_errors import one_line
from pyspark_wm_sink.tables.publication import CurrentTable, Publication, TableMessages
from pyspark_wm_sink.tables.row_rules import RowRules
from pyspark_wm_sink.tables.rows import TableRows
from pyspark_wm_sink.tables.schema_check import fit, fit_or_refuse, never_null_inside
from pyspark_wm_sink.tables.stage import StagedFile

_VERSIONS = (1, 2)
# Each commit writes the table's metadata again: without this property each batch would leave a file for ever.
_OF_NEW_TABLES = {"write.metadata.delete-after-commit.enabled": "true"}
_MESSAGES = TableMessages(
    kind="Iceberg table",
    place="the table's location",
    restored="rolled back to an older snapshot",
    undo="set the branch to that batch's snapshot, or a later one, again",
    forgotten=None,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class IcebergPublication(Publication):
    """An Iceberg table; catalog: PyIceberg's properties of its catalog."""

    stage: IcebergStagePlan
    catalog_name: str
    catalog: Mapping[str, str] = field(repr=False)
    branch: str

    conflicts: ClassVar = (iceberg.ConflictError, iceberg.RefusedError)
    failures: ClassVar = (iceberg.AppendError, OSError)
    messages: ClassVar = _MESSAGES
    attempts: ClassVar = 40
    pause_s: ClassVar = 0.02

    def open(self) -> CurrentIceberg | None:
        """Load the table."""
        table = open_table(self.stage.name, self.catalog_name, self.catalog)
        return None if table is None else CurrentIceberg(self, table)

    def created(self) -> CurrentIceberg | None:
        """Raise InputError: rows are staged for a table that existed."""
        raise InputError(
            f"the Iceberg table {self.stage.name} was dropped after the rows were staged: start the query again, with "
            f"a table of that name"
        )

    def is_refusal(self, error: Exception) -> bool:
        """Whether PyIceberg cannot write the commit."""
        return isinstance(error, iceberg.RefusedError)


class CurrentIceberg(CurrentTable):
    """One state of an Iceberg table."""

    def __init__(self, how: IcebergPublication, table: Table) -> None:
        log = iceberg.IcebergLog(table, how.branch)
        super().__init__(f"the Iceberg table {how.stage.name}", table.metadata_location, log)
        self._how, self._table = how, table

    def check_fits(self) -> str | None:
        """Raise InputError for a table that was created again; return whether columns or partitions changed."""
        stage = self._how.stage
        if str(self._table.metadata.table_uuid) != stage.uuid:
            raise InputError(
                f"{self.where} was dropped and created again while the query ran: restore it, or start the query with "
                f"a new checkpoint"
            )
        self._check_branch()
        is_same_spec = self._table.metadata.default_spec_id == stage.spec.spec_id
        if not is_same_spec or has_lost_source(stage.spec, self._table.schema()):
            return f"the partitions of {self.where}"
        column = changed_field(stage.columns, self._table.schema())
        return None if column is None else f"the column {column} of {self.where}"

    def _check_branch(self) -> None:
        """Raise InputError for a missing branch: a commit would create the branch without the rows of main."""
        name = self._how.branch
        ref = self._table.refs().get(name)
        if name != MAIN_BRANCH and (ref is None or ref.snapshot_ref_type is not SnapshotRefType.BRANCH):
            also = "" if ref is None else ", and is a tag now"
            raise InputError(
                f"branch {name} of {self.where} was dropped while the query ran{also}: create it again at the "
                f"snapshot that it had; or start the query again, which creates a missing branch at the newest "
                f"snapshot of {MAIN_BRANCH}"
            )

    def append(self, files: Sequence[StagedFile], record: Record) -> None:
        """Publish as one snapshot."""
        iceberg_files = [file for file in files if isinstance(file, IcebergFile)]
        try:
            iceberg.append(self._table, iceberg_files, record, branch=self._how.branch, overwrite=self._how.overwrite)
        except (iceberg.ConflictError, iceberg.RefusedError, iceberg.AppendError) as error:
            reason = without_secrets(str(error), self._how.catalog)
            if isinstance(error.__cause__, NO_LOGIN):
                raise CatalogAccessError(
                    f"{self.where} could not be written, because its catalog got no login that it accepts ({reason}): "
                    f"give options catalog.NAME"
                ) from None
            if reason == str(error):
                raise
            raise type(error)(reason) from None


def iceberg_publication(
    options: SinkOptions, target: IcebergTarget, rows: TableRows, *, overwrite: bool, errors: IcebergPublication | None
) -> IcebergPublication:
    """Return the publication of rows to a table that they fit; see `tables.rows.with_errors`."""
    columns = rows.columns("an Iceberg table")
    table = open_table(target.name, target.catalog_name, target.catalog)
    if table is None:
        table = _created(target, columns)
    table = _checked_table(target, table, columns)
    _require_branch(target, table)
    if overwrite and has_float_partitions(table.metadata):
        raise InputError(
            f"output mode complete: the Iceberg table {target.name} is, or was, partitioned by floats, by which "
            f"PyIceberg {pyiceberg_version} does not find the files that a batch replaces: write to another table"
        )
    file_schema = written_schema(table.schema(), columns.names)
    try:
        check_properties(table.properties, file_schema)
    except ValueError as error:
        raise InputError(
            f"the Iceberg table {target.name} has a wrong property ({one_line(error)}): correct it, or remove it"
        ) from error
    return IcebergPublication(
        stage=IcebergStagePlan(
            name=target.name,
            location=table.location(),
            uuid=str(table.metadata.table_uuid),
            files=dict(table.io.properties),
            properties={name: value for name, value in table.properties.items() if name.startswith("write.")},
            columns=file_schema,
            spec=table.spec(),
            schema=file_columns(file_schema),
            has_control=rows.has_control,
            inline=rows.inline,
            has_offsets=rows.has_offsets,
            compares_content=rows.compares_content,
            rules=RowRules(never_null=tuple(field.name for field in file_schema.fields if field.required)),
        ),
        catalog_name=target.catalog_name,
        catalog=target.catalog,
        branch=target.branch,
        mode=rows.mode,
        guarantee=options.guarantee,
        overwrite=overwrite,
        is_shared=target.is_shared,
        errors=errors,
    )


def _created(target: IcebergTarget, columns: pa.Schema) -> Table:
    """Create the table with the rows' columns, or open the one that another query has created meanwhile."""
    if not target.is_created:
        raise OptionError(
            f"option table: there is no table {target.name} in the catalog {target.catalog_name}: correct the name, "
            f"create it, or set createTable=true, which creates it with the columns of the rows"
        )
    for term in target.partition_by or ():
        _check_column(parse_term(term)[0], columns)
    catalog = open_catalog(target.catalog_name, target.catalog)
    with explaining(f"the Iceberg table {target.name} could not be created", target.catalog):
        try:
            with catalog.create_table_transaction(target.name, columns, properties=_OF_NEW_TABLES) as creation:
                if target.partition_by:
                    with creation.update_spec() as update:
                        add_terms(update, target.partition_by)
        except (TableAlreadyExistsError, CommitFailedException):
            pass  # another query created it meanwhile, and its table is checked like any other
        except NoSuchNamespaceError:
            namespace = target.name.rpartition(".")[0]
            raise OptionError(
                f"option table: there is no namespace {namespace} in the catalog {target.catalog_name}: correct the "
                f"name, or create the namespace"
            ) from None
    table = open_table(target.name, target.catalog_name, target.catalog)
    if table is None:
        raise InputError(
            f"the Iceberg table {target.name} was dropped as soon as it was created: start the query again"
        )
    return table


def _require_branch(target: IcebergTarget, table: Table) -> None:
    """Create the branch if it is missing, at the newest snapshot of the table's main branch."""
    ref = table.refs().get(target.branch)
    if ref is not None and ref.snapshot_ref_type is not SnapshotRefType.BRANCH:
        raise OptionError(
            f"option branch: {target.branch} is a tag of the Iceberg table {target.name}, the name of a branch is "
            f"expected"
        )
    if ref is not None or target.branch == MAIN_BRANCH:
        return
    with explaining(f"branch {target.branch} of the Iceberg table {target.name} could not be created", target.catalog):
        if table.current_snapshot() is None:  # a branch begins at one
            with table.transaction() as transaction:
                transaction.update_snapshot().fast_append().commit()
        start = table.refs()[MAIN_BRANCH].snapshot_id
        table.manage_snapshots().create_branch(start, target.branch).commit()


def _check_column(name: str, columns: pa.Schema) -> None:
    if name not in columns.names:
        raise OptionError(f"option partitionBy: the rows have no column {name} ({', '.join(columns.names)})")


def _checked_table(target: IcebergTarget, table: Table, columns: pa.Schema) -> Table:
    """Raise InputError for a table that these columns do not fit; with mergeSchema add missing columns first."""
    where = f"the Iceberg table {target.name}"
    if table.format_version not in _VERSIONS:
        raise InputError(
            f"{where} has format version {table.format_version}, which PyIceberg {pyiceberg_version} does not write: "
            f"write to a table of format version 2"
        )
    terms = spec_terms(table.spec(), table.schema())
    option_terms = None if target.partition_by is None else canonical(target.partition_by)
    if option_terms not in {None, terms}:
        raise InputError(
            f"{where} is partitioned by {', '.join(terms) or 'nothing'}, option partitionBy says "
            f"{', '.join(option_terms or ())}: leave the option out, or write to another table"
        )
    here, there = rows_fields(columns), table_fields(table.schema())
    fit_or_refuse(where, here, there, merge=target.merge_schema)
    kinds = [(field["name"], field["type"]) for field in there if field["name"] in columns.names]
    inside = [field for name, kind in kinds for field in never_null_inside(name, kind)]
    if inside:
        raise InputError(
            f"{where} has required fields inside its columns ({', '.join(inside)}), which this sink does not check: "
            f"make them optional, or write to another table"
        )
    if fit(here, there, merge=False).differs:
        with explaining(f"columns could not be added to {where}", target.catalog), table.update_schema() as update:
            update.union_by_name(keep_table_types(columns, table.schema()))
    check_sources(table.spec(), table.schema(), columns.names, where)
    return table
