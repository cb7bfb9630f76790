"""Source, windows, join and Kafka to Kafka with one, two and three executors of one core each, in turn, on one broker.

Run: python -m benchmarks.growth [--case source|windows|windows-pushed|join|kafka] [--executors 1 2 3] [--rounds 2]
A standalone cluster with as many workers as the largest number, and a driver for each number and round that asks for so
many cores. Every case runs twice on its executors, and the first run warms them up. What comes out is checked as in the
comparison that a case is taken from. Executors, driver and broker share the cores of this machine: figures beyond them
show what is lost by sharing, not what more hosts would give.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict

from benchmarks import join, sink, windows
from benchmarks.measure import Run, Sheet, drained, how_many, load_hundred_bytes, session
from benchmarks.source import FOUR, SPARE
from benchmarks.turns import Bench
from benchmarks.windows_answer import load as load_windows
from keyedwm.kafka.client.config import ClientConfig
from keyedwm.kafka.requests.cluster import Cluster
from keyedwm.spark.setup.conf import recommended_conf
from keyedwm.testing.broker import broker
from tests.support.standalone import standalone

RECORDS, BATCH = 4_000_000, 400_000
READ = "bench-growth-source"
JOINED = ("bench-growth-left", "bench-growth-right")
MEMORY_MB, EXECUTOR_MEMORY = 3_072, "2g"
CASE = windows.CASES["tumbling"]
SHARE = windows.Share(RECORDS, BATCH)
PAIRED = join.Case(RECORDS // 4, 100_000, BATCH // 4)


def source(on: Bench) -> Run:
    """Read into a no-op sink."""
    options = {"subscribe": READ, "startingOffsets": "earliest", "maxOffsetsPerTrigger": str(BATCH), "columns": FOUR}
    return drained(on.spark.readStream.format("keyedwm").options(**on.where, **options).load(), RECORDS, SPARE)


def loaded(on: Bench) -> Run:
    """Tumbling windows over loaded rows."""
    return windows.measured(on, windows.KEYEDWM, CASE, SHARE)


def pushed(on: Bench) -> Run:
    """Tumbling windows with stage one in the tasks that read."""
    return windows.measured(on, windows.PUSHED, CASE, SHARE)


def joined(on: Bench) -> dict[str, float | None]:
    """An inner join one to one, divided in the source."""
    return join.measured(on, join.PUSHED, PAIRED, JOINED)


def copied(on: Bench) -> Run:
    """Kafka to Kafka, exactly once."""
    return sink.copy(on, sink.EXACTLY, RECORDS, BATCH)


CASES: dict[str, Callable[[Bench], Run | dict[str, float | None]]] = {
    "source": source, "windows": loaded, "windows-pushed": pushed, "join": joined, "kafka": copied,
}  # fmt: skip


def load(cluster: Cluster, cases: list[str]) -> None:
    """Produce what the cases read."""
    if "source" in cases:
        load_hundred_bytes(cluster, READ, RECORDS)
    if "kafka" in cases:
        load_hundred_bytes(cluster, sink.topic_of(RECORDS), RECORDS)
    if {"windows", "windows-pushed"} & set(cases):
        load_windows(cluster, windows.topic_of(CASE.stream, SHARE), CASE.stream, RECORDS)
    if "join" in cases:
        join.load(cluster, JOINED, PAIRED)


@contextmanager
def open_bench(cluster: Cluster, url: str, executors: int) -> Iterator[Bench]:
    """A driver that has so many executors of one core each."""
    conf = {
        **recommended_conf(cores=executors), "spark.master": url, "spark.cores.max": str(executors),
        "spark.executor.cores": "1", "spark.executor.memory": EXECUTOR_MEMORY,
    }  # fmt: skip
    spark = session(memory="2g", conf=conf)
    try:
        yield Bench(cluster, spark, (), None, 1)
    finally:
        spark.stop()


def main() -> None:
    """Run every case with every number of executors, and write what came out."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", action="append", choices=list(CASES))
    parser.add_argument("--executors", type=how_many, nargs="+", default=[1, 2, 3])
    parser.add_argument("--rounds", type=how_many, default=2)
    options = parser.parse_args()
    cases = options.case or list(CASES)
    setting = {"records": RECORDS, "batch": BATCH, "executor_cores": 1, "join": asdict(PAIRED)}
    sheet = Sheet("growth", None, setting)
    with broker() as kafka, standalone(max(options.executors), cores=1, memory_mb=MEMORY_MB) as place:
        print(kafka.describe(), place.describe(), sep="\n", file=sys.stderr)
        cluster = Cluster.connect(ClientConfig.from_options({"bootstrap.servers": kafka.bootstrap}))
        load(cluster, cases)
        for _ in range(options.rounds):
            for executors in options.executors:
                with open_bench(cluster, place.url, executors) as on:
                    for case in cases:
                        for warming in (True, False):
                            sheet.add(f"{case}, {executors} executors", CASES[case](on), warming=warming)
        cluster.close()
    sheet.finish()


if __name__ == "__main__":
    main()
