"""Memory of a worker over many rows: must not grow, whatever it has read before.

Run: python -m benchmarks.memory [--millions 10] [--spark]
Streams a topic batch by batch, one million rows each, in this process (plan, cut, read, rows dropped), or with --spark
through a query into a no-op sink. Shows the resident memory after every batch and the peak within it, of this process
or of Spark's Python workers together with the JVM left out; the first million, in which code is compiled, is warm-up.
Linux only: /proc says what a process holds.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyspark.sql.streaming.datasource import ReadMaxRows

from benchmarks.cpu import is_below
from benchmarks.measure import FIRST_MS, PARTITIONS, VALUE, Sheet, how_many, new_topic, scratch, session, through_json
from keyedwm.kafka.client.config import ClientConfig
from keyedwm.kafka.requests.cluster import Cluster
from keyedwm.kafka.requests.produce import send
from keyedwm.testing.broker import broker

TOPIC = "bench-memory"
MILLION = 1_000_000
MIB = 1 << 20


def load(bootstrap: str, millions: int) -> None:
    """Produce so many million records of 100 bytes, one million at a time: this process is measured afterwards."""
    cluster = Cluster.connect(ClientConfig.from_options({"bootstrap.servers": bootstrap}))
    new_topic(cluster, TOPIC)
    values = pa.array([VALUE] * (MILLION // PARTITIONS), pa.binary())
    for number in range(millions):
        stamps = pa.array(FIRST_MS + number * len(values) + np.arange(len(values)))
        send(cluster, TOPIC, dict.fromkeys(range(PARTITIONS), pa.table({"value": values, "timestamp": stamps})))
    cluster.close()


def resident_mib(pid: int, field: str) -> float:
    """What a process holds: `VmRSS` now, `VmHWM` at most since `forget_peak`."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) * 1_024 / MIB
    raise SystemExit(f"/proc/{pid}/status has no {field}: the process has ended")


def forget_peak(pid: int) -> None:
    """Let the peak of a process begin anew."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")


def note(sheet: Sheet, number: int, pids: list[int]) -> None:
    """Note what the processes held for the batch just read."""
    resident, most = (sum(resident_mib(pid, field) for pid in pids) for field in ("VmRSS", "VmHWM"))
    figures = {"held_mib": resident, "peak_mib": most, "processes": len(pids)}
    sheet.add("a million rows at a time", figures, warming=number == 1)
    for pid in pids:
        forget_peak(pid)


def in_process(options: dict[str, str], sheet: Sheet) -> None:
    """Stream as Spark does, in this process."""
    from pyspark_wm_source.reader import row_schema, stream_reader

    reader = stream_reader(options, row_schema(options))
    start = through_json(reader.initialOffset())
    rows, number = 0, 0
    forget_peak(os.getpid())
    while (end := through_json(reader.latestOffset(start, ReadMaxRows(MILLION)))) != start:
        for task in reader.partitions(start, end):
            rows += sum(batch.num_rows for batch in reader.read(task))
        start = end
        if rows // MILLION > number:
            number = rows // MILLION
            note(sheet, number, [os.getpid()])


def through_spark(options: dict[str, str], sheet: Sheet) -> None:
    """Stream through a query."""
    spark = session()
    read = 0

    def batch(frame: object, _number: int) -> None:
        nonlocal read
        read += frame.where("control IS NULL").selectExpr("count(value)").collect()[0][0]  # type: ignore[attr-defined]
        note(sheet, read // MILLION, workers())

    frame = spark.readStream.format("keyedwm").options(**options).load()
    with scratch() as checkpoint:
        writer = frame.writeStream.foreachBatch(batch).option("checkpointLocation", checkpoint)
        writer.trigger(availableNow=True).start().awaitTermination()
    spark.stop()


def workers() -> list[int]:
    """The Python processes below this one."""
    parents: dict[int, int] = {}
    pythons = set()
    for place in Path("/proc").glob("[0-9]*"):
        try:
            text, program = (place / "stat").read_text(), (place / "exe").readlink().name
        except OSError:
            continue  # it ended meanwhile
        parents[int(place.name)] = int(text[text.rindex(")") + 2 :].split()[1])
        if program.startswith("python"):
            pythons.add(int(place.name))
    return sorted(pid for pid in pythons if pid != os.getpid() and is_below(pid, parents))


def main() -> None:
    """Load and stream."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--millions", type=how_many, default=10)
    parser.add_argument("--spark", action="store_true")
    arguments = parser.parse_args()
    with broker() as kafka:
        load(kafka.bootstrap, arguments.millions)
        options = {
            "kafka.bootstrap.servers": kafka.bootstrap, "subscribe": TOPIC, "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": str(MILLION),
        }  # fmt: skip
        sheet = Sheet("memory-spark" if arguments.spark else "memory", None, {"records": arguments.millions * MILLION})
        run: Callable[[dict[str, str], Sheet], None] = through_spark if arguments.spark else in_process
        run(options, sheet)
        sheet.finish()


if __name__ == "__main__":
    main()
