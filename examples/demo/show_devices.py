"""`keyedwm demo --devices`: what each kind of watermark loses of devices that upload late, and who waits for them.

Rule: the three queries differ in their watermark and in nothing else. A step of simulated time is written between two
ticks of the queries' trigger, so that each sees it as a whole.
"""

from __future__ import annotations

import json
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing as closed
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from examples.demo.devices import BEGIN_MS, CLOSING, HOURS, LATE_SHARE, PARTITIONS, closing, made_up, name, steps
from examples.demo.queries import TICK_MS
from examples.demo.session import session
from examples.demo.show import native_connector
from keyedwm.core.errors import OptionError
from keyedwm.kafka.client.config import ClientConfig
from keyedwm.kafka.requests.cluster import Cluster
from keyedwm.kafka.requests.produce import Sender, new_producer
from keyedwm.spark import aggregate, count, per_key, recommended_conf, start_in_turn, tumbling
from keyedwm.testing.admin import create_topic
from keyedwm.testing.broker import broker

SPARK, PARTITION, KEY = "Spark's own", "per partition", "per device"
Records = dict[int, pa.Table]
LAG, BEHIND = "10 minutes", "25 hours"
MINUTE_MS = 60_000


@dataclass(slots=True)
class QueryResults:
    """The results of a query: events by device, and by whole minutes of delay results of devices on time."""

    late: frozenset[str]
    now_ms: int = BEGIN_MS
    rows: Counter[str] = field(default_factory=Counter)
    delays: Counter[int] = field(default_factory=Counter)

    def add_batch(self, batch: DataFrame, _: int) -> None:
        """Add the results of a batch."""
        results = batch.select("device", F.unix_millis("end").alias("end"), "rows").toArrow()
        for device, end_ms, rows in zip(*(column.to_pylist() for column in results.columns), strict=True):
            if device != CLOSING:
                self.rows[device] += rows
                if device not in self.late:
                    self.delays[(self.now_ms - end_ms) // MINUTE_MS] += 1

    @property
    def delay_minutes(self) -> int:
        """The median delay of results of devices on time, in minutes of simulated time."""
        minutes, results = np.array(sorted(self.delays.items()) or [(0, 1)]).T
        return int(minutes[np.searchsorted(np.cumsum(results), results.sum() / 2)])


@dataclass(frozen=True, slots=True)
class Figures:
    """The outcome of one kind of watermark. delay_minutes: median, of results of devices on time."""

    lost: int
    lost_of_late_devices: int
    delay_minutes: int


def show_devices(*, devices: int, step_count: int, out: Path) -> int:
    """Run the demo; 1 if a watermark of its own lost a device's event."""
    if devices < 1 or step_count < 2:
        raise OptionError(f"--devices {devices} --steps {step_count}: 1 device and 2 steps are expected at least")
    console = Console(soft_wrap=True)
    events, late = made_up(devices)
    console.print(
        f"{devices:,} devices, an event an hour each, {HOURS} hours in {step_count} steps; {LATE_SHARE:.0%} of them "
        f"lose their network once and upload up to a day late; {PARTITIONS} partitions; windows of an hour, lag {LAG}"
    )
    results = {way: QueryResults(frozenset(late)) for way in (SPARK, PARTITION, KEY)}
    plan = [*((end_ms, some.as_kafka()) for end_ms, some in steps(events, step_count)), (0, closing())]
    _run(plan, results, console)
    event_counts = Counter(map(name, events.devices.tolist()))
    figures = {way: _figures(event_counts, one) for way, one in results.items()}
    console.print(_table(figures))
    out.mkdir(parents=True, exist_ok=True)
    (out / "demo-devices.json").write_text(json.dumps({way: asdict(one) for way, one in figures.items()}, indent=1))
    return int(figures[KEY].lost > 0)


def _run(plan: Sequence[tuple[int, Records]], results: Mapping[str, QueryResults], console: Console) -> None:
    """Play all steps through Kafka and the three queries."""
    jars = native_connector(console)
    temporary = tempfile.TemporaryDirectory(prefix="keyedwm-demo-", ignore_cleanup_errors=True)
    with temporary as directory, broker() as kafka:
        console.print(kafka.describe())
        topic, home = f"keyedwm-demo-{uuid.uuid4().hex[:8]}", Path(directory)
        config = ClientConfig.from_options({"bootstrap.servers": kafka.bootstrap})
        with session(home / "spark", jars) as spark, closed(Cluster.connect(config)) as cluster:
            create_topic(cluster, topic, PARTITIONS, {"retention.ms": "-1"})
            sender = Sender(cluster, new_producer(cluster))
            writers = _writers(spark, kafka.bootstrap, topic, results, home, native_kafka=bool(jars))
            running = start_in_turn(*writers)
            with _progress(len(plan), console) as report_step:
                for end_ms, records in plan:
                    for one in results.values():
                        one.now_ms = end_ms or one.now_ms
                    _play(partial(sender.send, topic, records), running)
                    report_step()
            for query in running:
                query.stop()


def _writers(
    spark: SparkSession,
    bootstrap: str,
    topic: str,
    results: Mapping[str, QueryResults],
    home: Path,
    *,
    native_kafka: bool,
) -> list[DataStreamWriter]:
    """The three queries, not yet started."""
    for setting, value in recommended_conf(cores=2).items():
        spark.conf.set(setting, value)

    def read(source: str, **options: str) -> DataFrame:
        reader = spark.readStream.format(source).options(**options).option("kafka.bootstrap.servers", bootstrap)
        return reader.option("subscribe", topic).option("startingOffsets", "earliest").load()

    plain = read("kafka") if native_kafka else read("keyedwm", emitControl="false")
    native = plain.withWatermark("timestamp", LAG).groupBy(
        F.window("timestamp", "1 hour"), F.col("key").cast("string").alias("device")
    )
    rows = read("keyedwm", watermarkLag=LAG, idleTimeout="none").selectExpr(
        "cast(key AS string) device", "topic", "partition", "offset", "event_time", "watermark", "control"
    )
    frames = {SPARK: native.agg(F.count("*").alias("rows"))}
    for way, of_keys in {PARTITION: None, KEY: per_key(LAG, behind=BEHIND)}.items():
        name_of = way.replace(" ", "_")
        counts = aggregate(rows, "device", tumbling("1 hour"), {"rows": count()}, name=name_of, key_watermark=of_keys)
        frames[way] = counts.where("control IS NULL")
    return [
        frame.select("device", "window.end", "rows")
        .writeStream.foreachBatch(results[way].add_batch)
        .option("checkpointLocation", str(home / "checkpoints" / str(number)))
        .trigger(processingTime=f"{TICK_MS} milliseconds")
        for number, (way, frame) in enumerate(frames.items())
    ]


def _play(write: Callable[[], Any], running: Sequence[StreamingQuery]) -> None:
    """Write a step half way between two ticks, and wait until every query has dealt with it."""
    tick_s = TICK_MS / 1000
    time.sleep((1.5 * tick_s - time.time() % tick_s) % tick_s)
    write()
    for query in running:
        query.processAllAvailable()


def _figures(event_counts: Counter[str], results: QueryResults) -> Figures:
    lost_counts = {device: rows - results.rows[device] for device, rows in event_counts.items()}
    return Figures(
        sum(lost_counts.values()),
        sum(rows for device, rows in lost_counts.items() if device in results.late),
        results.delay_minutes,
    )


def _table(figures: Mapping[str, Figures]) -> Table:
    table = Table("", *figures)
    table.add_row("events lost", *(f"{one.lost:,}" for one in figures.values()))
    table.add_row("of late devices", *(f"{one.lost_of_late_devices:,}" for one in figures.values()))
    table.add_row(
        "median delay of results of devices on time", *(f"{one.delay_minutes} min" for one in figures.values())
    )
    return table


@contextmanager
def _progress(count: int, console: Console) -> Iterator[Callable[[], None]]:
    """A bar on a terminal, else a line for each step."""
    columns = (TextColumn("step"), MofNCompleteColumn(), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        bar, done = progress.add_task("", total=count), 0

        def report_step() -> None:
            """A step is done."""
            nonlocal done
            done += 1
            progress.update(bar, advance=1)
            if not console.is_terminal:
                console.print(f"step {done} of {count}")

        yield report_step
