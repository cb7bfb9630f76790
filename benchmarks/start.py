"""How long a user waits for a first batch, ours beside Spark's own `kafka`: of a session's first query and a later one.

Run: python -m benchmarks.start [--case rows|windows] [--pairs 5]
Each round is a driver of its own, whose session runs already. From the call of `load()` until the first micro-batch has
ended, over a topic of 1,000 records, into a no-op sink; `windows` counts them by key and minute. The later query is the
third of the session: its code is loaded, its processes are its own. Ours runs with `session_conf` after `keyedwm warm`,
and once more with `recommended_conf` alone; Spark's over its default state store, which starts faster, and once more
with the class archive that `keyedwm warm` has written.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from functools import partial
from typing import TYPE_CHECKING

from benchmarks.cpu import cpu_seconds
from benchmarks.measure import HDFS, Sheet, how_many, load_hundred_bytes, scratch, session
from benchmarks.turns import PAIRS, in_turn
from benchmarks.windows import DEFAULT, KEYEDWM
from examples.demo.spark_jars import spark_kafka_connector_jars
from keyedwm.cli.warm.cds_archive import write_archive
from keyedwm.kafka.client.config import ClientConfig
from keyedwm.kafka.requests.cluster import Cluster
from keyedwm.spark.setup.cds_archive import archive_setting
from keyedwm.spark.setup.conf import PROVIDER, recommended_conf, session_conf
from keyedwm.testing.broker import broker

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CASES = ("rows", "windows")
RECORDS, QUERIES = 1_000, 3
WITHOUT_CONF = f"{KEYEDWM}, without session_conf"
ARCHIVED = f"{DEFAULT}, CDS archive"
_LOOK_S = 0.01


def frame(spark: SparkSession, side: str, case: str, bootstrap: str, topic: str) -> DataFrame:
    """What the query reads and computes."""
    from pyspark.sql import functions as F

    from keyedwm.spark import aggregate, count, tumbling

    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
    ours = side in (KEYEDWM, WITHOUT_CONF)
    rows = spark.readStream.format("keyedwm" if ours else "kafka").options(**options).load()
    if case == "rows":
        return rows
    if ours:
        return aggregate(rows, "key", tumbling("1 minute"), {"n": count()})
    return rows.withWatermark("timestamp", "0 seconds").groupBy(F.window("timestamp", "1 minute"), "key").count()


def first_batch_s(spark: SparkSession, side: str, case: str, bootstrap: str, topic: str) -> tuple[float, float]:
    """Seconds, and CPU seconds of the driver and all its processes, from the call of `load()` until the first
    micro-batch has ended; the query is stopped then.
    """
    used_s, began = cpu_seconds(), time.perf_counter()
    with scratch() as checkpoint:
        writer = frame(spark, side, case, bootstrap, topic).writeStream.format("noop")
        query = writer.option("checkpointLocation", checkpoint).start()
        while query.isActive and query.lastProgress is None:
            time.sleep(_LOOK_S)
        took_s, used_s = time.perf_counter() - began, cpu_seconds() - used_s
        query.stop()
    if query.lastProgress is None or query.lastProgress.numInputRows < RECORDS:
        raise SystemExit(f"start {side} {case}: the first batch has not read {RECORDS} rows: {query.exception()}")
    return took_s, used_s


def one_driver(side: str, case: str, bootstrap: str, topic: str) -> None:
    """What a round's process runs: prints the figures as JSON."""
    conf = dict(session_conf(cores=2) if side == KEYEDWM else recommended_conf(cores=2))
    if side in (DEFAULT, ARCHIVED):
        conf[PROVIDER] = HDFS
    if side == ARCHIVED:
        conf |= archive_setting()
    spark = session(spark_kafka_connector_jars(), conf=conf, memory="2g")
    figures = [first_batch_s(spark, side, case, bootstrap, topic) for _ in range(QUERIES)]
    (first_s, first_cpu_s), *_, (later_s, later_cpu_s) = figures
    summary = {"first_s": first_s, "later_s": later_s, "first_cpu_s": first_cpu_s, "later_cpu_s": later_cpu_s}
    print(json.dumps(summary), flush=True)
    spark.stop()


def round_of(side: str, case: str, bootstrap: str, topic: str) -> dict[str, float]:
    """Run one driver."""
    command = [sys.executable, "-m", "benchmarks.start", "--one", side, case, bootstrap, topic]
    process = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(process.stdout.splitlines()[-1])


def main() -> None:
    """Measure all cases, sides in turn, and write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", action="append", choices=CASES)
    parser.add_argument("--pairs", type=how_many, default=PAIRS)
    parser.add_argument("--one", nargs=4, metavar=("SIDE", "CASE", "BOOTSTRAP", "TOPIC"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        one_driver(*options.one)
        return
    archive = write_archive()
    print(archive.text, file=sys.stderr)
    if not archive_setting():
        raise SystemExit(f"start: this machine can have no CDS archive: {archive.text}")
    with broker() as kafka:
        print(kafka.describe(), file=sys.stderr)
        cluster = Cluster.connect(ClientConfig.from_options({"bootstrap.servers": kafka.bootstrap}))
        topic = f"bench-start-{time.time_ns()}"
        load_hundred_bytes(cluster, topic, RECORDS)
        cluster.close()
        for case in options.case or CASES:
            sheet = Sheet(
                f"start-{case}", DEFAULT, {"records": RECORDS, "from": "load() to the end of the first batch"}
            )
            sides = {
                side: partial(round_of, side, case, kafka.bootstrap, topic)
                for side in (DEFAULT, ARCHIVED, KEYEDWM, WITHOUT_CONF)
            }
            in_turn(sheet, sides, options.pairs)


if __name__ == "__main__":
    main()
