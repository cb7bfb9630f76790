"""A trial of one table in a catalog or store of another maker: replays, twins, kills and outages, and a count of rows.

Rule: writers are processes (`tests.support.table_writer`), so a kill leaves what a killed driver leaves. Rows are
counted by the caller's readers: each must have every row once.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from random import Random

from pyiceberg.table import StaticTable, Table

from tests.sink.delta_readers import duckdb_with
from tests.support.table_writer import READY, Job, numbers_of

BATCHES = 10
_LIMIT_S = 600.0


@dataclass
class Trial:
    """Writers of one table; options: of the sink; folder: for jobs and logs; packages: see `Job`."""

    options: Mapping[str, str]
    folder: Path
    packages: Sequence[str] = ()
    right: list[int] = field(default_factory=list)
    queries: int = 0
    conflicts: int = 0

    def lone_writer(self, query: str = "alone") -> None:
        """Publish batches by one writer, each of them three times."""
        self._together([self._job(query)])

    def twins(self) -> None:
        """Publish the same batches by two processes of one query at once, as by two drivers on one checkpoint."""
        job = self._job("twins")
        self._together([job, job])

    def neighbours(self) -> None:
        """Publish batches of two queries at once."""
        self._together([self._job("left"), self._job("right")])

    def kills(self, count: int, seed: int, within_s: float = 0.3) -> None:
        """Kill the writer `count` times, each within so many seconds after a batch; replay from that batch."""
        random, job = Random(seed), self._job("killed", count + 2)
        first = 0
        for kill in range(count):
            writer = _Writer(Job(**{**asdict(job), "first": first}), self.folder)
            writer.start()
            first = int(writer.line())
            time.sleep(random.uniform(0, within_s))
            writer.process.kill()
            writer.end(f"kill {kill}", may_fail=True)
        self._together([Job(**{**asdict(job), "first": first})])

    def outage(self, interrupt: Callable[[], None], count: int = 2) -> None:
        """Call `interrupt`, which kills the server and starts it again, `count` times while a writer publishes."""
        job = self._job("outage", count * 3)
        writer = _Writer(job, self.folder)
        writer.start()
        for _ in range(count):
            writer.line()
            writer.line()
            interrupt()
        self.conflicts += writer.finish()

    def check(self, readers: Mapping[str, Callable[[], list[int]]]) -> str:
        """Compare what each reader reads with what was published; returns one line, raises AssertionError."""
        for name, read in readers.items():
            rows = Counter(read())
            missing_rows = sorted(set(self.right) - set(rows))
            doubled = sorted(row for row, times in rows.items() if times > 1)
            foreign = sorted(set(rows) - set(self.right))
            assert not missing_rows, f"{name}: {len(missing_rows)} rows are lost, {missing_rows[:5]}"
            assert not doubled, f"{name}: {len(doubled)} rows are doubled, {doubled[:5]}"
            assert not foreign, f"{name}: {len(foreign)} rows were never published, {foreign[:5]}"
        return (
            f"{len(self.right)} rows of {self.queries} queries, each once by {', '.join(readers)}; "
            f"{self.conflicts} conflicts of writers resolved"
        )

    def _job(self, query: str, batches: int = BATCHES) -> Job:
        number = self.queries
        self.queries += 1
        self.right += [n for batch in range(batches) for n in numbers_of(number, batch)]
        return Job(
            options=self.options, query=query, first=0, end=batches, number=number, packages=tuple(self.packages)
        )

    def _together(self, jobs: Sequence[Job]) -> None:
        writers = [_Writer(job, self.folder) for job in jobs]
        for writer in writers:
            writer.wait()
        for writer in writers:
            writer.go()
        self.conflicts += sum(writer.finish() for writer in writers)


class _Writer:
    """A running process of `tests.support.table_writer`."""

    def __init__(self, job: Job, folder: Path) -> None:
        name = f"{job.query.replace(' ', '-')}-{time.monotonic_ns()}"
        path = folder / f"{name}.json"
        path.write_text(json.dumps(asdict(job)))
        self.log = folder / f"{name}.log"
        self.process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-m", "tests.support.table_writer", str(path)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log.open("w"), text=True,
        )  # fmt: skip
        self._limit = threading.Timer(_LIMIT_S, self.process.kill)
        self._limit.daemon = True
        self._limit.start()

    def start(self) -> None:
        self.wait()
        self.go()

    def wait(self) -> None:
        line = self.line()
        assert line == READY, line

    def go(self) -> None:
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def line(self) -> str:
        line = self.process.stdout.readline().strip()
        assert line, f"a writer ended: {self.log.read_text()[-2000:]}"
        return line

    def finish(self) -> int:
        """Wait for the end; returns the conflicts that the writer met."""
        lines = self.end("a writer", may_fail=False).split("\n")
        return sum(int(line.split()[1]) for line in lines if line.startswith("conflicts "))

    def end(self, name: str, *, may_fail: bool) -> str:
        rest = self.process.stdout.read()
        code = self.process.wait()
        self._limit.cancel()
        self.process.stdin.close()
        self.process.stdout.close()
        assert may_fail or code == 0, f"{name} failed: {self.log.read_text()[-2000:]}"
        return rest


def iceberg_readers(table: Table) -> dict[str, Callable[[], list[int]]]:
    """Return PyIceberg and DuckDB as readers of the column n of a table on this machine's disk."""

    def by_duckdb() -> list[int]:
        with duckdb_with("avro", "iceberg") as connection:
            rows = connection.execute(f"SELECT n FROM iceberg_scan('{table.metadata_location}')").fetchall()  # noqa: S608
        return [number for (number,) in rows]

    return {"PyIceberg": lambda: table.scan().to_arrow().column("n").to_pylist(), "DuckDB": by_duckdb}


def readers_in_s3(table: Table) -> dict[str, Callable[[], list[int]]]:
    """Return PyIceberg and Polars as readers of the column n of a table in a store with the interface of S3."""
    import polars as pl

    static = StaticTable.from_metadata(table.metadata_location, properties=dict(table.io.properties))
    login = {name.removeprefix("s3."): value for name, value in table.io.properties.items() if name.startswith("s3.")}
    storage = {f"aws_{name.replace('-', '_')}": value for name, value in login.items()} | {"aws_allow_http": "true"}

    def by_polars() -> list[int]:
        scan = pl.scan_iceberg(static, storage_options=storage, reader_override="native")
        return scan.collect()["n"].to_list()

    return {"PyIceberg": lambda: table.scan().to_arrow().column("n").to_pylist(), "Polars": by_polars}
