"""Where the time of a micro-batch goes: a table of its parts, and a flame graph of each.

Run: make profile, or python -m benchmarks.profiles [--records 1000000] [--into build/profile]
Planning, the reading and the writing task and the sink's commit run in this process, as Spark calls them; their stacks
are taken a thousand times a second (wall time, waiting included). Then Spark runs the same copy as a query: its own
account of a batch, and the JVM's stacks by Java's flight recorder (Java code on a CPU; what waits is not in them).
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.streaming.datasource import ReadMaxRows

from benchmarks.flame import Stack, by_part, draw, sampled
from benchmarks.measure import how_many, load_hundred_bytes, median, new_topic, session, through_json
from keyedwm.core.watermark import Guarantee
from keyedwm.kafka.client.config import ClientConfig
from keyedwm.kafka.requests.cluster import Cluster
from keyedwm.testing.broker import broker
from keyedwm.testing.java import find_java
from pyspark_wm_sink.batch.task import Task
from pyspark_wm_sink.kafka.publish import KafkaPublication, publish_to_kafka
from pyspark_wm_sink.kafka.stage import KafkaStagePlan, StagedRecords, stage
from pyspark_wm_sink.options.sink_options import SnapshotMode
from pyspark_wm_source.reader import row_schema, stream_reader

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TOPIC, OUT_TOPIC, OUT_OF_SPARK = "bench-profile", "bench-profile-out", "bench-profile-spark"
COLUMNS = ("key", "value")
BATCHES = 4
TIMEOUT_MS = 60_000
PLANNING, COMMIT, REST = "planning", "sink: commit", "other"
# A stack belongs to the first part that one of its frames names, by function or file: inner calls come first.
_WIRE = (
    "keyedwm/kafka/client/connection.py",
    "keyedwm/kafka/requests/cluster.py",
    "kafka/net/",
    "kafka/protocol/",
    "selectors.py",
)
READING = {
    "state commit": ("_leave ",),
    "decode": tuple(f"keyedwm/kafka/{name}.py" for name in ("records", "batches", "decode", "codecs", "pieces")),
    "policy": (
        "pyspark_wm_source/task/channel.py",
        "keyedwm/core/",
        "keyedwm/arrow/axis.py",
        "keyedwm/arrow/places.py",
    ),
    "fetch": ("keyedwm/kafka/requests/fetch.py", *_WIRE),
    "rows": ("pyspark_wm_source/", "keyedwm/arrow/"),
    "Arrow hand-over": ("to_jvm ",),
}
WRITING = {
    "sink: encode": ("keyedwm/kafka/records/encode.py", "keyedwm/kafka/records/codecs.py"),
    "sink: produce": ("keyedwm/kafka/requests/produce.py", "keyedwm/kafka/requests/transactions.py", *_WIRE),
    "sink: rows": ("pyspark_wm_sink/", "keyedwm/kafka/records/partitioner.py"),
    "sink: Arrow hand-over": ("from_jvm ",),
}
IN_JVM = {
    "JVM: Arrow": ("org.apache.arrow.", ".execution.arrow.", ".vectorized."),
    "JVM: Python tasks": (".api.python.", ".execution.python."),
    "JVM: logs": (".streaming.checkpointing.", "org.apache.hadoop."),
    "JVM: query planning": (".catalyst.optimizer.", ".catalyst.analysis.", ".execution.QueryExecution", ".codegen."),
    "JVM: streaming": (".streaming.",),
}


def to_jvm(batches: Iterable[pa.RecordBatch], path: Path) -> Path:
    """Write batches as Spark's worker does; a file takes the place of the socket: one copy by the kernel."""
    with pa.OSFile(str(path), "wb") as file:
        writer = None
        for batch in batches:
            writer = writer or pa.ipc.new_stream(file, batch.schema)
            writer.write_batch(batch)
        if writer:
            writer.close()
    return path


def from_jvm(path: Path) -> Iterable[pa.RecordBatch]:
    """Read as a worker of the sink does."""
    with pa.OSFile(str(path), "rb") as crossed:
        yield from pa.ipc.open_stream(crossed)


def read(options: Mapping[str, str], batch: int, into: Path) -> tuple[dict[str, Counter[Stack]], list[list[Path]]]:
    """Read the topic; returns the stacks by part, and what crossed to the JVM: a list a batch of a file a task."""
    reader = stream_reader(options, row_schema(options))
    planning: Counter[Stack] = Counter()
    reading: Counter[Stack] = Counter()
    crossed: list[list[Path]] = []
    start = through_json(reader.initialOffset())
    while True:
        with sampled(planning):
            end = through_json(reader.latestOffset(start, ReadMaxRows(batch)))
            tasks = [] if end == start else reader.partitions(start, end)
        if end == start:
            return {PLANNING: planning, **by_part(reading, READING, REST)}, crossed
        with sampled(reading):
            places = [into / f"{len(crossed)}-{number}.arrow" for number in range(len(tasks))]
            crossed.append([to_jvm(reader.read(task), path) for task, path in zip(tasks, places, strict=True)])
        start = end


def sink(cluster: Cluster, crossed: list[list[Path]], run: str) -> dict[str, Counter[Stack]]:
    """Write what crossed, a transaction for each task and a commit for each batch; returns the stacks by part."""
    plan = KafkaStagePlan(
        client=cluster.config, topic=OUT_TOPIC, stem=None, timeout_ms=TIMEOUT_MS, transactional=True, columns=COLUMNS,
        has_control=False, has_offsets=False,
    )  # fmt: skip
    writing: Counter[Stack] = Counter()
    committing: Counter[Stack] = Counter()
    with tempfile.TemporaryDirectory() as place:
        how = KafkaPublication(plan=plan, ledger=Path(place), mode=SnapshotMode.BATCH, guarantee=Guarantee.EXACTLY_ONCE)
        for batch, tasks in enumerate(filter(None, crossed)):  # the last one tells of watermarks only
            reports: list[StagedRecords] = []
            for number, path in enumerate(tasks):
                who = Task(query=run, run=run, batch=batch, partition=number, attempt=0, number=1_000 * batch + number)
                with sampled(writing):
                    reports.append(stage(plan, who, from_jvm(path)))
            with sampled(committing):
                publish_to_kafka(how, reports, batch=batch)
    return {**by_part(writing, WRITING, f"sink: {REST}"), COMMIT: committing}


@contextmanager
def recorded(spark: SparkSession, into: Path) -> Iterator[None]:
    """Let Java's flight recorder write what the JVM does meanwhile."""
    jvm = spark._jvm  # noqa: SLF001  the flight recorder has no other door
    recording = jvm.jdk.jfr.Recording(jvm.jdk.jfr.Configuration.getConfiguration("profile"))
    recording.start()
    yield
    recording.stop()
    recording.dump(jvm.java.nio.file.Path.of(str(into), spark.sparkContext._gateway.new_array(jvm.String, 0)))  # noqa: SLF001
    recording.close()


def through_spark(spark: SparkSession, options: Mapping[str, str], target: Mapping[str, str], into: Path) -> list[dict]:
    """Run the copy as a query, the JVM recorded into `into`; returns what Spark tells of each full batch."""
    with tempfile.TemporaryDirectory() as place, recorded(spark, into):
        rows = spark.readStream.format("keyedwm").options(**options).load()
        writer = rows.writeStream.format("keyedwm").options(**target).option("checkpointLocation", place)
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
    most = max(one.numInputRows for one in query.recentProgress)
    return [dict(one.durationMs) for one in query.recentProgress if one.numInputRows > most * 0.9]


def jvm_stacks(recording: Path) -> Counter[Stack]:
    """The stacks of Java code on a CPU, each sample one; the thread is the root."""
    tool = find_java().resolve().with_name("jfr")
    command = [tool, "print", "--json", "--stack-depth", "128", "--events", "jdk.ExecutionSample", recording]
    recorded_json = json.loads(subprocess.run(command, capture_output=True, check=True, timeout=120).stdout)
    stacks: Counter[Stack] = Counter()
    for event in recorded_json["recording"]["events"]:
        values: dict[str, Any] = event["values"]
        frames = [one["method"] for one in (values["stackTrace"] or {"frames": []})["frames"]]
        frame_names = [f"{frame['name']} {frame['type']['name'].replace('/', '.')}" for frame in reversed(frames)]
        stacks[(_thread(values["sampledThread"]), *frame_names)] += 1
    return stacks


def _thread(thread: Mapping[str, Any] | None) -> str:
    """A thread's name up to its number."""
    name = (thread or {}).get("javaName") or "no name"
    return " ".join(word for word in name.split() if not any(letter.isdigit() for letter in word)) or "no name"


def show(title: str, parts: Mapping[str, Counter[Stack]], unit: str, into: Path) -> None:
    """Print the parts of a whole, and draw each."""
    total = sum(sum(stacks.values()) for stacks in parts.values())
    print(f"\n{title}", flush=True)
    for part, stacks in parts.items():
        if weight := sum(stacks.values()):
            path = into / f"{part.lower().replace(': ', '-').replace(' ', '-')}.svg"
            draw(stacks, f"{part}: {weight:,.2f} {unit} of {total:,.2f}", path)
            print(f"  {part:24} {weight:10,.3f} {unit}  {weight / total:6.1%}  {path}", flush=True)


def main() -> None:
    """Profile the parts one after the other."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=how_many, default=1_000_000)
    parser.add_argument("--into", type=Path, default=Path("build", "profile"))
    arguments = parser.parse_args()
    arguments.into.mkdir(parents=True, exist_ok=True)
    batch = -(-arguments.records // BATCHES)
    with broker() as kafka:
        print(kafka.describe(), file=sys.stderr)
        where = {"kafka.bootstrap.servers": kafka.bootstrap}
        cluster = Cluster.connect(ClientConfig.from_options({"bootstrap.servers": kafka.bootstrap}))
        print(f"loading {arguments.records:,} records of 100 bytes", flush=True)
        load_hundred_bytes(cluster, TOPIC, arguments.records)
        for topic in (OUT_TOPIC, OUT_OF_SPARK):
            new_topic(cluster, topic)
        options = where | {"subscribe": TOPIC, "startingOffsets": "earliest"}
        with tempfile.TemporaryDirectory() as place:
            _, crossed = read(options | {"columns": ",".join(COLUMNS)}, batch, Path(place))
            for round_name in ("warming-up", "sampled"):
                print(f"reading and writing in this process, {round_name}", flush=True)
                parts, _ = read(options, batch, Path(tempfile.mkdtemp(dir=place)))
                write_parts = sink(cluster, crossed, round_name)
        show(f"reading {BATCHES} batches of {batch:,} rows, one task after the other", parts, "s", arguments.into)
        show("writing them to Kafka, a transaction for each task", write_parts, "s", arguments.into)
        in_spark(options, where, batch, arguments.into)
        cluster.close()


def in_spark(options: Mapping[str, str], where: Mapping[str, str], batch: int, into: Path) -> None:
    """Profile the JVM."""
    spark = session()
    reading = {**options, "maxOffsetsPerTrigger": str(batch)}
    target = {**where, "topic": OUT_OF_SPARK}
    recording = into / "jvm.jfr"
    for round_name in ("warming up", "recorded"):
        print(f"\nthe same copy by Spark, {round_name}", flush=True)
        phases = through_spark(spark, reading, target, recording)
    print(f"\nSpark's own account of a full batch, ms (median of {len(phases)})", flush=True)
    for phase in sorted(phases[0], key=lambda phase: -median(one[phase] for one in phases)):
        print(f"  {phase:24} {median(one[phase] for one in phases):10,.0f}", flush=True)
    show("the JVM's own work", by_part(jvm_stacks(recording), IN_JVM, f"JVM: {REST}"), "samples", into)
    spark.stop()


if __name__ == "__main__":
    main()
