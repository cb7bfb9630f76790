"""`keyedwm warm`: compiled functions are there before the first task, and a second run has nothing to make."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from keyedwm.cli.main import main

# The joins alone: all parts together are run once before the suite, and by tests/system/first_hour/first_query.py.
JOINS = """
import sys
from keyedwm.cli.main import main
from keyedwm.cli import warm
joins = {name: play for name, play in warm.rounds().items() if name.startswith("joins")}
warm.rounds = lambda: joins
sys.exit(main(["warm", "--worker"]))
"""
IMPORTED_LATE = """
from keyedwm.cli import warm
from keyedwm.runtime import compiled
warm.import_all()
parts = warm.rounds()
before = len(compiled._all)
for play in parts.values():
    play()
print(len(compiled._all) - before)
"""
LIMIT_S = 300
OF_ALL_PARTS = Path(__file__).parents[2] / "build" / "compiled.txt"


def warmed(cache) -> tuple[int, int, list[str]]:
    """How many functions were made, how many were there, and which of the joins are left."""
    environment = {name: value for name, value in os.environ.items() if name != "NUMBA_CACHE_DIR"}
    ran = subprocess.run(
        [sys.executable, "-c", JOINS], env={**environment, "XDG_CACHE_HOME": str(cache)},
        capture_output=True, text=True, check=False, timeout=LIMIT_S,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    counts = re.search(r"compiled functions: (\d+) made, (\d+) were, in (.*)", ran.stdout)
    assert counts, ran.stdout
    assert counts[3] == str(cache / "keyedwm" / "compiled")
    return int(counts[1]), int(counts[2]), re.findall(r"keyedwm\.operators\.join\.\S+\b", ran.stdout)


@pytest.mark.starts
def test_what_joins_call_is_compiled_once_and_a_second_run_makes_nothing(tmp_path):
    compiled_count, were, left = warmed(tmp_path)
    assert compiled_count > 3
    assert (were, left) == (0, [])
    assert warmed(tmp_path) == (0, compiled_count, [])


@pytest.mark.starts
def test_every_function_is_counted_before_the_parts_run():
    ran = subprocess.run(
        [sys.executable, "-c", IMPORTED_LATE], capture_output=True, text=True, check=False, timeout=LIMIT_S
    )
    assert (ran.returncode, ran.stdout.strip()) == (0, "0"), ran.stderr


@pytest.mark.starts
def test_values_behind_a_schema_registry_compile_nothing_that_warm_has_not():
    ran = subprocess.run(
        [sys.executable, "-m", "tests.cli.warmed_formats"], cwd=OF_ALL_PARTS.parents[1], capture_output=True, text=True,
        check=False, timeout=LIMIT_S,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.strip() == ""


@pytest.mark.skipif(not OF_ALL_PARTS.exists(), reason="make build/compiled.txt")
def test_no_function_is_left_to_the_first_task():
    text = OF_ALL_PARTS.read_text()
    assert "compiled functions: " in text
    assert "left to the first task" not in text


def test_without_a_directory_for_compiled_code_it_says_so_and_ends_with_1(monkeypatch, capsys):
    from keyedwm.cli import warm
    from keyedwm.runtime import compiled

    monkeypatch.setattr(compiled, "cache_directory", lambda: None)
    monkeypatch.setattr(warm, "compile_all", lambda: (0, 0))
    assert main(["warm"]) == 1
    assert "FAIL: no directory that compiled code may be kept in" in capsys.readouterr().out
