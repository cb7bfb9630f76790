"""The wheel and the sdist of a release in empty environments: of each Python that is promised, by pip and by uv.

Rule: an environment sees nothing of this checkout. A Python that this machine lacks is named, and left out.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.uv import run, uv

PYTHONS = ("3.10", "3.11", "3.12", "3.13", "3.14")
INSTALLERS = ("pip", "uv")
# `load` of the source needs Spark's JVM; the schema of its rows does not.
PROBE = """
import sys
from importlib.metadata import version
import keyedwm, keyedwm.spark, keyedwm.windows, pyspark_wm_sink
from pyspark_wm_source import DefaultSource
assert keyedwm.__version__ == version("keyedwm"), version("keyedwm")
assert keyedwm.__file__.startswith(sys.prefix), keyedwm.__file__
options = {"kafka.bootstrap.servers": "h:1", "subscribe": "t"}
assert "watermark" in DefaultSource(options).schema().names
"""


def trials(files: Sequence[Path]) -> Iterator[tuple[bool | None, str]]:
    """Yield whether a file could be installed and used, None for a Python that is missing, and a line about it."""
    for python in PYTHONS:
        place = run(uv(), "python", "find", "--system", "--no-python-downloads", python)
        if place.returncode:
            yield None, f"Python {python}: not checked, since this machine has none"
            continue
        for installer in INSTALLERS:
            with tempfile.TemporaryDirectory(prefix="keyedwm-install-") as home:
                for file in files:
                    fault = fault_of(Path(place.stdout.strip()), installer, file, Path(home))
                    yield not fault, f"Python {python}, {installer}, {file.name}: {fault or 'ok'}"


def fault_of(python: Path, installer: str, file: Path, home: Path) -> str:
    """Install a file into an empty environment and use it; returns the error, empty for none. home: an empty place."""
    environment = home / "environment"
    shutil.rmtree(environment, ignore_errors=True)
    own = environment / "bin" / "python"
    if installer == "pip":
        steps = [[python, "-m", "venv", environment], [own, "-m", "pip", "install", "--quiet", file]]
        check = [own, "-m", "pip", "check"]
    else:
        steps = [
            [uv(), "venv", "--quiet", "--python", python, environment],
            [uv(), "pip", "install", "--quiet", "--python", own, file],
        ]
        check = [uv(), "pip", "check", "--python", own]
    for step in (*steps, check, [own, "-c", PROBE], [environment / "bin" / "keyedwm", "--version"]):
        done = run(*step, cwd=home)
        if done.returncode:
            return last_line(done)
    return ""


def last_line(done: subprocess.CompletedProcess[str]) -> str:
    return next(reversed((done.stdout + done.stderr).strip().splitlines()), f"exit code {done.returncode}")
