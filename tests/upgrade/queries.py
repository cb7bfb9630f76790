"""The program that is upgraded: a query for each kind of operator, on one topic, into one kind of target.

Run: PYTHON queries.py DIRECTORY LIFE   (DIRECTORY/plan.json has the queries; the program ends with its parent)

Rule: it runs with the keyedwm of the interpreter's environment, imports nothing of this repository, and calls only
what every version since 0.3.0 has. It writes what happens into DIRECTORY/events.jsonl. It starts a query again for one
reason: Spark waits only ten seconds for a Python process, and a host with this many queries can take longer.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

LOOK_S = 0.1
STARVED = ("Python worker failed to connect back", "Spark waited ten seconds for a Python process")
STARTS = 5  # of a query in a life
# Nothing is late: the records of a partition are less than two hours out of order.
LAG = "2 hours"
EVENTS = ("shop", "n", "event_time", "watermark", "control")
MESSAGES = ("topic", "partition", "offset", *EVENTS)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """queries: their names. checkpoints: the directory of the checkpoints. savepoints: the directory of the savepoints
    that the queries continue from, or None. save_to: write savepoints of all checkpoints there, and run no query.
    once: end when the topic is read to its end."""

    bootstrap: str
    topic: str
    target: str
    queries: tuple[str, ...]
    checkpoints: str = "checkpoints"
    savepoints: str | None = None
    save_to: str | None = None
    once: bool = False


def twin(topic: str) -> str:
    """The topic with the same records, for the second side of a join."""
    return f"{topic}-twin"


class Place:
    """A session and a plan, and the reads and arguments that a query makes of them."""

    def __init__(self, spark: SparkSession, directory: Path, plan: Plan) -> None:
        self.spark, self.directory, self.plan = spark, directory, plan

    def savepoint(self, name: str) -> str | None:
        return self.plan.savepoints and str(self.directory / self.plan.savepoints / name)

    def options(self, name: str, topic: str = "") -> dict[str, str]:
        """The source's options. topic: by default the plan's."""
        place = self.savepoint(name)
        start = {"continueFrom": place} if place else {"startingOffsets": "earliest"}
        return {
            "kafka.bootstrap.servers": self.plan.bootstrap, "subscribe": topic or self.plan.topic, "watermarkLag": LAG,
            "idleTimeout": "none", "maxOffsetsPerTrigger": "6000", **start,
        }  # fmt: skip

    def rows(self, name: str, topic: str = "") -> DataFrame:
        """A topic's rows with the fields of their values."""
        text = "cast(value as string)"
        return self.spark.readStream.format("keyedwm").options(**self.options(name, topic)).load().selectExpr(
            f"get_json_object({text}, '$.shop') shop", f"cast(get_json_object({text}, '$.n') as bigint) n",
            "topic", "partition", "offset", "event_time", "watermark", "control",
        )  # fmt: skip

    def sides(self, name: str, columns: tuple[str, ...]) -> list[DataFrame]:
        """The even rows, and the odd ones of the twin: sources of one topic cannot continue from a savepoint."""
        topics = (self.plan.topic, twin(self.plan.topic))
        rows = [self.rows(name, topic).select(*columns) for topic in topics]
        return [side.where(f"control IS NOT NULL OR n % 2 = {rest}") for rest, side in enumerate(rows)]

    def operator(self, name: str) -> dict[str, Any]:
        """The arguments of every operator."""
        place = self.savepoint(name)
        return {"name": name, "buckets": 2, **({"continue_from": place} if place else {})}


def _copy(at: Place) -> DataFrame:
    return at.rows("copy").select("shop", "n", "control")


def _tumbling(at: Place) -> DataFrame:
    from keyedwm import spark as wm

    totals = {"records": wm.count(), "total": wm.sum("n")}
    rows = at.rows("tumbling").select(*EVENTS)
    return _windows(wm.aggregate(rows, "shop", wm.tumbling("1 hour"), totals, **at.operator("tumbling")), *totals)


def _sliding(at: Place) -> DataFrame:
    from keyedwm import spark as wm

    totals = {"records": wm.count(), "high": wm.max("n")}
    rows = at.rows("sliding").select(*EVENTS)
    windows = wm.sliding("2 hours", "1 hour")
    return _windows(wm.aggregate(rows, "shop", windows, totals, **at.operator("sliding")), *totals)


def _session(at: Place) -> DataFrame:
    from keyedwm import spark as wm

    totals = {"records": wm.count(), "total": wm.sum("n")}
    rows = at.rows("session").select(*EVENTS)
    return _windows(wm.aggregate(rows, "shop", wm.session("20 minutes"), totals, **at.operator("session")), *totals)


def _unloaded(at: Place) -> DataFrame:
    """Stage one in the reading tasks."""
    from keyedwm import spark as wm

    totals = {"records": wm.count(), "total": wm.sum("json:$.n::bigint")}
    options = {name: value for name, value in at.options("unloaded").items() if name != "kafka.bootstrap.servers"}
    place = options.pop("continueFrom", None)
    start = {"continue_from": place} if place else {"starting_offsets": options.pop("startingOffsets")}
    read = wm.kafka(
        at.spark, at.plan.bootstrap, subscribe=options["subscribe"], watermark_lag=LAG, idle_timeout="none",
        max_offsets_per_trigger=int(options["maxOffsetsPerTrigger"]), **start,
    )  # fmt: skip
    hours = wm.aggregate(read, {"shop": "json:$.shop"}, wm.tumbling("1 hour"), totals, **at.operator("unloaded"))
    return _windows(hours, *totals)


def _store(at: Place) -> DataFrame:
    from keyedwm import spark as wm

    totals = {"records": wm.count(), "middle": wm.median("n")}
    hours = wm.aggregate(
        at.rows("store"), "shop", wm.tumbling("1 hour"), totals, store=wm.Store(retention="1 hour"), late="emit",
        **at.operator("store"),
    )  # fmt: skip
    return _windows(hours, *totals)


def _per_key(at: Place) -> DataFrame:
    from keyedwm import spark as wm

    totals = {"records": wm.count(), "total": wm.sum("n")}
    hours = wm.aggregate(
        at.rows("per_key"), "shop", wm.tumbling("1 hour"), totals, key_watermark=wm.per_key(LAG, behind="60 days"),
        **at.operator("per_key"),
    )  # fmt: skip
    return _windows(hours, *totals)


def _join(at: Place) -> DataFrame:
    from keyedwm import spark as wm

    near = wm.join(
        *at.sides("join", EVENTS), "shop", within=("-10 minutes", "10 minutes"), how="full", names=("even", "odd"),
        **at.operator("join"),
    )  # fmt: skip
    return near.select("shop", "n_even", "n_odd", "control")


def _latest(at: Place) -> DataFrame:
    from keyedwm import spark as wm

    latest = wm.join_latest(*at.sides("latest", EVENTS), "shop", names=("even", "odd"), **at.operator("latest"))
    return latest.select("shop", "n_even", "n_odd", "control")


def _window_join(at: Place) -> DataFrame:
    from keyedwm import spark as wm

    pairs = wm.window_join(
        *at.sides("window_join", MESSAGES), "shop", wm.tumbling("1 hour"), store=wm.Store(retention="1 hour"),
        names=("even", "odd"), **at.operator("window_join"),
    )  # fmt: skip
    return pairs.select("shop", "n_even", "n_odd", "control")


def _deduplicate(at: Place) -> DataFrame:
    from keyedwm import spark as wm

    once = wm.deduplicate(at.rows("deduplicate"), "shop", within="30 minutes", **at.operator("deduplicate"))
    return once.select("shop", "n", "control")


def _running(at: Place) -> DataFrame:
    from keyedwm import spark as wm

    totals = {"records": wm.count(), "total": wm.sum("n")}
    so_far = wm.running(at.rows("running"), "shop", totals, **at.operator("running"))
    return so_far.select("shop", "n", *totals, "control")


def _process(at: Place) -> DataFrame:
    from keyedwm import spark as wm

    hourly = wm.process(
        at.rows("process"), "shop", _hourly(), "shop string, hour bigint, n bigint", **at.operator("process")
    )
    return hourly.select("shop", "hour", "n", "control")


def _hourly() -> type:
    """The class of a processor that emits the rows of an hour when the watermark has passed the hour."""
    import numpy as np
    import pyarrow as pa

    from keyedwm.spark import Processor

    hour_us, hour_ms = 3_600_000_000, 3_600_000

    class Hourly(Processor):
        def on_rows(self, _input_number, rows):
            hours = rows["event_time"].cast(pa.int64()).to_numpy() // hour_us
            for hour in np.unique(hours).tolist():
                self.state.append(f"hour-{hour:09}", rows.filter(hours == hour).select(["shop", "n", "event_time"]))
            return ()

        def on_watermark(self, _input_number, _key, time_ms):
            for log in self.state.logs("hour-"):
                hour = int(log.removeprefix("hour-"))
                if hour < time_ms // hour_ms:
                    rows = self.state.read(log)
                    self.state.drop(log)
                    column = pa.array([hour] * rows.num_rows, pa.int64())
                    yield rows.add_column(1, "hour", column)

        def output_watermark_ms(self, watermark_ms):
            return watermark_ms // hour_ms * hour_ms

    return Hourly


def _chain(at: Place) -> DataFrame:
    """Windows over the results of windows."""
    from keyedwm import spark as wm

    rows, common = at.rows("chain").select(*EVENTS), at.operator("chain")
    hours = wm.aggregate(rows, "shop", wm.tumbling("1 hour"), {"of_hour": wm.count()}, **{**common, "name": "hours"})
    totals = {"records": wm.sum("of_hour"), "hours": wm.count()}
    return _windows(wm.aggregate(hours, "shop", wm.tumbling("6 hours"), totals, **common), *totals)


def _sparks_own(at: Place) -> DataFrame:
    """Spark's own windows and watermark."""
    from pyspark.sql import functions as F

    from keyedwm.spark import with_watermark

    hours = with_watermark(at.rows("sparks_own")).groupBy(F.window("event_time", "1 hour"), "shop")
    return hours.agg(F.count("*").alias("records")).selectExpr("shop", "unix_millis(window.start) start_ms", "records")


def _windows(windows: DataFrame, *columns: str) -> DataFrame:
    return windows.selectExpr("shop", "unix_millis(window.start) start_ms", *columns, "window", "control")


QUERIES: Mapping[str, Callable[[Place], DataFrame]] = {
    "copy": _copy, "tumbling": _tumbling, "sliding": _sliding, "session": _session, "unloaded": _unloaded,
    "store": _store, "per_key": _per_key, "join": _join, "latest": _latest, "window_join": _window_join,
    "deduplicate": _deduplicate, "running": _running, "process": _process, "chain": _chain, "sparks_own": _sparks_own,
}  # fmt: skip


def _target(at: Place, name: str, rows: DataFrame) -> tuple[DataFrame, dict[str, str]]:
    """The rows as the target has them, and the sink's options."""
    is_shared = at.plan.savepoints is not None
    if at.plan.target == "delta":
        return rows, {"path": str(at.directory / name), **({"sharedTable": "true"} if is_shared else {})}
    if at.plan.target == "iceberg":
        catalog = {
            "catalog.type": "sql", "catalog.uri": f"sqlite:///{at.directory}/{name}.db",
            "catalog.warehouse": str(at.directory),
        }  # fmt: skip
        options = {"table": f"db.{name}", "createTable": "true", **catalog}
        return rows, {**options, **({"sharedTable": "true"} if is_shared else {})}
    columns = [column for column in rows.columns if column not in ("window", "control")]
    control = ["control"] if "control" in rows.columns else []
    output = rows.selectExpr("shop key", f"to_json(struct({', '.join(columns)})) value", *control)
    options = {"kafka.bootstrap.servers": at.plan.bootstrap, "topic": f"{at.plan.topic}-{name}"}
    return output, {**options, **({"sharedTopic": "true"} if is_shared else {})}


def _query(at: Place, name: str) -> StreamingQuery:
    rows, options = _target(at, name, QUERIES[name](at))
    checkpoint = str(at.directory / at.plan.checkpoints / name)
    writer = rows.writeStream.format("keyedwm").queryName(name).options(**options, checkpointLocation=checkpoint)
    return (writer.trigger(availableNow=True) if at.plan.once else writer).start()


def _spark(directory: Path) -> SparkSession:
    from pyspark.sql import SparkSession

    from keyedwm.spark import session_conf

    return (
        SparkSession.builder.master("local[2,4]")
        .config(map=dict(session_conf(cores=2)))
        .config("spark.driver.memory", "2g")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "ERROR")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.warehouse.dir", str(directory / "warehouse"))
        .getOrCreate()
    )


class Runner:
    """Starts the plan's queries, and reports each that starts, ends or fails."""

    def __init__(self, directory: Path, life: str) -> None:
        self.directory, self.life, self.parent = directory, life, os.getppid()
        text = json.loads((directory / "plan.json").read_text())
        self.plan = Plan(**{**text, "queries": tuple(text["queries"])})
        self.at = Place(_spark(directory), directory, self.plan)
        self.starts: Counter[str] = Counter()

    def run(self) -> None:
        from pyspark.errors import PySparkException

        from keyedwm.core.errors import KeyedwmError
        from keyedwm.spark import reason

        waiting = list(self.plan.queries)
        running: dict[str, StreamingQuery] = {}
        while (waiting or running) and os.getppid() == self.parent:
            for name in [waiting.pop(0) for _ in waiting.copy()]:
                try:
                    if query := self._begin(name):
                        running[name] = query
                except (KeyedwmError, PySparkException) as error:  # noqa: PERF203 - the next query starts all the same
                    waiting += self._after(name, str(error), str(error))
            for name in [name for name, query in running.items() if not query.isActive]:
                query = running.pop(name)
                if error := query.exception():
                    waiting += self._after(name, str(error), str(reason(query) or error))
                else:
                    self.report("ended", name)
            time.sleep(LOOK_S)
        self.report("over", "")

    def _after(self, name: str, error: str, reason: str) -> list[str]:
        """Report a failed query; its name if it must be started again."""
        self.starts[name] += 1
        is_starved = any(text in error or text in reason for text in STARVED)
        is_again = is_starved and self.starts[name] < STARTS
        self.report("starved" if is_again else "failed", name, reason)
        return [name] if is_again else []

    def _begin(self, name: str) -> StreamingQuery | None:
        """Start a query, or write its savepoint."""
        from keyedwm.spark import savepoint

        if self.plan.save_to is None:
            query = _query(self.at, name)
            self.report("started", name)
            return query
        checkpoint = self.directory / self.plan.checkpoints / name
        savepoint(self.at.spark, str(checkpoint), str(self.directory / str(self.plan.save_to) / name))
        self.report("saved", name)
        return None

    def report(self, what: str, name: str, error: str = "") -> None:
        line = json.dumps({"life": self.life, "what": what, "name": name, "error": error})
        with (self.directory / "events.jsonl").open("a") as file:
            file.write(f"{line}\n")


if __name__ == "__main__":
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    Runner(Path(sys.argv[1]), sys.argv[2]).run()
