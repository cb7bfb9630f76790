"""Spark starts the Python that keyedwm is installed in: set by the import, or one sentence says what to set."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from keyedwm.spark.setup.interpreter import LOOKUP, WORKERS, complaint, use_this_python
from tests.system.first_hour.conftest import Run, pyspark_home

pytestmark = pytest.mark.starts

SCRIPT = Path(__file__).with_name("lookup.py")


def result(ran: subprocess.CompletedProcess) -> dict:
    assert ran.returncode == 0, ran.stderr[-3_000:]
    return json.loads(next(line for line in ran.stdout.splitlines() if '{"columns"' in line).lstrip("> "))


def test_a_plain_script_that_imports_keyedwm_first_needs_no_variable(shell: Run, python: str):
    ran = shell([python, SCRIPT, "first"])
    assert result(ran)["python"] == python
    assert "watermark" in result(ran)["columns"]
    assert "RuntimeWarning" not in ran.stderr


def test_a_session_created_before_the_import_is_told_what_to_set(shell: Run, python: str):
    ran = shell([python, SCRIPT, "late"])
    assert "DATA_SOURCE_NOT_FOUND" in ran.stderr
    (told,) = [line for line in ran.stderr.splitlines() if "RuntimeWarning" in line]
    assert "Spark looks data sources up with 'python3', another Python than this session's" in told
    assert f"set PYSPARK_PYTHON and PYSPARK_DRIVER_PYTHON to {python} before Spark starts" in told
    assert "or import keyedwm.spark before the session is created" in told


def test_spark_submit_needs_the_variable_and_then_says_nothing(shell: Run, python: str):
    ran = shell([pyspark_home() / "bin" / "spark-submit", SCRIPT, "first"], {WORKERS: python})
    assert result(ran)["python"] == python
    assert "RuntimeWarning" not in ran.stderr


def test_the_pyspark_shell_needs_the_variable_and_then_says_nothing(shell: Run, python: str):
    lines = SCRIPT.read_text().split('if when == "late":')[1].split("\n\n", 1)[1]
    interactive = {WORKERS: python, "PYSPARK_DRIVER_PYTHON_OPTS": "-i"}
    command = [pyspark_home() / "bin" / "pyspark", "--master", "local[1]", "--conf", "spark.ui.enabled=false"]
    ran = shell(command, interactive, f"import json, sys, keyedwm.spark\n{lines}")
    assert result(ran)["python"] == python
    assert "RuntimeWarning" not in ran.stderr


def test_a_notebook_cell_sets_the_variables_before_its_session(shell: Run, python: str):
    # What a kernel does: it runs cell after cell in one namespace, with a main module that is its own.
    cells = [
        "import sys; sys.argv = ['kernel', 'first']",
        f"exec(compile(open({str(SCRIPT)!r}).read(), '<cell>', 'exec'))",
    ]
    kernel = f"import code\nkernel = code.InteractiveInterpreter()\nfor cell in {cells!r}: kernel.runsource(cell)"
    assert result(shell([python, "-c", kernel]))["python"] == python


def test_a_variable_that_names_another_python_is_warned_of(shell: Run, python: str, another_python: Path):
    ran = shell([python, "-c", "import keyedwm.spark"], {WORKERS: str(another_python)})
    (told,) = [line for line in ran.stderr.splitlines() if "RuntimeWarning" in line]
    assert f"Spark runs its workers with {str(another_python)!r}, another Python than this session's" in told
    assert f"set PYSPARK_PYTHON and PYSPARK_DRIVER_PYTHON to {python} before Spark starts" in told


def test_what_is_unset_is_set_and_what_is_set_stays(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("keyedwm.spark.setup.interpreter._variables_of_jvm", lambda: None)
    monkeypatch.delenv(LOOKUP)
    monkeypatch.setenv(WORKERS, "./environment/bin/python")  # a path on the workers of a cluster
    with pytest.warns(RuntimeWarning) as told:
        use_this_python()
    (one,) = told
    here = f"'./environment/bin/python', which is no program on this host (its working directory is {Path.cwd()})"
    assert str(one.message) == (
        f"PYSPARK_PYTHON names {here}, so Spark looks data sources up with {sys.executable!r} and workers read and "
        f"write by that path of the driver: let PYSPARK_PYTHON lead to {sys.prefix} from here, too, by a link"
    )
    assert (os.environ[LOOKUP], os.environ[WORKERS]) == (sys.executable, "./environment/bin/python")


def test_a_path_that_leads_to_this_environment_here_too_is_the_only_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    # As with a shipped environment: workers would look for the driver's own path.
    (tmp_path / "environment").symlink_to(sys.prefix)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("keyedwm.spark.setup.interpreter._variables_of_jvm", lambda: None)
    monkeypatch.delenv(LOOKUP)
    monkeypatch.setenv(WORKERS, "./environment/bin/python")
    use_this_python()
    assert LOOKUP not in os.environ


@pytest.mark.parametrize(
    ("python", "where"), [("/no/bin/python", ""), ("no/bin/python", " (its working directory is ")]
)
def test_a_look_up_by_a_path_that_leads_nowhere_here_says_so(python: str, where: str):
    told = str(complaint({WORKERS: python}.get, too_late=True))
    assert told.startswith(f"Spark looks data sources up with {python!r}, which is no program on this host{where}")
    assert f"lead to {sys.prefix} from here, too, by a link" in told or not where


def test_a_driver_python_that_is_not_a_python_is_named(tmp_path: Path):
    jupyter = tmp_path / "jupyter"
    jupyter.write_text("#!/bin/sh\nexit 1\n")
    jupyter.chmod(0o755)
    told = complaint({LOOKUP: str(jupyter), WORKERS: sys.executable}.get, too_late=False)
    assert f"Spark looks data sources up with {str(jupyter)!r}" in str(told)
    assert complaint({WORKERS: sys.executable}.get, too_late=True) is None
