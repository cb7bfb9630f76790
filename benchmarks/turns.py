"""The loop that comparisons share: cases chosen on the command line, one broker, one Spark, sides in turn.

Rule: every side of a case runs once a round, in the same order. Rounds warm up, and count for none, until two that
follow each other agree within a tenth in every side; where they do not, a few are enough and the result says so.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.measure import Run, Sheet, how_many, session
from examples.demo.spark_jars import spark_kafka_connector_jars
from keyedwm.kafka.client.config import ClientConfig
from keyedwm.kafka.requests.cluster import Cluster
from keyedwm.plugin import FORMAT
from keyedwm.spark.setup.conf import session_conf
from keyedwm.testing.broker import broker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamReader

    from keyedwm.spark.hosting.source_description import Source

# Ten full micro-batches of half a million: the first, which starts, and nine that count as steady.
RECORDS = 5_000_000
PAIRS = 5
MOST_WARMING = 4
_NEAR = 0.9


@dataclass(frozen=True, slots=True)
class Bench:
    """Where comparisons run.

    cases: the names chosen. asked_records: how many records at most; batches: how many full micro-batches. None: as
    the case has it.
    """

    cluster: Cluster
    spark: SparkSession
    cases: tuple[str, ...]
    asked_records: int | None
    pairs: int
    batches: int | None = None

    @property
    def records(self) -> int:
        """The number of records that a case has without a number of its own."""
        return self.asked_records or RECORDS

    def at_most(self, records: int) -> int:
        """Return how many of these records are run; says so if that is less."""
        if self.asked_records is None or self.asked_records >= records:
            return records
        print(f"{self.asked_records:,} of {records:,} records, as asked", flush=True)
        return self.asked_records

    @property
    def where(self) -> dict[str, str]:
        """The option that names the broker, to Spark's formats and to ours."""
        return {"kafka.bootstrap.servers": self.cluster.config.addresses}

    def reader(self, format_name: str) -> DataStreamReader | Source:
        """Return a reader of a format; of ours as the README describes a read, with a task a core."""
        from keyedwm.spark import source

        return source(self.spark) if format_name == FORMAT else self.spark.readStream.format(format_name)


@contextmanager
def running(
    conf: Mapping[str, str] | None = None, jars: Iterable[object] = ()
) -> Iterator[tuple[Cluster, SparkSession]]:
    """Start a broker, and a Spark that has its own Kafka connector and the settings that ours is used with.

    conf: what is set beside those of `session_conf`. jars: beside those of the connector. Sides of Spark set their
    state store; they run no Python.
    """
    with broker() as kafka:
        print(kafka.describe(), file=sys.stderr)
        cluster = Cluster.connect(ClientConfig.from_options({"bootstrap.servers": kafka.bootstrap}))
        spark = session([*spark_kafka_connector_jars(), *jars], conf={**session_conf(cores=2), **(conf or {})})
        yield cluster, spark
        spark.stop()
        cluster.close()


@contextmanager
def bench(
    doc: str | None,
    cases: Iterable[str],
    conf: Mapping[str, str] | None = None,
    *,
    batches: bool = False,
    jars: Callable[[], Iterable[object]] = tuple,
) -> Iterator[Bench]:
    """Read the command line, and start what the cases run on.

    batches: whether their number can be asked for. jars: fetches those that Spark needs beside its connector's.
    """
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", action="append", choices=list(cases))
    parser.add_argument("--records", type=how_many, help="at most so many for a case, less than it says")
    parser.add_argument(
        "--pairs", type=how_many, default=PAIRS, help="rounds that count, after two to four that warm up"
    )
    if batches:
        parser.add_argument("--batches", type=how_many, help="so many full micro-batches")
    options = parser.parse_args()
    with running(conf, jars()) as (cluster, spark):
        arguments = options.records, options.pairs, options.batches if batches else None
        yield Bench(cluster, spark, tuple(options.case or cases), *arguments)


def in_turn(
    sheet: Sheet,
    sides: Mapping[str, Callable[[], Run | Mapping[str, float | None]]],
    pairs: int,
    most_warming: int = MOST_WARMING,
) -> None:
    """Run all sides once a round until they are warm, then `pairs` rounds that count, and write what came out."""
    before: dict[str, float] = {}
    for _ in range(most_warming):
        now = {side: sheet.add(side, run(), warming=True) for side, run in sides.items()}
        sheet.warmed += 1
        sheet.is_warm = bool(before) and all(_agree(before[side], now[side]) for side in sides)
        if sheet.is_warm:
            break
        before = now
    for _ in range(pairs):
        for side, run in sides.items():
            sheet.add(side, run())
    sheet.finish()


def _agree(one: float, other: float) -> bool:
    return min(one, other) >= _NEAR * max(one, other)
