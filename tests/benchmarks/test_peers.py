"""The side of an engine beside ours: its figures, and the refusal of any other answer."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.peers import ENGINES, HERE, LAG_MS, run_of
from benchmarks.windows import CASES
from benchmarks.windows_answer import Stream, answer
from keyedwm.testing.ivy import read_hashes

RECORDS = 20_000
ANSWER = answer(Stream(1_000, 1_000, keys=7), RECORDS)
SUMS = {**ANSWER, "took_s": 2.0, "cpu_s": 0.05, "steady_records": 15_000, "steady_s": 1.0}


def test_an_engine_has_the_figures_of_our_sides():
    run = run_of("some", SUMS, ANSWER, RECORDS)
    assert (run.rate, run.steady, run.cpu_s) == (10_000, 15_000, 2.5)


def test_a_run_of_few_records_has_no_steady_rate():
    assert run_of("some", {**SUMS, "steady_records": 0, "steady_s": 0.0}, ANSWER, RECORDS).steady is None


@pytest.mark.parametrize("name", ANSWER)
def test_an_engine_with_another_answer_has_no_figure(name):
    with pytest.raises(SystemExit, match=r"some: .* came out, the answer is .*: no figure"):
        run_of("some", {**SUMS, name: ANSWER[name] + 1}, ANSWER, RECORDS)


def test_engines_wait_for_late_records_as_the_case_does():
    assert CASES["tumbling"].lag == f"{LAG_MS // 1_000} second"


@pytest.mark.parametrize("engine", ENGINES.values(), ids=ENGINES)
def test_each_artifact_of_an_engine_has_a_hash(engine):
    jars = read_hashes(HERE / "jars.txt")
    assert {f"{one.split(':')[1]}-{one.split(':')[2]}.jar" for one in engine.artifacts} <= set(jars)
    assert Path(HERE / f"{engine.program}.java").exists()
