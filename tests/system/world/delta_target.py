"""A Delta table on a disk that tears files, loses and doubles effects, and answers late.

Rule: log, conflicts and Parquet are deltalake's own; what goes wrong does so between it and the product. The reader is
none of ours: it reads the log version by version.
"""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any
from unittest import mock
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError, DeltaError

from keyedwm.core.errors import UnavailableError
from keyedwm.testing.simulated_kafka.brokers import Brokers
from pyspark_wm_sink.delta import stage
from pyspark_wm_sink.delta import table as delta
from tests.system.world.faults import Faults
from tests.system.world.targets import Target


class DeltaTarget(Target):
    """One table; `_late`: appends that are still on their way."""

    def __init__(self, directory: Path, brokers: Brokers, faults: Faults, chance: random.Random) -> None:
        super().__init__(directory, brokers, faults, chance)
        self._table = directory / "table"
        self._late: list[Callable[[], None]] = []
        self._away = 0
        self.options = {"path": str(self._table)}

    def copied_options(self) -> dict[str, str]:
        return self.options

    def before_a_life(self, *, has_published: bool) -> None:
        """The table is deleted, or restored to an older version that still holds a batch."""
        if not has_published:
            return
        lost, older = self.faults.strikes("table lost"), self.faults.strikes("table older")
        entries = self._entries()
        if lost and entries:
            shutil.rmtree(self._table)
        elif older:
            batches = [path for path in entries if '"txn"' in path.read_text()]
            for path in entries if len(batches) > 1 else ():
                if path >= batches[-1]:
                    path.unlink()

    def settle(self, unused: set[str]) -> None:
        """Nothing here ends by time."""

    def arrive(self) -> None:
        """Appends that were on their way when their driver died have their effect now, or are refused."""
        late, self._late = self._late, []
        for append in late:
            with suppress(DeltaError):  # then it is refused, for another commit was sooner
                append()
                self.faults.note("a late append has its effect")

    def seen(self, partition: int) -> list[str]:
        values: list[str] = []
        for path in self._entries():
            actions = [json.loads(line) for line in path.read_text().splitlines()]
            for name in sorted(unquote(action["add"]["path"]) for action in actions if "add" in action):
                rows = pq.ParquetFile(self._table / name).read()
                if "control" in rows.column_names:
                    rows = rows.filter(rows["control"].is_null())
                chosen = rows.filter(pa.compute.equal(rows["partition"], partition))
                values += chosen["value"].cast(pa.string()).to_pylist()
        return values

    def kept(self, query: str) -> int:
        """The last commit without its files: each has the record of its own batch only."""
        lines = [line for path in self._entries() for line in path.read_text().splitlines() if query in line]
        return len(lines[-1]) if lines else 0

    def explains(self, sentence: str) -> bool:
        struck = self.faults.struck
        return (
            super().explains(sentence)
            or (bool(struck["table lost"]) and "there is no Delta table" in sentence)
            or (bool(struck["table older"]) and "restored to an older version" in sentence)
        )

    @contextmanager
    def faulty(self) -> Iterator[None]:
        with ExitStack() as stack:
            patch = mock.patch.object
            open_table, files_of = self._open(delta.open_table), self._files(stage.files_of)
            stack.enter_context(patch(delta, "append", self._append(delta.append)))
            stack.enter_context(patch(delta, "open_table", open_table))
            stack.enter_context(patch(stage, "files_of", files_of))
            yield

    def _entries(self) -> list[Path]:
        return sorted((self._table / "_delta_log").glob("*.json"))

    def _append(self, real: Callable[..., None]) -> Callable[..., None]:
        faults = self.faults

        def append(table: DeltaTable, files: Any, record: Any, *, overwrite: bool) -> None:
            files = list(files)
            faults.step("before the append")
            if faults.strikes("foreign commit"):
                DeltaTable(table.table_uri).create_write_transaction([], "append", table.schema())
            if faults.strikes("lost append"):
                raise DeltaError("the request was lost")
            if faults.strikes("append late"):
                self._late.append(lambda: real(table, files, record, overwrite=overwrite))
                faults.kill()
            real(table, files, record, overwrite=overwrite)
            if faults.strikes("append in doubt"):
                self._away = faults.of("append in doubt", (0, 1, 2))
                raise DeltaError("the answer was lost")
            if faults.strikes("append doubled"):
                raise CommitFailedError("the version exists already: the store has sent the request twice")
            faults.step("after the append")

        return append

    def _open(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def open_table(path: str, storage: Any) -> Any:
            self.faults.step("before the table is opened")
            if self._away or self.faults.strikes("store away"):
                self._away = max(self._away - 1, 0)
                raise UnavailableError(f"the Delta table {path} could not be opened: the store is away")
            return real(path, storage)

        return open_table

    def _files(self, real: Callable[..., Any]) -> Callable[..., Any]:
        return lambda path, storage: _Files(Path(path), real(path, storage), self.faults)


class _Files:
    """A file system on which a file may be torn."""

    def __init__(self, directory: Path, files: Any, faults: Faults) -> None:
        self._directory, self._files, self._faults = directory, files, faults

    def open_output_stream(self, name: str) -> Any:
        self._faults.step("before a file is written")
        if self._faults.strikes("torn file", name[:10]):
            (self._directory / name).write_bytes(b"PAR1 half of")
            raise OSError("Input/output error: the file is torn")
        return self._files.open_output_stream(name)
