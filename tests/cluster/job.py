"""The program whose executors are killed: events by second into Delta or Kafka, or as they are into Kafka, once.

Run: python -m tests.cluster.job JSON   (the fields of `Job`)

Rule: a kill falls once, into the third batch or a later one, where `Job.kill` says: a file `armed` is renamed by the
task that strikes.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from tests.quick_batches import QUICK_BATCHES
from tests.shared_classes import java_options

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

# `driver`: the whole driver; `host`: its task waits for the test to take the worker away; `slow`: no kill, but one
# worker never ends a task of the sink by itself; `leaving`: the executor is decommissioned, which Spark does at SIGPWR.
PLACES = ("stage one", "windows", "sink, before", "sink, after", "driver", "host", "slow", "leaving")
IDLE = "idle"  # not a place: executors leave by themselves
SLOW_WORKER = "worker-2"
PARALLEL = 3
ARMED_FROM_BATCH = 1
# A twin as soon as one task of the stage is done; of a task that is alone, after the time that is named last.
SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "200ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.1",
    "spark.speculation.minTaskRuntime": "200ms",
    "spark.speculation.task.duration.threshold": "1s",
}
DECOMMISSION = {
    "spark.decommission.enabled": "true",
    "spark.storage.decommission.enabled": "true",
    "spark.storage.decommission.shuffleBlocks.enabled": "true",
}
# An executor goes after a second without a task, with what it has of the shuffle, and comes back when tasks wait.
DYNAMIC = {
    "spark.dynamicAllocation.enabled": "true",
    "spark.dynamicAllocation.initialExecutors": "2",
    "spark.dynamicAllocation.maxExecutors": "2",
    "spark.dynamicAllocation.executorIdleTimeout": "1s",
    "spark.dynamicAllocation.shuffleTracking.timeout": "1s",
    "spark.dynamicAllocation.schedulerBacklogTimeout": "1s",
}
SETTINGS = {"slow": SPECULATION, "leaving": DECOMMISSION, IDLE: DYNAMIC}


@dataclass(frozen=True, kw_only=True)
class Job:
    """master: of the cluster. directory: shared by all. kill: one of PLACES, IDLE, or none.

    target: `delta` for windows there, `windows` for windows in Kafka, `kafka` for a copy. checkpoint: its name in the
    directory, or in `store`, an address for checkpoint and table that needs the settings `conf` of Spark and `storage`
    of the sink. stop_after: end the query behind this batch, -1 at the end of the topic.
    """

    master: str
    bootstrap: str
    topic: str
    directory: str
    target: str
    kill: str = ""
    bite: int = 400
    cores: int = 2
    checkpoint: str = "checkpoint"
    stop_after: int = -1
    store: str = ""
    conf: dict[str, str] = field(default_factory=dict)
    storage: dict[str, str] = field(default_factory=dict)

    @property
    def durable(self) -> str:
        """Where checkpoint and table are."""
        return self.store or self.directory


def session(job: Job) -> SparkSession:
    from pyspark.sql import SparkSession

    from keyedwm.spark import session_conf

    builder = SparkSession.builder.master(job.master).appName("cluster")
    for name, value in {**session_conf(cores=job.cores), **QUICK_BATCHES}.items():
        builder = builder.config(name, value)
    for name, value in {**SETTINGS.get(job.kill, {}), **job.conf}.items():
        builder = builder.config(name, value)
    Path(job.directory, "events").mkdir(exist_ok=True)
    return (
        builder.config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.executor.memory", "512m")
        .config("spark.executorEnv.NUMBA_CACHE_DIR", os.environ["NUMBA_CACHE_DIR"])
        .config("spark.executor.extraJavaOptions", java_options())
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "ERROR")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.eventLog.enabled", "true")
        .config("spark.eventLog.rolling.enabled", "false")
        .config("spark.eventLog.compress", "false")
        .config("spark.eventLog.dir", Path(job.directory, "events").as_uri())
        # All executors take part, so that a killed one leaves others.
        .config("spark.scheduler.minRegisteredResourcesRatio", "1.0")
        .config("spark.scheduler.maxRegisteredResourcesWaitingTime", "120s")
        .getOrCreate()
    )


def striking(directory: str, *, at_end: bool, finishes: bool = False, waits: bool = False) -> Callable:
    """A function of `mapInArrow` that passes rows on, and kills the executor that it runs in, once.

    at_end: behind the last row of its task. finishes: it only notes its executor, for the driver to kill when the task
    has told its result, and the stage's other tasks wait until that was done. waits: it notes its executor, and waits
    for whoever ends it.
    """

    def rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if not at_end and batch.num_rows:
                strike()
            yield batch
        if at_end:
            strike()

    def strike() -> None:
        mine = False
        with suppress(FileNotFoundError):
            os.rename(f"{directory}/armed", f"{directory}/struck")  # noqa: PTH104  the closure travels to executors
            mine = True
        executor = parent(os.getppid())  # the parent of this process is PySpark's daemon, its parent is the JVM
        if mine and (finishes or waits):
            with open(f"{directory}/first.aside", "w") as file:  # noqa: PTH123
                file.write(str(executor))
            os.replace(f"{directory}/first.aside", f"{directory}/first")  # noqa: PTH105
        elif mine:
            os.kill(executor, signal.SIGKILL)
        if mine and not finishes:
            signal.pause()  # the daemon goes with its JVM, and this process with it
        if not mine and finishes and os.path.exists(f"{directory}/struck"):  # noqa: PTH110
            while not os.path.exists(f"{directory}/killed"):  # noqa: PTH110
                time.sleep(0.05)

    def parent(pid: int) -> int:
        with open(f"/proc/{pid}/stat") as file:  # noqa: PTH123
            return int(file.read().rpartition(")")[2].split()[1])

    return rows


def slowed(worker: str) -> Callable:
    """A function of `mapInArrow` that passes rows on, and on one worker never comes to an end behind them."""

    def rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches
        while f"/{worker}/" in os.getcwd():  # noqa: PTH109  an executor works below its worker's directory
            time.sleep(0.05)

    return rows


def query_of(job: Job, spark: SparkSession) -> StreamingQuery:
    rows = (
        spark.readStream.format("keyedwm")
        .option("kafka.bootstrap.servers", job.bootstrap)
        .option("subscribe", job.topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", str(job.bite))
        .option("idleTimeout", "none")
        # Small partitions share one task, and with no other task at work no worker is known to be slow.
        .option("minPartitions", str(PARALLEL if job.kill == "slow" else 1))
        .load()
    )
    return _copy(job, rows) if job.target == "kafka" else _windows(job, rows)


def _through(job: Job, rows: DataFrame, *places: str) -> DataFrame:
    """The rows through the function that strikes, if the kill belongs to this place."""
    if job.kill not in places:
        return rows
    if job.kill == "slow":
        return rows.mapInArrow(slowed(SLOW_WORKER), rows.schema)
    kill = striking(
        job.directory, at_end=job.kill.startswith(("sink", "driver")), finishes=job.kill in {"sink, after", "leaving"},
        waits=job.kill in {"driver", "host"},
    )  # fmt: skip
    return rows.mapInArrow(kill, rows.schema)


def _windows(job: Job, rows: DataFrame) -> StreamingQuery:
    from keyedwm.spark import aggregate, count, tumbling

    events = _through(
        job, rows.selectExpr("cast(key as string) name", "event_time", "watermark", "control"), "stage one"
    )
    seconds = aggregate(events, "name", tumbling("1 second"), {"events": count()}, name="seconds")
    told = seconds.selectExpr("name", "window.start second", "events", "control")
    told = _through(job, told, *PLACES[1:])
    if job.target == "delta":
        storage = {f"storage.{name}": value for name, value in job.storage.items()}
        return _started(job, told, {"path": f"{job.durable}/table", **storage})
    value = "to_json(named_struct('name', name, 'ms', unix_millis(second), 'events', events)) value"
    return _started(job, told.selectExpr("name key", value, "control"), _topic(job))


def _copy(job: Job, rows: DataFrame) -> StreamingQuery:
    return _started(job, _through(job, rows.drop("partition"), *PLACES), _topic(job))


def _topic(job: Job) -> dict[str, str]:
    return {"kafka.bootstrap.servers": job.bootstrap, "topic": f"{job.topic}-out"}


def _started(job: Job, rows: DataFrame, options: dict[str, str]) -> StreamingQuery:
    writer = rows.writeStream.format("keyedwm").options(**options)
    return writer.option("checkpointLocation", f"{job.durable}/{job.checkpoint}").trigger(availableNow=True).start()


def watch(job: Job, spark: SparkSession, query: StreamingQuery) -> None:
    """Arm the kill; the driver's own falls here, and one that waits for a task's result to be told."""
    directory = Path(job.directory)
    first, killed = directory / "first", directory / "killed"
    armed, noted_at = (directory / "struck").exists(), -1
    while query.isActive:
        batch = -1 if query.lastProgress is None else query.lastProgress.batchId
        if job.kill and not armed and batch >= ARMED_FROM_BATCH:
            armed = True
            (directory / "armed").touch()
        if 0 <= job.stop_after <= batch:
            query.stop()
        elif job.kill == "driver" and first.exists() and not killed.exists():
            killed.touch()
            os.killpg(0, signal.SIGKILL)
        elif job.kill == "leaving" and first.exists() and not killed.exists():
            os.kill(int(first.read_text()), signal.SIGPWR)
            killed.touch()
        elif job.kill == "sink, after" and first.exists() and not killed.exists():
            noted_at = batch if noted_at < 0 else noted_at
            # Of a stage that was over by then, the kill falls into the next one, whose tasks wait for it.
            if _some_are_done(spark) or batch > noted_at:
                os.kill(int(first.read_text()), signal.SIGKILL)
                killed.touch()
        query.awaitTermination(0.05)


def _some_are_done(spark: SparkSession) -> bool:
    """Whether a stage at work has tasks that have told their result, and others that have not."""
    tracker = spark.sparkContext.statusTracker()
    stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
    return any(one is not None and 0 < one.numCompletedTasks < one.numTasks for one in stages)


def main(job: Job) -> None:
    spark = session(job)
    query = query_of(job, spark)
    watch(job, spark, query)
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    main(Job(**json.loads(sys.argv[1])))
