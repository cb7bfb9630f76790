"""An Iceberg table as the driver's commit asks it (`tables.publication`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType

from keyedwm.core.errors import InputError
from pyspark_wm_sink.batch.record import Record
from pyspark_wm_sink.iceberg import table as iceberg
from pyspark_wm_sink.iceberg.catalog import NO_LOGIN, CatalogAccessError, open_table, without_secrets
from pyspark_wm_sink.iceberg.partitions import has_lost_source
from pyspark_wm_sink.iceberg.schema import changed_field
from pyspark_wm_sink.iceberg.stage import IcebergFile, IcebergStagePlan
from pyspark_wm_sink.tables.publication import CurrentTable, Publication, TableMessages
from pyspark_wm_sink.tables.stage import StagedFile

_MESSAGES = TableMessages(
    kind="Iceberg table",
    place="the table's location",
    restored="rolled back to an older snapshot",
    undo="set the branch to that batch's snapshot, or a later one, again",
    forgotten=None,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class IcebergPublication(Publication):
    """An Iceberg table; catalog: PyIceberg's properties of it."""

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
        """Raise InputError for a missing branch: a commit would create one without the rows of main."""
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
