"""What the demo says and how it ends: table, JSON, verdict; no Spark and no Kafka."""

from __future__ import annotations

import io
import json

import numpy as np
import pyarrow as pa
import pytest
from rich.console import Console

from examples.demo.drive import Trace
from examples.demo.exact import COUNTS, Difference, exact_counts
from examples.demo.flights import read_flights
from examples.demo.load import closing, steps
from examples.demo.report import Figures, as_json, as_table, broken_promise, unlike_input
from examples.demo.show import Run, judge, reason
from keyedwm.cli.main import main

PNG = b"\x89PNG\r\n"
FIGURES = {
    "native": Figures(rows_in=328_521, late_behind_own_watermark=2_464, lost=1_241, hours_wrong=123, seconds=147.31),
    "keyedwm": Figures(rows_in=328_521, late_behind_own_watermark=2_464, lost=2, hours_wrong=2, seconds=144.25),
    "exact": Figures(rows_in=328_521, late_behind_own_watermark=2_464, lost=0, hours_wrong=0, seconds=0.04),
}


@pytest.fixture(scope="module")
def flights():
    return read_flights(3)


@pytest.fixture
def judged(flights, tmp_path, capsys):
    """Judges a run whose keyedwm counts and events are given; returns code, stdout, stderr and the JSON."""

    def judge_run(counts=None, events=None):
        plan, last = steps(flights, 3), closing(flights)
        exact = exact_counts(flights)
        trace = Trace(
            step_ms=[step.end_ms for step in plan],
            origins={origin: [None, 1, 2] for origin in ("EWR", "JFK", "LGA")},
            coalesced=[None, 1, 1],
            native=[None, 2, 3],
        )
        produced = pa.concat_tables([flights.table, last.flights.table]).rename_columns({"event_ms": "timestamp_ms"})
        ran = Run(
            broker="local",
            avro=None,
            trace=trace,
            counts={"native": exact.slice(5), "keyedwm": exact if counts is None else counts},
            events=produced if events is None else events,
            rows_in=dict.fromkeys(("native", "keyedwm"), len(flights) + 3),
            seconds=dict.fromkeys(("native", "keyedwm"), 1.25),
        )
        out = io.StringIO()
        code = judge(flights, last, ran, tmp_path / "build", Console(file=out, width=120))
        return code, out.getvalue(), capsys.readouterr().err, tmp_path / "build"

    return judge_run


def test_a_kept_promise_ends_with_0_and_leaves_figures_and_picture(judged, flights):
    code, output, complaint, build = judged()
    assert (code, complaint) == (0, "")
    assert "byte for byte" in output
    figures = json.loads((build / "demo.json").read_text())
    assert figures["broker"] == "local"
    assert figures["keyedwm"]["rows_in"] == figures["exact"]["rows_in"] == len(flights)
    assert figures["keyedwm"]["lost"] == 0
    assert figures["native"]["hours_wrong"] == 5
    assert (build / "demo.png").read_bytes().startswith(PNG)


def test_a_record_lost_though_it_was_on_time_ends_with_1_and_names_it(judged, flights):
    exact = exact_counts(flights)
    counts = exact.to_pylist()
    counts[0]["count"] -= 1
    code, _, complaint, _ = judged(counts=pa.Table.from_pylist(counts, schema=COUNTS))
    assert code == 1
    assert "keyedwm lost 1 records that were not late behind their own partition's watermark" in complaint
    assert "partition 0, offset" in complaint
    assert complaint.count("\n") == 1


def test_a_lost_record_that_was_late_is_no_broken_promise(flights):
    is_lost = np.zeros(len(flights), np.bool_)
    is_lost[5] = True
    counts_apart = Difference(lost_rows=is_lost, surplus=0, hours_wrong=1)
    assert broken_promise(flights, is_lost, counts_apart) is None
    assert "lost 1 records" in broken_promise(flights, ~is_lost, counts_apart)


def test_counting_twice_breaks_the_promise(flights):
    nobody = np.zeros(len(flights), np.bool_)
    counts_apart = Difference(lost_rows=nobody, surplus=7, hours_wrong=1)
    assert broken_promise(flights, nobody, counts_apart) == "keyedwm counted 7 records more than there are"


def test_an_event_table_that_lacks_a_row_ends_with_1(judged, flights):
    produced = flights.table.rename_columns({"event_ms": "timestamp_ms"})
    code, output, complaint, _ = judged(events=produced)
    assert code == 1
    assert "byte for byte" not in output
    assert complaint.startswith(f"keyedwm: the event table has {len(flights):,} rows, {len(flights) + 3:,} were")


def events(**changed):
    columns = {"partition": [0, 0, 1], "offset": [0, 1, 0], "key": ["a", None, "c"], "value": ["x", "y", "z"],
               "timestamp_ms": [5, 6, 7]}  # fmt: skip
    return pa.table(columns | changed)


def test_an_event_table_in_any_order_and_as_bytes_equals_the_input():
    as_bytes = pa.array([b"a", None, b"c"])
    assert unlike_input(events(), events(key=as_bytes).take([2, 1, 0])) is None


@pytest.mark.parametrize(
    ("name", "wrong", "place"),
    [
        ("key", ["a", "b", "c"], "partition 0, offset 1: key is b, not None"),
        ("key", ["a", None, None], "partition 1, offset 0: key is None, not c"),
        ("value", ["x", "y", "zz"], "partition 1, offset 0: value is zz, not z"),
        ("timestamp_ms", [5, 6, 8], "partition 1, offset 0: timestamp_ms is 8, not 7"),
        ("offset", [0, 2, 0], "partition 0, offset 1: offset is 2, not 1"),
    ],
)
def test_a_row_that_differs_is_named(name, wrong, place):
    assert unlike_input(events(), events(**{name: wrong})) == f"the event table differs from the input at {place}"


def test_the_json_holds_three_sides_and_the_broker():
    document = json.loads(as_json(FIGURES, "container"))
    assert list(document) == ["native", "keyedwm", "exact", "broker"]
    assert list(document["native"]) == ["rows_in", "late_behind_own_watermark", "lost", "hours_wrong", "seconds"]
    assert document["native"]["lost"] == 1_241


def test_the_table_has_a_row_for_each_figure_and_a_column_for_each_side():
    out = io.StringIO()
    Console(file=out, width=120).print(as_table(FIGURES))
    lines = [line.replace("┃", "│").split("│") for line in out.getvalue().splitlines()]
    cells = [[cell.strip() for cell in line[1:-1]] for line in lines if len(line) > 2]
    assert cells[0] == ["", "native Spark", "keyedwm", "exact answer"]
    assert ["rows lost", "1,241", "2", "0"] in cells
    assert cells[-1] == ["seconds", "147.3", "144.2", "0.0"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [(["--days", "400"], "--days 400: "), (["--steps", "0"], "--steps 0: at least 1 is expected")],
)
def test_a_wrong_number_is_one_sentence_and_2(arguments, sentence, capsys):
    assert main(["demo", *arguments]) == 2
    complaint = capsys.readouterr().err
    assert complaint.startswith(f"keyedwm: {sentence}")
    assert complaint.count("\n") == 1


def test_of_a_failed_query_the_python_error_inside_is_named():
    spark = "[STREAM_FAILED] Query [id = 1] terminated\norg.apache.spark.SparkException: Job aborted\nTraceback:\n"
    assert reason(spark + "keyedwm.core.errors.InputError: too few\n at x") == "keyedwm.core.errors.InputError: too few"
    assert reason(spark) == "[STREAM_FAILED] Query [id = 1] terminated"
