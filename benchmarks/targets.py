"""What was asked for, and what the result files show of it.

Rule: a target that was missed stays in the table, and one that was not measured says so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.measure import median

Results = Mapping[str, Any]
# So many rounds count, by the rules.
ROUNDS = 5
KEYEDWM, PUSHED, SPARK = "keyedwm", "keyedwm, stage one in the source", "spark, default store"
FIELDS = "keyedwm, JSON read by the source"


@dataclass(frozen=True, slots=True)
class Target:
    """A bound on a figure; `measured` raises KeyError where a result file, a side or a figure is missing."""

    title: str
    at_least: bool
    bound: float
    measured: Callable[[Results], float]
    unit: str = "x"

    def line(self, results: Results) -> Sequence[str]:
        """Return title, bound, figure and verdict."""
        bound = f"{'≥' if self.at_least else '≤'} {self.bound:g}{_unit(self.unit)}"
        try:
            figure = self.measured(results)
        except KeyError:
            return self.title, bound, "-", "not measured"
        is_met = figure >= self.bound if self.at_least else figure <= self.bound
        verdict = "met" if is_met else "missed"
        batches = self.measured.batches(results) if isinstance(self.measured, Ratio) else None
        if batches is not None and batches < FULL_BATCHES:
            verdict += f", a side by {batches} full batch{'es' if batches > 1 else ''}"
        if isinstance(self.measured, Ratio) and self.measured.is_cold(results):
            verdict += ", nothing warmed up"
        if isinstance(self.measured, Ratio) and (rounds := self.measured.rounds(results)) < ROUNDS:
            verdict += f", {rounds} round{'s' if rounds > 1 else ''}"
        if isinstance(self.measured, Ratio) and results[self.measured.name].get("is_warm") is False:
            verdict += ", unsteady"
        return self.title, bound, f"{figure:.{_decimals(figure)}f}{_unit(self.unit)}", verdict


@dataclass(frozen=True, slots=True)
class Ratio:
    """The median of a side's ratios to its rival, or to the side that `rival` names."""

    name: str
    side: str
    figure: str = "rate"
    rival: str | None = None

    def __call__(self, results: Results) -> float:
        """Return it; raise KeyError if it was not measured."""
        result = results[self.name]
        if self.rival is not None:
            pairs = zip(result["runs"][self.side], result["runs"][self.rival], strict=True)
            return median(own[self.figure] / rival[self.figure] for own, rival in pairs)
        summary = result["ratios"][self.side][self.figure]
        if summary is None:
            raise KeyError(self.figure)
        return float(summary["median"])

    def batches(self, results: Results) -> int | None:
        """Return how many full batches the side with the fewest ran, None where a result does not say."""
        setting = results[self.name]["setting"]
        settings = [{**setting, **one} for one in setting.get("sides", {}).values()] or [setting]
        counts = [one["records"] // one["batch"] for one in settings if one.get("records") and one.get("batch")]
        return min(counts, default=None)

    def rounds(self, results: Results) -> int:
        """Return how many rounds count."""
        return len(results[self.name]["runs"][self.side])

    def is_cold(self, results: Results) -> bool:
        """Whether a comparison of rates is from before rounds warmed up."""
        result = results[self.name]
        return "warmed" not in result and "rate" in result["runs"][self.side][0]


@dataclass(frozen=True, slots=True)
class Figure:
    """The median of a side's own figures."""

    name: str
    side: str
    figure: str

    def __call__(self, results: Results) -> float:
        """Return it; raise KeyError if it was not measured."""
        return median(run[self.figure] for run in results[self.name]["runs"][self.side])


@dataclass(frozen=True, slots=True)
class LostShare(Ratio):
    """By how many percent a side is slower than its rival, or than the side that `rival` names."""

    def __call__(self, results: Results) -> float:
        """Return it; raise KeyError if it was not measured."""
        return 100 * (1 - Ratio.__call__(self, results))


@dataclass(frozen=True, slots=True)
class Inverse(Ratio):
    """How many times as long a row takes on a side as on its rival."""

    def __call__(self, results: Results) -> float:
        """Return it; raise KeyError if it was not measured."""
        return 1 / Ratio.__call__(self, results)


def _earlier(results: Results) -> float:
    spark, keyedwm = (Figure("latency-2-seconds", side, "batches_after")(results) for side in (SPARK, KEYEDWM))
    return spark - keyedwm


def _memory_growth(results: Results) -> float:
    held_mib = [run["held_mib"] for run in results["memory"]["runs"]["a million rows at a time"]]
    return held_mib[-1] / held_mib[0]


NEXMARK = ("q0", "q1", "q2", "q3", "q4", "q5", "q7", "q8", "q9", "q11")
NEXMARK_WINDOWS = ("q5", "q7", "q8", "q11")
NEXMARK_STAGED = ("q5", "q11")
# What reads JSON in the source: the operator's first stage where there is one, else the option columns.
NEXMARK_READ = {name: PUSHED if name in NEXMARK_STAGED else FIELDS for name in NEXMARK}
MOST, LEAST = False, True
AVRO, PROTO, JSON = (f"{KEYEDWM}, {one}" for one in ("Avro", "Protobuf", "JSON"))
EVENT_TIME = {one: (f"{one}, event time", f"{one}, timestamp") for one in ("Avro", "Protobuf")}
# A rate over fewer says more of the start than of the rest.
FULL_BATCHES = 10
OPEN = "all open"
# What decides between Spark's own operators and keyedwm: the page begins with these.
DECISIONS = (
    Target(
        "time to a session's first batch after `keyedwm warm`, windows (time, lower is better)",
        MOST, 1, Ratio("start-windows", KEYEDWM, "first_s"),
    ),
    Target(
        "median time from event to result, without trigger interval (time, lower is better)",
        MOST, 0.5, Ratio("latency-at-once", KEYEDWM, "p50_ms"),
    ),
    Target(
        "time of a warm batch of 2,000 rows with one aggregate (time, lower is better)",
        MOST, 1, Ratio("small-batch", KEYEDWM, "batch_ms"),
    ),
    Target(
        "reading all columns, in full batches (rate, higher is better)",
        LEAST, 1.7, Ratio("source-batches", KEYEDWM, "steady"),
    ),
    Target(
        "exactly-once Kafka to Kafka (rate, higher is better)",
        LEAST, 1.5, Ratio("sink-kafka-500k", f"{KEYEDWM} exactly-once"),
    ),
    Target(
        "writing to Delta, against Spark's Parquet sink (rate, higher is better)",
        LEAST, 1, Ratio("sink-files", f"{KEYEDWM} delta"),
    ),
    Target("tumbling 10 s, over loaded rows (rate, higher is better)", LEAST, 1, Ratio("windows-tumbling", KEYEDWM)),
    Target("sliding 60 s / 1 s (rate, higher is better)", LEAST, 6, Ratio("windows-sliding-60", KEYEDWM)),
    Target(
        "batches of 10,000 rows, 1 M keys, against Spark's RocksDB, in full batches (rate, higher is better)",
        LEAST, 3, Ratio("state-rocksdb", KEYEDWM, "steady"),
    ),
    Target(
        "CPU time of a batch with 10 M open frames, against no open frames (lower is better)",
        MOST, 1.3, Ratio("state-entries", OPEN, "ms"),
    ),
    Target("join 1:1, stage one in the source (rate, higher is better)", LEAST, 5, Ratio("join-one-to-one", PUSHED)),
)  # fmt: skip
OTHERS = (
    Target("time to a session's first batch, rows", MOST, 1.1, Ratio("start-rows", KEYEDWM, "first_s")),
    Target("time to a later query's first batch, rows", MOST, 0.7, Ratio("start-rows", KEYEDWM, "later_s")),
    Target("time to a later query's first batch, windows", MOST, 1, Ratio("start-windows", KEYEDWM, "later_s")),
    Target(
        "time of a warm batch of 2,000 rows, local_checkpoint on both sides",
        MOST, 1, Ratio("small-batch-local", KEYEDWM, "batch_ms"),
    ),
    Target(
        "reading 4 columns, in full batches", LEAST, 2.3, Ratio("source-batches", f"{KEYEDWM}, 4 columns", "steady")
    ),
    Target("reading all columns, CPU seconds per row", MOST, 1.1, Ratio("source-batches", KEYEDWM, "cpu_s")),
    Target(
        "reading 4 columns, CPU seconds per row",
        MOST, 0.8, Ratio("source-batches", f"{KEYEDWM}, 4 columns", "cpu_s"),
    ),
    Target("rate lost by event times in JSON", MOST, 25, LostShare("source-json", "json"), "%"),
    Target("event time and four Avro fields, against Spark's from_avro", LEAST, 3, Ratio("formats-fields", AVRO)),
    Target(
        "event time and four Avro fields, against JSON fields", LEAST, 1.5, Ratio("formats-fields", AVRO, rival=JSON)
    ),
    Target(
        "event time and four Protobuf fields, against JSON fields",
        LEAST, 1.5, Ratio("formats-fields", PROTO, rival=JSON),
    ),
    Target(
        "rate lost by event times in Avro", MOST, 15,
        LostShare("formats-event-time", EVENT_TIME["Avro"][0], rival=EVENT_TIME["Avro"][1]), "%",
    ),
    Target(
        "rate lost by event times in Protobuf", MOST, 15,
        LostShare("formats-event-time", EVENT_TIME["Protobuf"][0], rival=EVENT_TIME["Protobuf"][1]), "%",
    ),
    Target(
        "reading batches of ten rows, time per batch", MOST, 1.5,
        Inverse("source-small", KEYEDWM, "steady"),
    ),
    Target("memory of a worker after ten million rows, against one million", MOST, 1.1, _memory_growth),
    Target("planning a batch of 1,000 partitions", MOST, 150, Figure("planning", "1,000 partitions", "ms"), "ms"),
    Target("planning a batch of 10,000 partitions", MOST, 100, Figure("planning", "10,000 partitions", "ms"), "ms"),
    Target(
        "control rows of 10,000 partitions for 200 buckets", MOST, 1,
        Figure("control-rows", "10,000 partitions, within a second: columns", "megabytes"), "MB",
    ),
    Target(
        "exactly-once Kafka to Kafka, in full batches", LEAST, 1.8,
        Ratio("sink-kafka-500k", f"{KEYEDWM} exactly-once", "steady"),
    ),
    Target(
        "rate lost by exactly-once, batches of 100,000 rows",
        MOST, 15, LostShare("sink-guarantees", "exactly-once"), "%",
    ),
    Target("commit of a batch of 8 tasks by the sink", MOST, 150, Figure("sink-commit", "8 tasks", "ms"), "ms"),
    Target(
        "tumbling 10 s, over loaded rows, in full batches",
        LEAST, 2.2, Ratio("windows-tumbling", KEYEDWM, "steady"),
    ),
    Target(
        "tumbling 10 s, stage one in the source, in full batches", LEAST, 3.5,
        Ratio("windows-tumbling", PUSHED, "steady"),
    ),
    Target("sliding 600 s / 1 s", LEAST, 50, Ratio("windows-sliding-600", KEYEDWM)),
    Target(
        "time per row with size/slide 600, against size/slide 60",
        MOST, 1.3, Inverse("windows-overlap", "sliding-600"),
    ),
    Target(
        "sessions, gap 2 s, 100,000 keys, over loaded rows, in full batches", LEAST, 2.5,
        Ratio("windows-sessions", KEYEDWM, "steady"),
    ),
    Target(
        "sessions, gap 2 s, 100,000 keys, stage one in the source, in full batches",
        LEAST, 3.5, Ratio("windows-sessions", PUSHED, "steady"),
    ),
    Target(
        "bytes written by a batch with 10 M open frames, against its partials",
        MOST, 1.5, Figure("state-entries", OPEN, "put_of_partials"),
    ),
    Target(
        "bytes read by a batch with 10 M open frames, median",
        MOST, 0, Figure("state-entries", OPEN, "median_read_bytes"), "bytes",
    ),
    Target(
        "CPU time of a batch with 1 M open sessions, against no open sessions",
        MOST, 2, Ratio("state-sessions", OPEN, "ms"),
    ),
    Target(
        "CPU time of the first batch after a restart, 10 M open frames against none",
        MOST, 1.5, Ratio("state-restart", OPEN, "ms"),
    ),
    Target(
        "windows, batches of 1,000 rows, 1 M keys, against keyedwm 0.1",
        LEAST, 2, Ratio("state-small-tumbling", KEYEDWM),
    ),
    Target(
        "sessions, batches of 1,000 rows, 1 M keys, against keyedwm 0.1",
        LEAST, 2, Ratio("state-small-session", KEYEDWM),
    ),
    Target(
        "batches of 10,000 rows, 1 M keys, stage one in the source, against Spark's RocksDB, in full batches",
        LEAST, 3, Ratio("state-rocksdb", PUSHED, "steady"),
    ),
    Target(
        "medians of kept rows, stage one in the source, against Spark's applyInPandasWithState by bucket", LEAST, 3,
        Ratio("store-median", PUSHED),
    ),
    Target(
        "bytes of a message in state, against its Arrow size",
        MOST, 1.3, Figure("store-bytes", KEYEDWM, "of_arrow"),
    ),
    Target(
        "bytes that a late message reads and writes among 10 M, against the bytes of its slice", MOST, 2,
        Figure("store-late", KEYEDWM, "of_slice"),
    ),
    Target("join 1:1, stage one in the source, in full batches", LEAST, 8, Ratio("join-one-to-one", PUSHED, "steady")),
    Target("join 1:1, CPU seconds per row", MOST, 1, Ratio("join-one-to-one", PUSHED, "cpu_s")),
    Target(
        "join 1:20, stage one in the source, in full batches", LEAST, 2,
        Ratio("join-one-to-twenty", PUSHED, "steady"),
    ),
    Target(
        "CPU time of a join batch with 10 M rows in state, against 500,000",
        MOST, 1.3, Ratio("state-join", "all held", "ms"),
    ),
    *(Target(f"Nexmark {name}", LEAST, 1.2, Ratio(f"nexmark-{name}", KEYEDWM)) for name in NEXMARK),
    *(
        Target(f"Nexmark {name}, in full batches", LEAST, 2, Ratio(f"nexmark-{name}", KEYEDWM, "steady"))
        for name in NEXMARK_WINDOWS
    ),
    *(
        Target(f"Nexmark {name}, source JSON", LEAST, 1.2, Ratio(f"nexmark-{name}", side))
        for name, side in NEXMARK_READ.items()
    ),
    *(
        Target(
            f"Nexmark {name}, source JSON, in full batches",
            LEAST, 2, Ratio(f"nexmark-{name}", NEXMARK_READ[name], "steady"),
        )
        for name in NEXMARK_WINDOWS
    ),
    Target(
        "Python processes of two queries: windows into Delta, rows into Kafka", MOST, 10,
        Figure("idle", KEYEDWM, "python_processes"), "processes",
    ),
    Target("two-second triggers by which a result comes before Spark's", LEAST, 1, _earlier, "triggers"),
)  # fmt: skip
TARGETS = (*DECISIONS, *OTHERS)


def table(rows: Sequence[Target], results: Results, page_of: Callable[[str], str]) -> str:
    """Some targets as a table in Markdown; page_of: the page with the figures of a result."""
    lines = ["| target | asked | measured | verdict |", "|---|---|---:|---|"]
    for target in rows:
        name = getattr(target.measured, "name", None)
        title, *rest = target.line(results)
        title = f"[{title}]({page_of(name)}#{name})" if name in results else title
        lines.append(f"| {' | '.join([title, *rest])} |")
    return "\n".join(lines) + "\n"


def _unit(unit: str) -> str:
    return unit if unit == "x" else f" {unit}"


def _decimals(value: float) -> int:
    return 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2
