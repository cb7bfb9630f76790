"""The performance page: made of result files alone, plots and targets with it."""

from __future__ import annotations

import importlib
import json
import re
from pathlib import Path

import pytest

from benchmarks import measure
from benchmarks.measure import Run, Sheet
from benchmarks.plots import OVERLAPS
from benchmarks.table import write
from benchmarks.targets import AVRO, EVENT_TIME, JSON, KEYEDWM, PUSHED, SPARK, TARGETS
from benchmarks.turns import in_turn

MODULES = sorted(path.stem for path in Path(measure.__file__).parent.glob("*.py"))


@pytest.fixture
def results(tmp_path, monkeypatch) -> Path:
    monkeypatch.setattr(measure, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(measure.os, "getloadavg", lambda: (0.5, 0.5, 0.5))
    return tmp_path / "results"


def windows(overlap: int, ours: float, spark: float) -> None:
    """Five rounds of a windows case: rates of our side and of Spark's."""
    sheet = Sheet(OVERLAPS[overlap], SPARK, {"keys": 10, "slide_ms": None, "sides": {KEYEDWM: {"records": 1_000}}})
    for _ in range(5):
        sheet.add(SPARK, Run(spark, None, 3.0))
        sheet.add(KEYEDWM, Run(ours, ours, 1.5))
    sheet.finish()


def latency() -> None:
    sheet = Sheet("latency-2-seconds", SPARK, {"trigger": "2 seconds"})
    for side, after in ((SPARK, 1.0), (KEYEDWM, 0.0)):
        sheet.add(side, {"p50_ms": 100.0, "batches_after": after})
        sheet.samples[side] = [90.0, 100.0, 2_300.0]
    sheet.finish()


def page(results: Path) -> str:
    """The page of verdicts and the pages of figures below it."""
    write(results, results.parent)
    of_figures = sorted((results.parent / "reference" / "performance").glob("*.md"))
    pages = [results.parent / "reference" / "performance.md", *of_figures]
    return "\n".join(one.read_text(encoding="utf-8") for one in pages)


def unlinked(text: str) -> str:
    """A text with the words of its links alone."""
    return re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)


@pytest.mark.parametrize("name", MODULES)
def test_a_benchmark_can_be_imported_without_running(name):
    importlib.import_module(f"benchmarks.{name}")


def test_a_round_of_both_sides_gives_one_ratio_and_what_warms_up_none(results):
    sheet = Sheet("some", "theirs", {})
    for number, (theirs, ours) in enumerate([(1.0, 99.0), (10.0, 20.0), (10.0, 5.0), (10.0, 40.0)]):
        sheet.add("theirs", {"ms": theirs}, warming=number == 0)
        sheet.add("ours", {"ms": ours}, warming=number == 0)
    sheet.finish()
    assert json.loads((results / "some.json").read_text())["ratios"] == {
        "ours": {"ms": {"median": 2.0, "min": 0.5, "max": 4.0}}
    }


@pytest.mark.parametrize(
    ("rates", "counted", "told"),
    [
        ([5, 9, 9.5, 10, 20], [10, 20], "3 + 2 rounds; × of spark, default store."),
        (
            [5, 9, 5, 9, 10, 20],
            [10, 20],
            "4 + 2 rounds, warming rounds differed; × of spark, default store.",
        ),
    ],
)
def test_rounds_count_once_two_that_follow_each_other_agree(results, rates, counted, told):
    left = iter(rates)
    sides = {SPARK: lambda: Run(1.0, None, 1.0), KEYEDWM: lambda: Run(next(left), None, 1.0)}
    in_turn(Sheet("source-some", SPARK, {}), sides, 2)
    found = json.loads((results / "source-some.json").read_text())
    assert [run["rate"] for run in found["runs"][KEYEDWM]] == counted
    assert told in page(results)


def test_the_page_says_which_targets_were_met_missed_and_not_measured(results):
    windows(60, ours=600_000.0, spark=50_000.0)
    windows(600, ours=300_000.0, spark=10_000.0)
    latency()
    row = r"^\| \[?(.+?)(?:\]\(\S+\))? \| [≥≤] .*?\| ([a-z][a-z, ]+) \|$"
    told = dict(re.findall(row, page(results), re.MULTILINE))
    assert list(told) == [target.title for target in TARGETS]
    assert {what: verdict for what, verdict in told.items() if verdict != "not measured"} == {
        "sliding 60 s / 1 s (rate, higher is better)": "met, nothing warmed up",
        "sliding 600 s / 1 s": "missed, nothing warmed up",
        "two-second triggers by which a result comes before Spark's": "met",
    }


def test_overlaps_are_set_against_each_other_in_one_run_only(results):
    for overlap, ours in ((60, 300_000.0), (600, 100_000.0)):
        windows(overlap, ours=ours, spark=10_000.0)
    what = "time per row with size/slide 600, against size/slide 60"
    assert f"| {what} | ≤ 1.3x | - | not measured |" in unlinked(page(results))
    sheet = Sheet("windows-overlap", "sliding-60", {})
    for side, rate in (("sliding-60", 250_000.0), ("sliding-600", 200_000.0)):
        sheet.add(side, Run(rate, rate, 1.5))
    sheet.finish()
    assert f"| {what} | ≤ 1.3x | 1.25x | met, nothing warmed up, 1 round |" in unlinked(page(results))


def test_a_side_is_set_beside_another_one_round_by_round(results):
    sheet = Sheet("formats-fields", "spark, from_avro", {})
    for of_spark, avro, json_ in ((1.0, 9.0, 3.0), (3.0, 9.0, 9.0), (1.0, 8.0, 4.0)):
        for side, rate in (("spark, from_avro", of_spark), (AVRO, avro), (JSON, json_)):
            sheet.add(side, Run(rate, None, 1.0))
    sheet.finish()
    sheet = Sheet("formats-event-time", None, {})
    for side, rate in zip(reversed(EVENT_TIME["Avro"]), (10.0, 8.0), strict=True):
        sheet.add(side, Run(rate, None, 1.0))
    sheet.finish()
    text = unlinked(page(results))
    assert "| event time and four Avro fields, against Spark's from_avro | ≥ 3x | 8.00x | met" in text
    assert "| event time and four Avro fields, against JSON fields | ≥ 1.5x | 2.00x | met" in text
    assert "| rate lost by event times in Avro | ≤ 15 % | 20.0 % | missed, nothing warmed up, 1 round |" in text
    assert "| rate lost by event times in Protobuf | ≤ 15 % | - | not measured" in text


def test_a_side_that_was_not_run_leaves_its_target_unmeasured(results):
    windows(1, ours=600_000.0, spark=300_000.0)
    assert PUSHED not in json.loads((results / "windows-tumbling.json").read_text())["runs"]
    assert (
        "| tumbling 10 s, over loaded rows (rate, higher is better) | ≥ 1x | 2.00x | met, nothing warmed up |"
        in unlinked(page(results))
    )
    assert "| tumbling 10 s, stage one in the source, in full batches | ≥ 3.5x | - | not measured |" in unlinked(
        page(results)
    )


def test_a_side_of_few_batches_stands_beside_the_verdict(results):
    for name, records in (("windows-tumbling", 1_000), ("windows-sessions", 300)):
        sides = {KEYEDWM: {"records": 1_000, "batch": 100}, SPARK: {"records": records, "batch": 100}}
        sheet = Sheet(name, SPARK, {"sides": sides}, warmed=2, is_warm=True)
        for side in (SPARK, KEYEDWM) * 5:
            sheet.add(side, Run(100.0, 100.0, 1.0))
        sheet.finish()
    told = unlinked(page(results))
    assert "| tumbling 10 s, over loaded rows (rate, higher is better) | ≥ 1x | 1.00x | met |" in told
    assert "| 1.00x | missed, a side by 3 full batches |" in told


def test_a_side_of_few_rounds_stands_beside_the_verdict(results):
    sheet = Sheet("windows-tumbling", SPARK, {}, warmed=2, is_warm=True)
    for side in (SPARK, KEYEDWM) * 2:
        sheet.add(side, Run(100.0, 100.0, 1.0))
    sheet.finish()
    assert "| tumbling 10 s, over loaded rows (rate, higher is better) | ≥ 1x | 1.00x | met, 2 rounds |" in unlinked(
        page(results)
    )


def test_the_page_shows_the_plots_that_there_are_results_for(results):
    Sheet("driver", None, {}, runs={KEYEDWM: [{"ms": 1.0}]}).finish()
    assert "](../figures/" not in page(results)
    windows(1, ours=600_000.0, spark=300_000.0)
    windows(60, ours=600_000.0, spark=50_000.0)
    latency()
    shown = re.findall(r"\]\(\.\./(figures/[^)]+)\)", page(results))
    assert shown == ["figures/overlap.svg", "figures/latency-2-seconds.svg"]
    assert all((results.parent / one).read_text().startswith("<svg") for one in shown)


def test_a_day_is_drawn_hour_by_hour(results):
    sheet = Sheet("state-day", None, {"keys": 10})
    for hour in range(1, 4):
        sheet.add(f"hour {hour}", {"put_bytes": 7e4, "read_bytes": 0.0, "state_bytes": 1e7 + hour, "live_bytes": 1e7})
    sheet.finish()
    assert "figures/state-day.svg" in page(results)
    drawn = (results.parent / "figures" / "state-day.svg").read_text()
    assert drawn.count("<circle") == 12


def test_figures_stand_on_the_page_of_their_kind_which_the_page_of_verdicts_names(results):
    windows(60, ours=600_000.0, spark=300_000.0)
    page(results)
    verdicts = (results.parent / "reference" / "performance.md").read_text(encoding="utf-8")
    figures = (results.parent / "reference" / "performance" / "windows.md").read_text(encoding="utf-8")
    assert "## windows-sliding-60" in figures
    assert "## windows-sliding-60" not in verdicts
    assert re.findall(r"\(performance/(.+)\.md\)", verdicts) == ["windows"]


def test_a_result_that_no_page_shows_is_refused(results):
    sheet = Sheet("oddments", None, {})
    sheet.add(KEYEDWM, {"ms": 1.0})
    sheet.finish()
    with pytest.raises(SystemExit, match="no page of FAMILIES shows the results oddments"):
        write(results, results.parent)


def test_a_rate_from_before_rounds_warmed_up_says_so_beside_its_verdict(results):
    windows(1, ours=600_000.0, spark=300_000.0)
    assert "| 2.00x | met, nothing warmed up |" in page(results)
    assert "5 rounds, nothing warmed up; × of" in page(results)


def test_what_each_side_was_given_stands_beside_the_figures(results):
    windows(60, ours=600_000.0, spark=300_000.0)
    told = page(results)
    assert f"keys 10\n\n- {KEYEDWM}: records 1,000\n\n5 rounds" in told
    assert f"Machine: {measure.machine()['cores']} cores" in told


def test_where_cpu_was_spent_is_in_the_result_as_medians(results):
    sheet = Sheet("join-some", SPARK, {})
    for seconds in (1.0, 9.0, 2.0):
        sheet.add(SPARK, Run(10.0, None, 12.0, {"Java's tasks": 12.0 * seconds, "Python": 0.0}))
        sheet.add(KEYEDWM, Run(10.0, None, 3.0, {"Java's tasks": seconds, "Python": 2.0 * seconds}))
    sheet.finish()
    found = json.loads((results / "join-some.json").read_text())
    assert found["cpu_parts"][KEYEDWM] == {"Java's tasks": 2.0, "Python": 4.0}
    assert "cpu_parts" not in found["runs"][KEYEDWM][0]


def test_a_place_without_results_gives_no_page(results):
    with pytest.raises(SystemExit, match=r"no results of comparisons are in .*results: run one first"):
        page(results)


@pytest.mark.parametrize(
    ("of_core", "shown"), [(2.0, "\n1 round."), (4.0, "\n1 round; load average 8 to 8, so beside")]
)
def test_a_load_of_others_stands_beside_the_figures(results, monkeypatch, of_core, shown):
    monkeypatch.setattr(measure.os, "cpu_count", lambda: 2)
    monkeypatch.setattr(measure.os, "getloadavg", lambda: (2 * of_core, 0.0, 0.0))
    sheet = Sheet("driver", None, {})
    sheet.add(KEYEDWM, {"ms": 1.0})
    sheet.finish()
    assert shown in page(results)
