"""The command lines of the benchmarks."""

from __future__ import annotations

import subprocess
import sys

import pytest

from benchmarks.reading_task import CASES
from pyspark_wm_source.options.source_options import SourceOptions


@pytest.mark.parametrize("asked", [("control_rows", "--rounds"), ("idle", "--pairs"), ("source", "--records")])
@pytest.mark.parametrize("number", ["0", "-1", "1.5"])
def test_no_rounds_and_no_records_are_refused_before_anything_starts(asked, number):
    module, option = asked
    command = [sys.executable, "-m", f"benchmarks.{module}", f"{option}={number}"]
    ran = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    assert ran.returncode == 2
    assert f"argument {option}: '{number}': a whole number of at least 1 is expected" in ran.stderr


@pytest.mark.parametrize("case", CASES)
def test_the_source_takes_the_options_of_each_reading_task(case):
    parsed = SourceOptions.parse({"kafka.bootstrap.servers": "127.0.0.1:9092", "subscribe": "some", **CASES[case]})
    assert (parsed.stage is not None) is ("columns" not in CASES[case])
