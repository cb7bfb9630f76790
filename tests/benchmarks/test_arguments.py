"""The command lines of the benchmarks."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize("asked", [("control_rows", "--rounds"), ("idle", "--pairs"), ("source", "--records")])
@pytest.mark.parametrize("number", ["0", "-1", "1.5"])
def test_no_rounds_and_no_records_are_refused_before_anything_starts(asked, number):
    module, option = asked
    command = [sys.executable, "-m", f"benchmarks.{module}", f"{option}={number}"]
    ran = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    assert ran.returncode == 2
    assert f"argument {option}: '{number}': a whole number of at least 1 is expected" in ran.stderr
