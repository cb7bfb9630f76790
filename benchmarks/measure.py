"""What the comparisons share: the rows they read, a Spark session, CPU seconds by process, ratios, and result files.

Rule: a side's figure counts only if its output was checked; sides take turns (`turns.py`), each round gives one ratio.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from benchmarks.cpu import Spent, spending
from keyedwm.kafka.client.values import Codec, Isolation
from keyedwm.kafka.records.read import ColumnSelection
from keyedwm.kafka.requests.cluster import Cluster
from keyedwm.kafka.requests.fetch import OffsetRange, read_ranges
from keyedwm.kafka.requests.produce import send
from keyedwm.testing.admin import create_topic

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

KEPT_RESULTS = Path(__file__).parent / "results"
# A trial run writes somewhere else.
RESULTS = Path(os.environ.get("BENCH_RESULTS", KEPT_RESULTS))
NO_LIMIT = "spark.sql.execution.arrow.maxBytesPerBatch"
# Spark's default state store: the one that its own operators are fastest with.
HDFS = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
PARTITIONS = 4
KEYS = 1_000
VALUE = b"x" * 100
FIRST_MS = 1_700_000_000_000


def how_many(text: str) -> int:
    """An argument of a command line that says how many; with none there would be a result without figures."""
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r}: a whole number of at least 1 is expected")
    return int(text)


@dataclass(frozen=True, slots=True)
class Run:
    """One finished query.

    rate: rows/s from start() to its end. steady: rows/s inside the full micro-batches but the first, None if there was
    only one. cpu_s: CPU seconds per million rows of this process and all below it, brokers left out; cpu_parts: the
    same by where they were spent.
    """

    rate: float
    steady: float | None
    cpu_s: float
    cpu_parts: Mapping[str, float] = field(default_factory=dict)

    def figures(self) -> dict[str, Any]:
        """Its figures by name."""
        return asdict(self)


@dataclass(slots=True)
class Sheet:
    """The runs of one comparison, side by side; `rival`: the side that ratios are taken against, None if there is none.

    A run maps figures to values: those of Run, or others with their unit in the name. `samples`: what the figures of a
    side were taken from, where a plot shows it. cpu_parts: of each run of a side. load: load averages at the ends of
    runs that count. warmed: how many rounds came before; is_warm: the last two agreed.
    """

    name: str
    rival: str | None
    setting: Mapping[str, object]
    runs: dict[str, list[Mapping[str, float | None]]] = field(default_factory=dict)
    cpu_parts: dict[str, list[Mapping[str, float]]] = field(default_factory=dict)
    samples: dict[str, list[float]] = field(default_factory=dict)
    load: list[float] = field(default_factory=list)
    warmed: int = 0
    is_warm: bool | None = None

    def add(self, side: str, run: Run | Mapping[str, Any], *, warming: bool = False) -> float:
        """Note a run and show it; what warms up is shown only. Returns its first figure."""
        figures = run.figures() if isinstance(run, Run) else dict(run)
        parts = figures.pop("cpu_parts", None)
        if not warming:
            self.runs.setdefault(side, []).append(figures)
            self.load.append(os.getloadavg()[0])
            if parts:
                self.cpu_parts.setdefault(side, []).append(parts)
        text = "; ".join(f"{name} {_text_of(name, value)}" for name, value in figures.items() if value is not None)
        print(f"{self.name} {side}: {text}{' (warming up)' if warming else ''}", flush=True)
        return next((value for value in figures.values() if value is not None), 0.0)

    def ratios(self, side: str, figure: str) -> list[float]:
        """Divide each round's figure by the rival's of the same round."""
        if self.rival in {None, side}:
            return []
        pairs = zip(self.runs[side], self.runs[self.rival], strict=True)
        both = [(own.get(figure), rival.get(figure)) for own, rival in pairs]
        return [own / rival for own, rival in both if own and rival]

    def finish(self) -> None:
        """Print medians and ratios, and write the result file."""
        for side, runs in self.runs.items():
            for figure in runs[0]:
                if values := [run[figure] for run in runs if run[figure] is not None]:
                    of = f"; of {self.rival}'s {spread(ratios)}" if (ratios := self.ratios(side, figure)) else ""
                    print(f"{self.name} {side}: median {figure} {_text_of(figure, median(values))}{of}", flush=True)
        RESULTS.mkdir(parents=True, exist_ok=True)
        text = json.dumps(self._as_json(), indent=1)
        (RESULTS / f"{self.name}.json").write_text(text + "\n", encoding="utf-8")

    def _as_json(self) -> dict[str, object]:
        sides = [side for side in self.runs if self.rival not in {None, side}]
        parts = {side: _medians(runs) for side, runs in self.cpu_parts.items()}
        return {
            "name": self.name, "rival": self.rival, "setting": dict(self.setting), "machine": machine(),
            **({} if self.is_warm is None else {"warmed": self.warmed, "is_warm": self.is_warm}),
            "load": _summary(self.load),
            "runs": self.runs,
            "ratios": {side: {w: _summary(self.ratios(side, w)) for w in self.runs[side][0]} for side in sides},
            **({"cpu_parts": parts} if parts else {}),
            **({"samples": self.samples} if self.samples else {}),
        }  # fmt: skip


def machine() -> dict[str, object]:
    """Say what this ran on."""
    names = ("pyspark", "pyarrow", "numpy", "numba", "kafka-python", "deltalake")
    return {
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        **{name: version(name) for name in names},
    }


def median(figures: Iterable[float]) -> float:
    """The middle one."""
    return statistics.median(figures)


def thousands(rate: float) -> str:
    """A rate in thousands; small ones with their decimals."""
    return f"{rate / 1e3:,.0f}" if rate >= 1e4 else f"{rate / 1e3:.3f}"


def spread(ratios: list[float]) -> str:
    """Median, least and most of some ratios in words."""
    return f"{median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})" if ratios else "-"


def _text_of(name: str, value: float) -> str:
    """A figure in words; rates are in thousands."""
    return f"{thousands(value)} thousand rows/s" if name in ("rate", "steady") else f"{value:,.2f}"


def _medians(runs: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {part: round(median(run[part] for run in runs), 3) for part in runs[0]}


def _summary(ratios: list[float]) -> dict[str, float] | None:
    if not ratios:
        return None
    return {"median": round(median(ratios), 3), "min": round(min(ratios), 3), "max": round(max(ratios), 3)}


def new_topic(cluster: Cluster, topic: str, partitions: int = PARTITIONS) -> None:
    """Create a topic that keeps old records; comes back once every partition has its leader in place."""
    create_topic(cluster, topic, partitions, {"retention.ms": "-1"})
    cluster.latest([(topic, partition) for partition in range(partitions)])


def load_hundred_bytes(cluster: Cluster, topic: str, records: int, codec: Codec = Codec.NONE) -> None:
    """Produce `records` records of 100 bytes with 1,000 keys, one per ms of event time and partition."""
    new_topic(cluster, topic)
    each = records // PARTITIONS
    numbers = np.arange(each)
    keys = pa.array([b"k%03d" % i for i in range(KEYS)], pa.binary()).take(pa.array(numbers % KEYS))
    values = pa.array([VALUE], pa.binary()).take(pa.array(np.zeros(each, np.int64)))
    table = pa.table({"key": keys, "value": values, "timestamp": pa.array(FIRST_MS + numbers)})
    send(cluster, topic, dict.fromkeys(range(PARTITIONS), table), codec=codec)


def committed(cluster: Cluster, topic: str) -> int:
    """Count the records that a read_committed reader finds."""
    ends = cluster.latest([(topic, p) for p in range(PARTITIONS)], Isolation.READ_COMMITTED)
    ranges = [OffsetRange(where.topic, where.partition, 0, end) for where, end in sorted(ends.items())]
    parts = read_ranges(cluster, ranges, ColumnSelection(key=False, value=False), Isolation.READ_COMMITTED)
    return sum(part.records.count for part in parts)


def session(jars: Iterable[object] = (), memory: str = "4g", conf: Mapping[str, str] | None = None) -> SparkSession:
    """Start Spark as every side uses it: two cores, no UI, worker sockets in the file system, no limit to measure."""
    from pyspark.sql import SparkSession

    from keyedwm.spark import recommended_conf

    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]")
    settings = {
        "spark.jars": ",".join(map(str, jars)),
        "spark.driver.memory": memory,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.log.level": "ERROR",
        "spark.python.unix.domain.socket.enabled": "true",
        NO_LIMIT: recommended_conf()[NO_LIMIT],
        **(conf or {}),
    }
    for name, value in settings.items():
        if value:
            builder = builder.config(name, value)
    return builder.getOrCreate()


def scratch() -> tempfile.TemporaryDirectory[str]:
    """A directory for a checkpoint; Spark may still write a snapshot of state there when the query has ended."""
    return tempfile.TemporaryDirectory(ignore_cleanup_errors=True)


@dataclass(frozen=True, slots=True)
class Finished:
    """A query that ran to its end: its progress, seconds, and CPU seconds."""

    progress: list
    took_s: float
    spent: Spent

    def run(self, records: int) -> Run:
        """Its figures for so many records."""
        millions = records / 1e6
        parts = {part: seconds / millions for part, seconds in self.spent.parts_s.items()}
        rate, steady = records / self.took_s, steady_rate(self.progress, records)
        return Run(rate, steady, self.spent.whole_s / millions, parts)


def finished(writer: DataStreamWriter, checkpoint: str | None = None) -> Finished:
    """Run a query over all that is there, on a checkpoint of its own unless one is named."""
    with scratch() as own:
        with spending() as spent:
            began = time.perf_counter()
            query = writer.option("checkpointLocation", checkpoint or own).trigger(availableNow=True).start()
            query.awaitTermination()
            took_s = time.perf_counter() - began
        return Finished(query.recentProgress, took_s, spent)


def drained(frame: DataFrame, records: int, spare: int = 0) -> Run:
    """Run a frame into a no-op sink to its end; raises SystemExit if it did not see every record (and `spare` more)."""
    done = finished(frame.writeStream.format("noop"))
    read_rows = sum(progress.numInputRows for progress in done.progress)
    if not records <= read_rows <= records + spare:
        raise SystemExit(f"a query saw {read_rows} rows of {records}: no figure")
    return done.run(records)


def checked(side: str, frame: DataFrame, columns: Sequence[Column], expected: Mapping[str, int], records: int) -> Run:
    """As `whole`, of so many records: their rates."""
    return whole(side, frame, columns, expected).run(records)


def whole(
    side: str, frame: DataFrame, columns: Sequence[Column], expected: Mapping[str, int], checkpoint: str | None = None
) -> Finished:
    """Run a frame into a no-op sink to its end, on a checkpoint of its own unless one is named.

    columns: sums over what comes out, by the names of `expected`, the exact answer. Raises SystemExit if they differ.
    """
    done = finished(frame.observe("check", *columns).writeStream.format("noop"), checkpoint)
    answer = dict.fromkeys(expected, 0)
    for one in done.progress:
        for name, value in one.observedMetrics["check"].asDict().items():
            answer[name] += value or 0
    if answer != expected:
        raise SystemExit(f"{side}: {answer} came out, the answer is {expected}: no figure")
    return done


def through_json(offset: dict[str, Any]) -> dict[str, Any]:
    """Give an offset of the source back as Spark does."""
    return json.loads(json.dumps(offset))


def steady_rate(progress: list, records: int) -> float | None:
    """Records/s inside the full micro-batches but the first: what a query does once it runs. Control rows are none."""
    share = records / sum(one.numInputRows for one in progress)
    full = max(one.numInputRows for one in progress)
    steady = [one for one in progress[1:] if one.numInputRows > full * 0.9]
    ms = sum(one.durationMs["triggerExecution"] for one in steady)
    return sum(one.numInputRows for one in steady) * share / ms * 1_000 if ms else None
