"""What two queries cost while nothing comes: CPU an hour, Python processes and their memory, ours beside Spark's own.

Run: python -m benchmarks.idle [--seconds 60] [--pairs 3]
Each round is a driver of its own with two queries over one topic of 1,000 records, each micro-batch right after the one
before: windows into Delta and rows into Kafka, of Spark's side windows into Parquet. Once both have read the records
and settled, the seconds count: CPU of the driver with all its processes and of the broker, and, at their end, Python's
processes and their memory, shared pages divided among them (PSS). What is asked of the broker shows in its CPU. Linux
only.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.cpu import cpu_seconds
from benchmarks.measure import HDFS, Sheet, how_many, load_hundred_bytes, new_topic, scratch, session
from benchmarks.memory import MIB, workers
from benchmarks.start import RECORDS, frame
from benchmarks.windows import DEFAULT, KEYEDWM
from examples.demo.spark_jars import spark_kafka_connector_jars
from keyedwm.kafka.client.config import ClientConfig
from keyedwm.kafka.requests.cluster import Cluster
from keyedwm.spark.setup.conf import PROVIDER, recommended_conf, session_conf
from keyedwm.testing.broker import broker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

SETTLE_S, LIMIT_S, HOUR_S = 20, 120, 3_600
PAIRS = 3
OUT_TOPIC = "bench-idle-out"
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def started(spark: SparkSession, side: str, bootstrap: str, topic: str, place: Path) -> list[StreamingQuery]:
    """Start windows into a table and rows into a topic."""
    kafka = {"kafka.bootstrap.servers": bootstrap, "topic": OUT_TOPIC}
    if side == KEYEDWM:
        kafka["sharedTopic"] = "true"  # each round is a query of its own, of the same records
    windows, rows = (frame(spark, side, case, bootstrap, topic) for case in ("windows", "rows"))
    table, sink = ("keyedwm", "keyedwm") if side == KEYEDWM else ("parquet", "kafka")
    rows = rows if side == KEYEDWM else rows.select("key", "value")
    writers = [
        windows.writeStream.format(table).option("path", str(place / "table")),
        rows.writeStream.format(sink).options(**kafka),
    ]
    return [
        one.option("checkpointLocation", str(place / f"checkpoint-{number}")).start()
        for number, one in enumerate(writers)
    ]


def broker_seconds() -> float:
    """CPU seconds of all brokers on this machine."""
    spent = 0.0
    for place in Path("/proc").glob("[0-9]*"):
        try:
            text, command = (place / "stat").read_text(), (place / "cmdline").read_bytes()
        except OSError:
            continue  # it has ended meanwhile
        if b"kafka.Kafka" in command:
            spent += sum(map(int, text[text.rindex(")") + 2 :].split()[11:13])) / _TICKS_PER_S
    return spent


def pss_mib(pid: int) -> float:
    """Memory of a process, shared pages divided among those that share them."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1_024 / MIB
    return 0.0


def one_driver(side: str, bootstrap: str, topic: str, seconds: int) -> None:
    """What a round's process runs: prints the figures as JSON."""
    conf = dict(session_conf(cores=2) if side == KEYEDWM else recommended_conf(cores=2))
    if side == DEFAULT:
        conf[PROVIDER] = HDFS
    spark = session(spark_kafka_connector_jars(), conf=conf, memory="2g")
    with scratch() as place:
        queries = started(spark, side, bootstrap, topic, Path(place))
        limit = time.monotonic() + LIMIT_S
        while any(query.isActive and query.lastProgress is None for query in queries):
            if time.monotonic() > limit:
                raise SystemExit(f"idle {side}: no first batch within {LIMIT_S} s")
            time.sleep(1)
        if trouble := [query.exception() for query in queries if not query.isActive]:
            raise SystemExit(f"idle {side}: {trouble}")
        time.sleep(SETTLE_S)
        used_s, at_broker, began = cpu_seconds(), broker_seconds(), time.monotonic()
        time.sleep(seconds)
        hours = (time.monotonic() - began) / HOUR_S
        pids = workers()
        figures = {
            "cpu_s_an_hour": (cpu_seconds() - used_s) / hours,
            "broker_cpu_s_an_hour": (broker_seconds() - at_broker) / hours,
            "python_processes": len(pids),
            "python_pss_mib": sum(map(pss_mib, pids)),
        }
        for query in queries:
            query.stop()
    print(json.dumps(figures), flush=True)
    spark.stop()


def round_of(side: str, bootstrap: str, topic: str, seconds: int) -> dict[str, float]:
    """Run one driver."""
    command = [sys.executable, "-m", "benchmarks.idle", "--one", side, bootstrap, topic, "--seconds", str(seconds)]
    process = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(process.stdout.splitlines()[-1])


def main() -> None:
    """Measure both sides in turn, and write the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=how_many, default=60)
    parser.add_argument("--pairs", type=how_many, default=PAIRS)
    parser.add_argument("--one", nargs=3, metavar=("SIDE", "BOOTSTRAP", "TOPIC"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        one_driver(*options.one, options.seconds)
        return
    with broker("local") as kafka:  # its CPU is seen from here
        print(kafka.describe(), file=sys.stderr)
        cluster = Cluster.connect(ClientConfig.from_options({"bootstrap.servers": kafka.bootstrap}))
        topic = f"bench-idle-{time.time_ns()}"
        load_hundred_bytes(cluster, topic, RECORDS)
        new_topic(cluster, OUT_TOPIC)
        cluster.close()
        sheet = Sheet("idle", DEFAULT, {"records": RECORDS, "seconds": options.seconds, "queries": 2})
        sides = {side: partial(round_of, side, kafka.bootstrap, topic, options.seconds) for side in (DEFAULT, KEYEDWM)}
        for _ in range(options.pairs):
            for side, run in sides.items():
                sheet.add(side, run())
        sheet.finish()


if __name__ == "__main__":
    main()
