"""An Iceberg table behind a catalog that loses and doubles requests, answers late, and on a disk that tears files.

Rule: catalog, metadata and Parquet are PyIceberg's own, over SQLite; what goes wrong does so between the product and
the catalog. The reader is none of ours: it takes the files of the newest snapshot in the order of their commits.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import (
    CommitFailedException,
    CommitStateUnknownException,
    NoSuchTableError,
    ServiceUnavailableError,
)
from pyiceberg.io import FileIO, OutputFile
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.metadata import TableMetadataUtil

from keyedwm.testing.simulated_kafka.brokers import Brokers
from pyspark_wm_sink.iceberg import catalog, stage
from tests.system.world.faults import Faults
from tests.system.world.targets import Target

NAME = "db.t"
# A channel's rows lie in one file of each commit: files have no order among themselves.
_PARTITIONED = (None, None, "partition", "bucket(2, partition), partition")


class IcebergTarget(Target):
    """One table; `_late`: commits that are still on their way; `_others`: the catalog as everybody else reaches it."""

    def __init__(self, directory: Path, brokers: Brokers, faults: Faults, chance: random.Random) -> None:
        super().__init__(directory, brokers, faults, chance)
        self._late: list[Callable[[], object]] = []
        self._away = 0
        place = {"uri": f"sqlite:///{directory}/catalog.db", "warehouse": str(directory)}
        self._others = SqlCatalog("default", **place)
        self._others.create_namespace("db")
        self._reached = _Catalog(self, place)
        self.options = {"table": NAME, "createTable": "true", "catalog.type": "sql"}
        self.options |= {f"catalog.{name}": value for name, value in place.items()}
        if by := chance.choice(_PARTITIONED):
            self.options["partitionBy"] = by

    def copied_options(self) -> dict[str, str]:
        return self.options

    def before_a_life(self, *, has_published: bool) -> None:
        """The table is dropped; or its branch, or the whole catalog, is taken back behind the newest batch."""
        if not has_published:
            return
        lost, older = self.faults.strikes("table lost"), self.faults.strikes("table older")
        table = self._table()
        if table is None:
            return
        if lost:
            self._others.drop_table(NAME)
        elif older and self.faults.of("table older", (0, 1)):
            self._roll_back(table)
        elif older:
            self._restore(table)

    def settle(self, unused: set[str]) -> None:
        """Nothing here ends by time."""

    def arrive(self) -> None:
        """Commits that were on their way when their driver died have their effect now, or are refused."""
        late, self._late = self._late, []
        for commit in late:
            with suppress(CommitFailedException):  # then it is refused, for another commit was sooner
                commit()
                self.faults.note("a late commit has its effect")

    def seen(self, partition: int) -> list[str]:
        values: list[str] = []
        for path in self._files():
            rows = pq.ParquetFile(path).read()
            if "control" in rows.column_names:
                rows = rows.filter(rows["control"].is_null())
            chosen = rows.filter(pa.compute.equal(rows["partition"], partition))
            values += chosen["value"].cast(pa.string()).to_pylist()
        return values

    def kept(self, query: str) -> int:
        records = {} if (table := self._table()) is None else _records(table.metadata)
        return sum(len(text) for name, text in records.items() if query in name + text)

    def explains(self, sentence: str) -> bool:
        lost, older = (bool(self.faults.struck[name]) for name in ("table lost", "table older"))
        is_gone = "there is no Iceberg table" in sentence or "dropped and created again" in sentence
        is_older = "rolled back to an older snapshot" in sentence or "restored to an older version" in sentence
        return super().explains(sentence) or (lost and is_gone) or (older and is_older)

    @contextmanager
    def faulty(self) -> Iterator[None]:
        with ExitStack() as stack:
            stack.enter_context(mock.patch.object(catalog, "_connected", return_value=self._reached))
            stack.enter_context(mock.patch.object(stage, "load_file_io", return_value=_Files(self.faults)))
            yield
        self._others.engine.dispose()
        self._reached.engine.dispose()

    def load(self, real: Callable[[], Table]) -> Table:
        """The product asks for the table."""
        self.faults.step("before the table is loaded")
        if self._away or self.faults.strikes("store away"):
            self._away = max(self._away - 1, 0)
            raise ServiceUnavailableError("the catalog is away")
        return real()

    def commit(self, table: Table, requirements: Any, updates: Any) -> CommitTableResponse:
        """The product asks for a commit."""
        faults = self.faults

        def real() -> CommitTableResponse:
            return self._others.commit_table(table, requirements, updates)

        faults.step("before the commit is asked for")
        if faults.strikes("foreign commit"):
            self._foreign()
        if faults.strikes("lost append"):
            raise ServiceUnavailableError("the request was lost")
        if faults.strikes("append late"):
            self._late.append(real)
            faults.kill()
        answer = real()
        if faults.strikes("append in doubt"):
            self._away = faults.of("append in doubt", (0, 1, 2))
            raise CommitStateUnknownException("the answer was lost")
        if faults.strikes("append doubled"):
            raise CommitFailedException("another commit was sooner: the request was sent twice")
        faults.step("after the commit")
        return answer

    def _foreign(self) -> None:
        """Somebody else appends nothing, sets a property, expires snapshots, or compacts the table first."""
        table = self._table()
        if table is None:
            return
        kind = self.faults.of("foreign commit", (0, 1, 2, 3))
        head = table.current_snapshot()
        if kind == 0 or head is None:
            with table.transaction() as transaction:
                transaction.update_snapshot().fast_append().commit()
        elif kind == 1:
            with table.transaction() as transaction:
                transaction.set_properties(owner=f"{head.snapshot_id}")
        elif kind == 2:
            _expire(table)
        elif paths := self._files():
            table.overwrite(pa.concat_tables([pq.ParquetFile(path).read() for path in paths]))
            _expire(table.refresh())

    def _roll_back(self, table: Table) -> None:
        """The branch leads to the newest snapshot before that of the newest batch."""
        at = table.current_snapshot()
        while at is not None and "keyedwm" not in at.summary.additional_properties:
            at = table.snapshot_by_id(at.parent_snapshot_id) if at.parent_snapshot_id else None
        before = table.snapshot_by_id(at.parent_snapshot_id) if at is not None and at.parent_snapshot_id else None
        if before is not None:
            table.manage_snapshots().set_current_snapshot(snapshot_id=before.snapshot_id).commit()

    def _restore(self, table: Table) -> None:
        """The catalog names metadata of a moment at which the newest batch was another one."""
        now = _records(table.metadata)
        for entry in reversed(table.metadata.metadata_log):
            path = Path(entry.metadata_file)
            before = _records(TableMetadataUtil.parse_raw(path.read_text())) if path.exists() else now
            if before != now:
                if before:
                    self._others.drop_table(NAME)
                    self._others.register_table(NAME, entry.metadata_file)
                return

    def _table(self) -> Table | None:
        try:
            return self._others.load_table(NAME)
        except NoSuchTableError:
            return None

    def _files(self) -> list[str]:
        """The files of the newest snapshot, in the order of their commits and of the tasks in these."""
        table = self._table()
        head = None if table is None else table.current_snapshot()
        if table is None or head is None:
            return []
        entries = [one for manifest in head.manifests(table.io) for one in manifest.fetch_manifest_entry(table.io)]
        of_batches = [(one.sequence_number, Path(one.data_file.file_path).name, one) for one in entries]
        return [one.data_file.file_path for _, _, one in sorted(of_batches, key=lambda found: found[:2])]


class _Catalog(SqlCatalog):
    """The catalog as the product reaches it."""

    def __init__(self, target: IcebergTarget, place: dict[str, str]) -> None:
        super().__init__("default", **place)
        self._target = target

    def load_table(self, identifier: Any) -> Table:
        real = super().load_table
        return self._target.load(lambda: real(identifier))

    def commit_table(self, table: Table, requirements: Any, updates: Any) -> CommitTableResponse:
        return self._target.commit(table, requirements, updates)

    def _load_file_io(self, *_: Any, **_named: Any) -> FileIO:
        return _Files(self._target.faults)


class _Files(PyArrowFileIO):
    """A store on which a file may be torn: of rows, or of a snapshot's manifests."""

    def __init__(self, faults: Faults) -> None:
        super().__init__()
        self._faults = faults

    def new_output(self, location: str) -> OutputFile:
        self._faults.step("before a file is written")
        name = Path(location).name
        if self._faults.strikes("torn file", name[:10]):
            Path(location).parent.mkdir(parents=True, exist_ok=True)
            Path(location).write_bytes(b"PAR1 half of")
            raise OSError("Input/output error: the file is torn")
        return super().new_output(location)


def _expire(table: Table) -> None:
    """All snapshots but the newest."""
    older = [one.snapshot_id for one in table.snapshots() if one.snapshot_id != table.metadata.current_snapshot_id]
    if older:
        table.maintenance.expire_snapshots().by_ids(older).commit()


def _records(metadata: Any) -> dict[str, str]:
    return {name: value for name, value in metadata.properties.items() if name.startswith("keyedwm.")}
