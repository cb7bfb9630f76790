"""The demo from beginning to end, and what it tells while it runs.

Rule: everything that is started lives inside `with`, so that it is gone afterwards, also after Ctrl-C; everything on
disk lives in one temporary directory, apart from the results.
"""

from __future__ import annotations

import re
import signal
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import pyarrow as pa
from pyspark.errors import StreamingQueryException
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from examples.demo.as_avro import AvroTopic
from examples.demo.drive import Trace, drive, rows_in, seconds
from examples.demo.exact import difference, exact_counts, late_behind_own_watermark
from examples.demo.flights import BEGIN_MS, DAY_MS, Flights, check_days, read_flights
from examples.demo.load import Step, as_written, closing, new_topic, steps
from examples.demo.queries import EVENTS, KEYEDWM, LAG_MS, NATIVE, Queries, read_counts, read_events
from examples.demo.report import EXACT, Figures, as_json, as_table, broken_promise, unlike_input
from examples.demo.session import session
from examples.demo.spark_jars import spark_avro_jars, spark_kafka_connector_jars
from keyedwm.cli.demo import MissingError
from keyedwm.core.errors import KeyedwmError, OptionError, UnavailableError
from keyedwm.testing.broker import broker
from keyedwm.testing.registry import registry

_LINES = 10  # of progress, where stdout is no terminal


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """The outcome of a run; by query: records read, seconds in micro-batches. counts: by side."""

    broker: str
    trace: Trace
    counts: Mapping[str, pa.Table]
    events: pa.Table
    rows_in: Mapping[str, int]
    seconds: Mapping[str, float]
    avro: AvroTopic | None


def show(*, days: int, step_count: int, out: Path, is_avro: bool = False) -> int:
    """Runs the demo; 1 and one sentence if keyedwm broke its promise. is_avro: values are Avro, else JSON."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if step_count < 1:
        raise OptionError(f"--steps {step_count}: at least 1 is expected")
    check_days(days)
    if find_spec("matplotlib") is None:
        raise MissingError("the demo needs matplotlib for its picture, which is not installed")
    console = Console(soft_wrap=True)
    flights = read_flights(days)
    plan, last = steps(flights, step_count), closing(flights)
    console.print(
        f"{len(flights):,} flights of {days} days of 2013 in {step_count} steps of simulated time; one partition per "
        "origin, each in order of arrival; JFK's feed reaches Kafka 6 hours after the others; lag 3 hours"
    )
    try:
        ran = _run(plan, last, console, is_avro=is_avro)
    except StreamingQueryException as error:
        out.mkdir(parents=True, exist_ok=True)
        (out / "demo.log").write_text(str(error))
        raise KeyedwmError(f"a query stopped: {reason(str(error))}; see {out / 'demo.log'}") from error
    code = judge(flights, last, ran, out, console)
    step_ms = plan[-1].end_ms - BEGIN_MS
    if step_ms // step_count > DAY_MS:
        console.print(
            f"a step is a batch of {step_ms / step_count / DAY_MS:.1f} days here, and rows are dropped between batches "
            "only; live batches are shorter and cost it more: keyedwm demo --days 4 --steps 96 goes hour by hour"
        )
    return code


def _run(plan: list[Step], last: Step, console: Console, *, is_avro: bool) -> Run:
    jars = native_connector(console, is_avro=is_avro)
    console.print("starting Kafka and Spark: half a minute, the first time longer")
    temporary_directory = tempfile.TemporaryDirectory(prefix="keyedwm-demo-", ignore_cleanup_errors=True)
    name = f"keyedwm-demo-{uuid.uuid4().hex[:8]}"
    with temporary_directory as temporary, broker() as kafka, _avro_topic(name, console, is_avro=is_avro) as avro:
        console.print(kafka.describe())
        home = Path(temporary)
        with session(home / "spark", jars) as spark, new_topic(kafka.bootstrap, name, avro) as topic:
            queries = Queries(
                spark=spark, bootstrap=kafka.bootstrap, topic=name, home=home, native_kafka=bool(jars), avro=avro
            )
            with queries.running() as running, _progress(plan, console) as report_step:
                trace = drive(plan, last, topic, running, report_step)
                return Run(
                    broker=kafka.way,
                    trace=trace,
                    counts={side: read_counts(queries.table(side)) for side in (NATIVE, KEYEDWM)},
                    events=read_events(queries.table(EVENTS)),
                    rows_in={name: rows_in(query) for name, query in running.items()},
                    seconds={name: seconds(query) for name, query in running.items()},
                    avro=avro,
                )


@contextmanager
def _avro_topic(name: str, console: Console, *, is_avro: bool) -> Iterator[AvroTopic | None]:
    """The schema of a topic in a registry that runs for the time of the `with`; None for JSON."""
    if not is_avro:
        yield None
        return
    with registry() as running:
        console.print(running.describe())
        yield AvroTopic.registered(running.url, name)


def reason(text: str) -> str:
    """The error of Python, if Spark's words hold a traceback, else their first line."""
    raised = re.findall(r"^(?!org\.|java\.)(?:\w+\.)*\w+(?:Error|Exception): .+$", text, re.MULTILINE)
    return (raised or text.splitlines())[0]


def native_connector(console: Console, *, is_avro: bool = False) -> list[Path]:
    """The jars of Spark's own Kafka connector, and of its Avro; none where they cannot be fetched."""
    try:
        jars = [*spark_kafka_connector_jars(), *(spark_avro_jars() if is_avro else ())]
    except UnavailableError as error:
        console.print(f'native: withWatermark on the plain event rows of format("keyedwm"), since {error.message}')
        return []
    values = " and from_avro(substring(value, 6), SCHEMA)" if is_avro else ""
    console.print(f'native: withWatermark on format("kafka"){values}, Spark\'s own connector')
    return jars


def judge(flights: Flights, last: Step, ran: Run, out: Path, console: Console) -> int:
    """Compares, reports and gives the exit code."""
    from examples.demo.picture import Drawing, draw, draw_rows

    began_s = time.perf_counter()
    exact_counts(flights)
    late = late_behind_own_watermark(flights, LAG_MS)
    exact_s = time.perf_counter() - began_s
    differences = {side: difference(flights, counts) for side, counts in ran.counts.items()}
    late_count = int(late.sum())
    figures = {
        side: Figures(
            rows_in=ran.rows_in[side] - len(last.flights),
            late_behind_own_watermark=late_count,
            lost=int(differences[side].lost_rows.sum()),
            hours_wrong=differences[side].hours_wrong,
            seconds=ran.seconds[side],
        )
        for side in (NATIVE, KEYEDWM)
    }
    figures[EXACT] = Figures(
        rows_in=len(flights), late_behind_own_watermark=late_count, lost=0, hours_wrong=0, seconds=exact_s
    )
    out.mkdir(parents=True, exist_ok=True)
    (out / "demo.json").write_text(as_json(figures, ran.broker))
    lost_rows = {side: difference.lost_rows for side, difference in differences.items()}
    drawing = Drawing(flights=flights, trace=ran.trace, lost_rows=lost_rows, lag_ms=LAG_MS)
    draw(drawing, out / "demo.png")
    draw_rows(drawing, out / "demo-rows.png")
    console.print(as_table(figures))
    produced = as_written(Flights(pa.concat_tables([flights.table, last.flights.table])), ran.avro)
    wrong = [
        sentence
        for sentence in (broken_promise(flights, late, differences[KEYEDWM]), unlike_input(produced, ran.events))
        if sentence is not None
    ]
    if not wrong:
        console.print(f"the event table equals the input: {len(ran.events):,} records, byte for byte")
    console.print(f"figures: {out / 'demo.json'}, pictures: {out / 'demo-rows.png'}, {out / 'demo.png'}")
    for sentence in wrong:
        print(f"keyedwm: {sentence}", file=sys.stderr)
    return 1 if wrong else 0


@contextmanager
def _progress(plan: list[Step], console: Console) -> Iterator[Callable[[Step], None]]:
    """A bar on a terminal, else a line now and then."""
    every = max(1, len(plan) // _LINES)
    total = sum(len(step.flights) for step in plan)
    done, records, began_s = 0, 0, time.monotonic()

    def report_step(step: Step) -> None:
        """A step is done."""
        nonlocal done, records
        done, records = done + 1, records + len(step.flights)
        at = time.strftime("%Y-%m-%d %H:%M", time.gmtime(step.end_ms / 1000))
        if console.is_terminal:
            progress.update(bar, advance=1, at=f"{at}  {records:,} flights")
        elif done % every == 0 or done == len(plan):
            console.print(
                f"step {done} of {len(plan)}: {at}, {records:,} of {total:,} flights, "
                f"{time.monotonic() - began_s:.0f} s"
            )

    at = TextColumn("{task.fields[at]}")
    columns = (TextColumn("step"), MofNCompleteColumn(), BarColumn(), at, TimeElapsedColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        bar = progress.add_task("", total=len(plan), at="starting Spark's queries")
        yield report_step
