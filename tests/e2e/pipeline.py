"""The program that the campaign kills: one Spark, and the queries of one target on one topic.

Run: python -m tests.e2e.pipeline DIRECTORY WHO   (WHO `second` gives up at its first error, the others try again)

Rule: it decides nothing. `wanted.json` says what to run, `told.jsonl` hears what happened; a query that failed is
started again from its checkpoint, in the same Spark. It ends with the process that started it.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tests.quick_batches import QUICK_BATCHES
from tests.shared_classes import java_options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

BITE = "60"  # small batches: a kill falls into many different places
LAG = "2 hours"
LOOK_S = 0.05
STATUS_S = 5.0
AGAIN_S = 0.3
LOCAL = "local[2,4]"  # a task may fail three times
REGISTRY_ADDRESS = "registry.address"  # a file on the disk, too
REST_ADDRESS = "rest.address"  # a file on the disk, where a server has the catalog


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What is to run; `held`: nothing for now. `options` are the sink's, `source` the source's, taken at a start.

    number: counts the wishes, so that one can be told to be carried out. master: Spark's.
    """

    target: str
    bootstrap: str
    topic: str
    disk: str
    held: bool = False
    number: int = 0
    master: str = LOCAL
    options: Mapping[str, str] = field(default_factory=dict)
    source: Mapping[str, str] = field(default_factory=dict)

    def write(self, directory: Path) -> None:
        aside = directory / "wanted.aside"
        aside.write_text(json.dumps(asdict(self)))
        aside.replace(directory / "wanted.json")

    @staticmethod
    def read(directory: Path) -> Wanted:
        return Wanted(**json.loads((directory / "wanted.json").read_text()))


def session(master: str = LOCAL) -> SparkSession:
    from pyspark.sql import SparkSession

    from keyedwm.runtime.compiled import cache_directory

    return (
        SparkSession.builder.master(master)
        .config("spark.executor.memory", "512m")
        .config("spark.executor.cores", "1")
        .config("spark.cores.max", "2")
        # A host's own home has no compiled code.
        .config("spark.executorEnv.NUMBA_CACHE_DIR", str(cache_directory() or ""))
        .config("spark.executor.extraJavaOptions", java_options())
        .config("spark.driver.memory", "1g")
        .config("spark.driver.extraJavaOptions", java_options())
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "ERROR")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.python.unix.domain.socket.enabled", "true")
        .config("spark.python.daemon.module", "keyedwm.daemon")
        .config(map=dict(QUICK_BATCHES))
        # Killed while it writes its very first offset, Spark leaves a part of it and then refuses the checkpoint.
        .config("spark.sql.streaming.verifyCheckpointDirectoryEmptyOnStart", "false")
        .config("spark.sql.streaming.minBatchesToRetain", "100000")  # the whole offset log is looked at afterwards
        .getOrCreate()
    )


def _source(spark: SparkSession, wanted: Wanted) -> DataFrame:
    return (
        spark.readStream.format("keyedwm")
        .option("kafka.bootstrap.servers", wanted.bootstrap)
        .option("kafka.request.timeout.ms", "3000")
        .option("subscribe", wanted.topic)
        .option("startingOffsets", "earliest")
        .option("watermarkLag", LAG)
        .option("idleTimeout", "none")
        .options(**(wanted.source or {"maxOffsetsPerTrigger": BITE}))
        .load()
    )


def _events(spark: SparkSession, directory: Path, wanted: Wanted) -> StreamingQuery:
    return _started(_source(spark, wanted), directory, wanted, "events", {"snapshot": "barrier"})


def _hours(spark: SparkSession, directory: Path, wanted: Wanted) -> StreamingQuery:
    from pyspark.sql import functions as F

    from keyedwm.spark import with_watermark

    hours = (
        with_watermark(_source(spark, wanted))
        .groupBy(F.window("event_time", "1 hour").alias("hour"), "partition")
        .count()
        .select(F.col("hour.start").alias("hour"), "partition", "count")
    )
    return _started(hours, directory, wanted, "hours", {"snapshot": "batch"})


def _copy(spark: SparkSession, directory: Path, wanted: Wanted) -> StreamingQuery:
    options = {
        "kafka.bootstrap.servers": wanted.bootstrap,
        "kafka.request.timeout.ms": "3000",
        "topic": f"{wanted.topic}-out",
        "ledger": f"{wanted.disk}/ledger",
        "controlRows": "inline",
    }
    rows = _source(spark, wanted).drop("partition")
    if wanted.target == "kafka-avro":
        rows = rows.withColumnRenamed("value", "body")
        url = Path(wanted.disk, REGISTRY_ADDRESS).read_text()
        options |= {"value.format": "avro-confluent", "schemaRegistry.url": url, "schemaRegistry.timeout": "1 second"}
    return _started(rows, directory, wanted, "copy", options)


def _started(rows: DataFrame, directory: Path, wanted: Wanted, name: str, options: Mapping[str, str]) -> StreamingQuery:
    place = PLACES[wanted.target](wanted.disk, name)
    writer = rows.writeStream.format("keyedwm").queryName(name).options(**place, **options, **wanted.options)
    from keyedwm.spark import start_in_turn

    return start_in_turn(writer.option("checkpointLocation", str(directory / f"{name}.checkpoint")))[0]


def _in_catalog(disk: str, name: str) -> Mapping[str, str]:
    catalog = {"catalog.type": "sql", "catalog.uri": f"sqlite:///{disk}/catalog.db", "catalog.warehouse": disk}
    return {"table": f"db.{name}", "createTable": "true", **catalog}


def _by_rest(disk: str, name: str) -> Mapping[str, str]:
    catalog = {"catalog.type": "rest", "catalog.uri": Path(disk, REST_ADDRESS).read_text()}
    return {"table": f"db.{name}", "createTable": "true", **catalog}


# The options that name the output of a query, by its target.
PLACES: Mapping[str, Callable[[str, str], Mapping[str, str]]] = {
    "delta": lambda disk, name: {"path": f"{disk}/{name}"},
    "iceberg": _in_catalog,
    "iceberg-rest": _by_rest,
    "kafka": lambda _disk, _name: {},
    "kafka-avro": lambda _disk, _name: {},
}
QUERIES: Mapping[str, Mapping[str, Callable[[SparkSession, Path, Wanted], StreamingQuery]]] = {
    "delta": {"events": _events, "hours": _hours},
    "iceberg": {"events": _events, "hours": _hours},
    "iceberg-rest": {"events": _events, "hours": _hours},
    "kafka": {"copy": _copy},
    "kafka-avro": {"copy": _copy},
}


class Supervisor:
    """Keeps the wanted queries running, and tells of each that starts, fails or is stopped, and when all rest."""

    def __init__(self, directory: Path, who: str) -> None:
        self.directory, self.who = directory, who
        self.spark = session(Wanted.read(directory).master)
        self.running: dict[str, StreamingQuery] = {}
        self._resting = 0
        self._status_at_s = 0.0

    def run(self) -> None:
        parent = os.getppid()
        while os.getppid() == parent:
            wanted = Wanted.read(self.directory)
            for name, start in QUERIES[wanted.target].items():
                if not self._tend(name, partial(start, self.spark, self.directory, wanted), wanted.held):
                    return
            if wanted.held and not self.running and self._resting != wanted.number:
                self._resting = wanted.number
                self._tell("resting", str(wanted.number))
            if time.monotonic() > self._status_at_s:
                self._status_at_s = time.monotonic() + STATUS_S
                self._write_status()
            time.sleep(LOOK_S)

    def _write_status(self) -> None:
        """What each query does now, and its last progress: there the source tells what its planner saw last."""
        lines = [
            json.dumps({"at_s": time.time(), "name": name, "status": query.status, "progress": query.lastProgress},
                       default=str)
            for name, query in self.running.items()
        ]  # fmt: skip
        with (self.directory / f"status-{self.who}.jsonl").open("w") as file:
            file.writelines(f"{line}\n" for line in lines)

    def _tend(self, name: str, start: Callable[[], StreamingQuery], held: bool) -> bool:
        """Whether to go on."""
        from pyspark.errors import PySparkException

        query = self.running.get(name)
        try:
            if query is None and not held:
                self.running[name] = start()
                self._tell("started", name)
            elif query is not None and not query.isActive:
                raise query.exception() or RuntimeError(f"query {name} ended by itself")
            elif query is not None and held:
                query.stop()
                del self.running[name]
                self._tell("stopped", name)
        except PySparkException as error:
            self.running.pop(name, None)
            self._tell("failed", name, str(error))
            time.sleep(AGAIN_S)
            return self.who != "second"
        return True

    def _tell(self, what: str, name: str, error: str = "") -> None:
        line = json.dumps({"who": self.who, "what": what, "name": name, "error": error})
        with (self.directory / "told.jsonl").open("a") as file:
            file.write(f"{line}\n")


if __name__ == "__main__":
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    Supervisor(Path(sys.argv[1]), sys.argv[2]).run()
