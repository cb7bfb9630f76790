"""The targets: how an output is read as any reader would, and what is a moment worth a kill in each."""

from __future__ import annotations

import itertools
import json
import random
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from kafka.protocol.admin import ListTransactionsRequest
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.table.snapshots import Snapshot

from keyedwm.core.inline import HEADER
from keyedwm.kafka.client.connection import call_with_retries
from keyedwm.kafka.client.values import Isolation
from keyedwm.kafka.records.read import ColumnSelection
from keyedwm.kafka.requests.fetch import OffsetRange, read_ranges
from keyedwm.kafka.requests.listing import brokers as nodes_of
from tests.e2e.brokers import Brokers
from tests.e2e.feed import PARTITIONS, Feed, Findings, Tally, misplaced
from tests.e2e.pipeline import QUERIES, REST_ADDRESS
from tests.tools import wait_until


class Target(ABC):
    """One output of one feed."""

    name: str

    def __init__(self, brokers: Brokers, directory: Path, disk: Path, feed: Feed) -> None:
        self.brokers, self.directory, self.disk, self.feed = brokers, directory, disk, feed
        self.findings = Findings()
        self.tally = Tally(feed, self.findings)

    @abstractmethod
    def read(self) -> None:
        """Take in what has become visible since the last time."""

    @abstractmethod
    def missing(self) -> int:
        """How many rows of the exact answer are not visible; read before."""

    @abstractmethod
    def visible(self) -> object:
        """What a reader can see now: equal as long as nothing is published."""

    @abstractmethod
    def staged(self) -> object:
        """Changes when something is about to be published; asked very often."""

    @abstractmethod
    def halfway(self) -> bool:
        """Whether something was staged or decided, and not yet published."""

    @abstractmethod
    def memory(self) -> list[Path]:
        """The files of what was decided, the newest last."""

    @abstractmethod
    def damaged(self, whole: bytes, rng: random.Random) -> bytes:
        """Such a file with a fault of the disk in it."""

    def planned(self) -> object:
        """Changes when a batch is planned; asked very often."""
        return [_changed(self._checkpoint(name) / "offsets") for name in QUERIES[self.name]]

    def completed(self, query: str) -> int:
        """The last batch that Spark knows to be done, -1 for none."""
        return max(_numbered(self._checkpoint(query) / "commits"), default=-1)

    def judge(self) -> Findings:
        """The last look: what no single round shows."""
        self.findings.lost = self.missing()
        for name in QUERIES[self.name]:
            logged = list(_logged(self._checkpoint(name)))
            # Spark adds batches of its own without news of ours (they close windows): these repeat the offset.
            batches = [batch for batch, _ in itertools.groupby(batch for batch, _ in logged)]
            if batches != list(range(len(batches))):
                self.findings.other.append(f"{name}: the source's batches are {batches}")
            self._look_for_steps_back(f"{name}, offset log", [watermark for _, watermark in logged])
        return self.findings

    def _checkpoint(self, query: str) -> Path:
        return self.directory / f"{query}.checkpoint"

    def _look_for_steps_back(self, where: str, watermarks: list[int | None]) -> None:
        known = [w for w in watermarks if w is not None]
        first = watermarks.index(known[0]) if known else 0
        for a, b in itertools.pairwise(watermarks[first:]):
            if a is not None and (b is None or b < a):
                self.findings.other.append(f"{where}: the watermark went back from {a} to {b}")


class DeltaTarget(Target):
    """Two tables: the events themselves, and the closed hours of each partition."""

    name = "delta"

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)
        self._events, self._hours = self._log("events"), self._log("hours")
        self._found_hours: Counter = Counter()
        self._came_from: list[tuple[int, int, int, int]] = []  # a record's partition and number, and those it came with

    def _log(self, name: str) -> DeltaLog | IcebergLog:
        return DeltaLog(self.disk / name)

    def read(self) -> None:
        for rows in self._events.new():
            places = zip(rows["partition"].to_pylist(), rows["offset"].to_pylist(), strict=True)
            for value, place in zip(rows["value"].to_pylist(), places, strict=True):
                self._came_from.append((*self.tally.take(value), *place))
        for rows in self._hours.new():
            starts_ms = (us // 1_000 for us in pc.cast(rows["hour"], pa.int64()).to_pylist())
            hours = Counter(zip(starts_ms, rows["partition"].to_pylist(), rows["count"].to_pylist(), strict=True))
            self._found_hours += hours

    def missing(self) -> int:
        return self.tally.missing() + (self.feed.closed_hours() - self._found_hours).total()

    def visible(self) -> object:
        return [path.name for path in self._events.files()]

    def staged(self) -> object:
        return [_changed(log.data) for log in (self._events, self._hours)]

    def halfway(self) -> bool:
        return any(_changed(log.data) > _changed(log.log) for log in (self._events, self._hours))

    def memory(self) -> list[Path]:
        return self._events.files()

    def damaged(self, whole: bytes, rng: random.Random) -> bytes:
        """Torn in its last line: a log without checksums shows no other damage."""
        return whole[: -rng.randrange(2, len(whole.splitlines()[-1]))]

    def judge(self) -> Findings:
        self.findings.other += misplaced(self._came_from, self.feed.offsets())
        too_much = self._found_hours - self.feed.closed_hours()
        self.findings.doubled += too_much.total()
        self.findings.other += [f"hour {hour} is too much" for hour in sorted(too_much)]
        published = [c["coalesced"].get("0") for c in self._events.records()]
        self._look_for_steps_back("events, commits", published)
        return super().judge()


class DeltaLog:
    """A table's log, read version by version, without any of our code."""

    def __init__(self, table: Path) -> None:
        self.table = self.data = table
        self.log = table / "_delta_log"
        self._read = 0

    def files(self) -> list[Path]:
        return sorted(self.log.glob("*.json"))

    def new(self) -> Iterator[pa.Table]:
        """The files that were added since the last time."""
        for path in self.files()[self._read :]:
            self._read += 1
            for action in _lines(path):
                if action.get("add", {}).get("dataChange"):
                    yield pq.ParquetFile(self.table / unquote(action["add"]["path"])).read()

    def records(self) -> Iterator[dict]:
        """What the sink left in each commit, oldest first."""
        for path in self.files():
            for action in _lines(path):
                if "keyedwm" in action.get("commitInfo", {}):
                    yield json.loads(action["commitInfo"]["keyedwm"])


class IcebergTarget(DeltaTarget):
    """The same two tables, in a catalog of SQLite."""

    name = "iceberg"

    def _log(self, name: str) -> IcebergLog:
        catalog = self._catalog()
        catalog.create_namespace_if_not_exists("db")
        return IcebergLog(self.disk / "db" / name, catalog)

    def _catalog(self) -> Catalog:
        return load_catalog("default", type="sql", uri=f"sqlite:///{self.disk}/catalog.db")


class IcebergRestTarget(IcebergTarget):
    """The same two tables, in a catalog that a server holds."""

    name = "iceberg-rest"

    def _catalog(self) -> Catalog:
        return load_catalog("default", type="rest", uri=(self.disk / REST_ADDRESS).read_text())


class IcebergLog:
    """A table's snapshots, read one by one, without any of our code."""

    def __init__(self, table: Path, catalog: Catalog) -> None:
        self.data, self.log = table / "data", table / "metadata"
        self._name, self._catalog, self._read = f"db.{table.name}", catalog, 0

    def files(self) -> list[Path]:
        return [Path(snapshot.manifest_list) for snapshot in self._snapshots()]

    def new(self) -> Iterator[pa.Table]:
        """The files that were added since the last time."""
        for snapshot in self._snapshots()[self._read :]:
            self._read += 1
            for manifest in snapshot.manifests(PyArrowFileIO()):
                if manifest.added_snapshot_id == snapshot.snapshot_id:
                    for entry in manifest.fetch_manifest_entry(PyArrowFileIO()):
                        yield pq.ParquetFile(entry.data_file.file_path).read()

    def records(self) -> Iterator[dict]:
        """The record in each snapshot, oldest first."""
        for snapshot in self._snapshots():
            yield json.loads(snapshot.summary.additional_properties["keyedwm"])

    def _snapshots(self) -> list[Snapshot]:
        try:
            return sorted(self._catalog.load_table(self._name).snapshots(), key=lambda one: one.sequence_number)
        except NoSuchTableError:
            return []


class KafkaTarget(Target):
    """A topic whose records are the feed's, by key on one partition more."""

    name = "kafka"

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)
        self.topic = self.brokers.make_topic(f"{self.feed.topic}-out", PARTITIONS + 1)
        self.control_records = 0
        self._next = dict.fromkeys(range(PARTITIONS + 1), 0)

    def read(self) -> None:
        ends = self._ends()
        ranges = [OffsetRange(self.topic, p, self._next[p], ends[p]) for p in ends if ends[p] > self._next[p]]
        columns = ColumnSelection(control_header=HEADER)
        for part in read_ranges(self.brokers.cluster(), ranges, columns, Isolation.READ_COMMITTED):
            self.control_records += len(part.records.control_records)
            for value in part.records.value.to_pylist():
                self.tally.take(self.plain(value))
        self._next = ends

    def plain(self, value: bytes) -> bytes:
        """The value that was sent, of one that was read."""
        return value

    def missing(self) -> int:
        return self.tally.missing()

    def visible(self) -> object:
        """Not the ends: an aborted transaction moves those too."""
        wait_until(self._commits_are_over, "the markers of what was committed")
        self.read()
        return self.tally.taken()

    def _commits_are_over(self) -> bool:
        """Whether all that was committed can be seen: a commit is answered before its markers are written."""
        cluster = self.brokers.cluster()
        request = ListTransactionsRequest(state_filters=["PrepareCommit"], producer_id_filters=[], max_version=1)
        answers = [
            call_with_retries(cluster.connection, node, request, "listing transactions") for node in nodes_of(cluster)
        ]
        return not any(answer.error_code or answer.transaction_states for answer in answers)

    def staged(self) -> object:
        return _changed(self.disk / "ledger")

    def halfway(self) -> bool:
        return any(path.name.endswith(".decided.json") for path in self.memory())

    def damaged(self, whole: bytes, rng: random.Random) -> bytes:
        at = rng.randrange(len(whole))
        return rng.choice([whole[:at], whole[:at] + b"\0" + whole[at + 1 :]])

    def memory(self) -> list[Path]:
        others = {"run.json", "schemas.json"}
        return sorted(path for path in (self.disk / "ledger").glob("*.json") if path.name not in others)

    def _ends(self) -> dict[int, int]:
        places = [(self.topic, partition) for partition in self._next]
        ends = self.brokers.cluster().latest(places, Isolation.READ_COMMITTED)
        return {where.partition: end for where, end in ends.items()}


class KafkaAvroTarget(KafkaTarget):
    """The same topic, whose values are Avro records of one field, with the id that the registry gave at the start."""

    name = "kafka-avro"
    head = b"\0\0\0\0\1\2"  # the id 1, and the branch of the field that is no null

    def plain(self, value: bytes) -> bytes:
        """Every byte is looked at: the head and the length before the body must be the only ones that there can be."""
        body = value[len(self.head) + 1 :]
        if value[: len(self.head) + 1] != self.head + bytes([2 * len(body)]):
            self.findings.other.append(f"{value!r} is not what the first run wrote")
        return body


_ALL = (DeltaTarget, IcebergTarget, IcebergRestTarget, KafkaTarget, KafkaAvroTarget)
TARGETS = {target.name: target for target in _ALL}


def _lines(path: Path) -> Iterable[dict]:
    return (json.loads(line) for line in path.read_text().splitlines())


def _changed(directory: Path) -> int:
    return directory.stat().st_mtime_ns if directory.exists() else 0


def _numbered(directory: Path) -> list[int]:
    return sorted(int(p.name) for p in directory.iterdir() if p.name.isdigit()) if directory.exists() else []


def _logged(checkpoint: Path) -> Iterator[tuple[int, int | None]]:
    """(the source's batch number, coalesced watermark) of every entry of Spark's offset log."""
    for number in _numbered(checkpoint / "offsets"):
        offset = json.loads((checkpoint / "offsets" / str(number)).read_text().splitlines()[2])
        if offset["version"] == 1:
            yield offset["batch"], dict(map(tuple, offset["coalesced"]["emitted"])).get(0)
