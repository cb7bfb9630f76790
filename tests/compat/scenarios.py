"""The queries of which small real checkpoints are kept: each is run, saved, and continued by later versions.

Rule: what a scenario answers depends on its records and on its state, never on the clock.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.tools import Record, wait_for_markers

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import DataStreamWriter

PARTS = 2  # the first is in the fixture, the last one continues it
MINUTE_MS = 60_000
Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class Place:
    """Where a scenario runs."""

    spark: SparkSession
    bootstrap: str
    directory: Path

    def load(self, topic: str, **options: str) -> DataFrame:
        defaults = {"kafka.bootstrap.servers": self.bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
        return self.spark.readStream.format("keyedwm").options(**defaults, **options).load()

    def write(self, frame: DataFrame, name: str, **options: str) -> DataStreamWriter:
        writer = frame.writeStream.format("keyedwm").trigger(availableNow=True)
        return writer.options(checkpointLocation=str(self.directory / f"{name}.checkpoint"), **options)

    def table(self, name: str) -> str:
        return str(self.directory / name)


@dataclass(frozen=True)
class Scenario:
    """`topics`: with their partitions; records go to the first. `tables`: what is compared, with the columns that
    order the rows."""

    topics: Mapping[str, int]
    run: Callable[[Place], None]
    tables: Mapping[str, Sequence[str]]


def records(part: int) -> list[Record]:
    """The records of one part: two partitions, times that rise by half a minute, some late ones."""
    new_records = []
    for number in range(40):
        partition = number % 2
        step = part * 40 + number
        late_ms = 3 * MINUTE_MS if number % 11 == 7 else 0
        ms = 1_000 * MINUTE_MS + step * MINUTE_MS // 2 - late_ms + partition * 1_000
        value = {"n": step, "amount": step * 1.25, "created": ms - 250, "shipped": ms + 500}
        new_records.append(Record(partition, ms, json.dumps(value).encode(), f"shop-{number % 3}".encode()))
    return new_records


AXES = {
    "fixed": {"key": 0, "watermarkLag": "10 seconds"},
    "framed": {"key": 1, "watermarkThrottle": "frame", "frameSize": "1 minute", "eventTime": "json:$.created"},
    "stepped": {"key": 2, "watermarkThrottle": "step", "watermarkStep": "2 minutes", "eventTime": "json:$.shipped"},
    "delayed": {"key": 3, "watermarkPolicy": "lagAndDelay", "watermarkDelay": "1 second"},
    "lull": {"key": 4, "watermarkPolicy": "lagAndLull", "watermarkLull": "1 hour"},
    "wall": {"key": 5, "watermarkPolicy": "timestampAndWallClockLag", "wallClockLag": "1 minute"},
    "real": {"key": 6, "watermarkPolicy": "realTimeLag", "wallClockLag": "1 minute"},
    "none": {"key": 7, "watermarkPolicy": "none"},
}
STEADY = ("fixed", "framed", "stepped")  # those that no clock moves


def policies(place: Place) -> None:
    """The source with an axis for each policy and throttle, into a Delta table."""
    rows = place.load("compat-policies", watermarks=json.dumps(AXES), idleTimeout="none", includeHeaders="true")
    time_columns = [column for axis in STEADY for column in (f"event_time_{axis}", f"watermark_{axis}")]
    columns = rows.select("key", "value", "topic", "partition", "offset", *time_columns, "control")
    place.write(columns, "policies", path=place.table("policies")).start().awaitTermination()


def panes(place: Place) -> None:
    """Tumbling windows with early and late panes, and every kind of accumulator."""
    from keyedwm import spark as wm

    rows = place.load("compat-panes", watermarkLag="10 seconds", idleTimeout="none").selectExpr(
        "cast(key as string) shop", "cast(get_json_object(cast(value as string), '$.amount') as double) amount",
        "cast(get_json_object(cast(value as string), '$.n') as bigint) n", "event_time", "watermark", "control",
    )  # fmt: skip
    totals = {
        "rows": wm.count(), "total": wm.sum("amount"), "whole": wm.sum("n"), "mean": wm.avg("amount"),
        "low": wm.min("n"), "high": wm.max("n"), "first": wm.first("n"), "last": wm.last("n"), "all": wm.collect("n"),
    }  # fmt: skip
    result = wm.aggregate(
        rows, "shop", wm.tumbling("5 minutes"), totals, early=wm.early(rows=2), lateness="5 minutes", late="emit",
        name="panes", buckets=2,
    )  # fmt: skip
    place.write(result, "panes", path=place.table("panes")).start().awaitTermination()


def sessions(place: Place) -> None:
    """Sessions that grow and merge over several batches."""
    from keyedwm import spark as wm

    rows = place.load("compat-sessions", watermarkLag="10 seconds", idleTimeout="none").selectExpr(
        "cast(key as string) shop", "length(value) size", "event_time", "watermark", "control"
    )
    visits = wm.aggregate(rows, "shop", wm.session("1 minute"), {"rows": wm.count()}, name="visits", buckets=1)
    place.write(visits, "sessions", path=place.table("sessions")).start().awaitTermination()


def chain(place: Place) -> None:
    """Kafka to Kafka with control records, and from there, propagated, into a Delta table."""
    rows = place.load("compat-chain", watermarkLag="10 seconds", idleTimeout="none").drop("partition")
    out = {"kafka.bootstrap.servers": place.bootstrap, "topic": "compat-chain-out", "controlRows": "inline"}
    place.write(rows, "upstream", **out).start().awaitTermination()
    wait_for_markers(place.bootstrap, "compat-chain-out")
    between = place.load("compat-chain-out", propagate="true", eventTime="json:$.created")
    columns = between.select("key", "value", "event_time", "watermark", "control")
    place.write(columns, "downstream", path=place.table("chain")).start().awaitTermination()


def joins(place: Place) -> None:
    """Rows held by both sides of an outer join with a condition, then rows and changes of a `join_latest`."""
    from keyedwm import spark as wm

    rows = place.load("compat-joins", watermarkLag="10 seconds", idleTimeout="none").selectExpr(
        "cast(key as string) shop", "cast(get_json_object(cast(value as string), '$.n') as bigint) n",
        "event_time", "watermark", "control",
    )  # fmt: skip
    sides = [rows.where(f"control IS NOT NULL OR n % 2 = {rest}") for rest in (0, 1)]
    near = wm.join(
        *sides, "shop", within=("-2 minutes", "5 minutes"), how="full", condition="even.n - odd.n <> 3",
        names=("even", "odd"), name="near", buckets=2,
    )  # fmt: skip
    latest = wm.join_latest(*sides, "shop", names=("even", "odd"), name="latest", buckets=2)
    for name, frame in (("near", near), ("latest", latest)):
        columns = frame.select("shop", "n_even", "n_odd", "event_time_even", "event_time_odd", "control")
        place.write(columns, name, path=place.table(name)).start().awaitTermination()


def stores(place: Place) -> None:
    """Windows that keep their messages, some of which are updated late, and messages that come too late for them."""
    from keyedwm import spark as wm

    small = {"watermarkLag": "10 seconds", "idleTimeout": "none", "maxOffsetsPerTrigger": "6"}
    rows = place.load("compat-stores", **small).selectExpr(
        "cast(key as string) shop", "cast(get_json_object(cast(value as string), '$.n') as bigint) n",
        "topic", "partition", "offset", "event_time", "watermark", "control",
    )  # fmt: skip
    columns = wm.aggregate(
        rows, "shop", wm.hopping("40 seconds", "30 seconds"), {"rows": wm.count(), "middle": wm.median("n")},
        store=wm.Store(retention="1 minute"), late="emit", name="stores", buckets=2,
    )  # fmt: skip
    place.write(
        columns, "stores", path=place.table("stores"), errorsTo=place.table("rejected")
    ).start().awaitTermination()


SCENARIOS: Mapping[str, Scenario] = {
    "policies": Scenario({"compat-policies": 2}, policies, {"policies": ("partition", "offset")}),
    "panes": Scenario({"compat-panes": 2}, panes, {"panes": ("window", "shop", "pane")}),
    "sessions": Scenario({"compat-sessions": 2}, sessions, {"sessions": ("window", "shop")}),
    "chain": Scenario({"compat-chain": 2, "compat-chain-out": 2}, chain, {"chain": ("value",)}),
    "joins": Scenario({"compat-joins": 2}, joins, dict.fromkeys(("near", "latest"), ("shop", "n_even", "n_odd"))),
    "stores": Scenario(
        {"compat-stores": 2}, stores, {"stores": ("window", "shop", "pane"), "rejected": ("partition", "offset")}
    ),
}


def answer(scenario: Scenario, directory: Path) -> dict[str, Rows]:
    """The rows of every table, ordered, as JSON has them."""
    from deltalake import DeltaTable

    rows_by_table = {}
    for name, order in scenario.tables.items():
        rows = DeltaTable(str(directory / name)).to_pyarrow_table().to_pylist()
        plain = json.loads(json.dumps(rows, default=_plain))
        rows_by_table[name] = sorted(
            plain, key=lambda row: json.dumps([row[column] for column in order], sort_keys=True)
        )
    return rows_by_table


def _plain(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
