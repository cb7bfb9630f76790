"""The wheel and the sdist of a release in empty environments: of each Python that is promised, by pip and by uv.

Rule: an environment sees nothing of this checkout. A Python that this machine lacks is named, and left out.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.uv import python, run, uv

PYTHONS = ("3.10", "3.11", "3.12", "3.13", "3.14")
INSTALLERS = ("uv", "pip")
# `make` and Spark set them to places of this checkout.
UNSET = ("PYTHONPATH", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "VIRTUAL_ENV")
LINES = 6  # of an error: uv's last one is a hint
# `load` of the source needs Spark's JVM; the schema of its rows and a window over a table do not.
PROBE = """
import sys
from importlib.metadata import version
import keyedwm, keyedwm.spark, pyarrow as pa, pyspark_wm_sink
from keyedwm.windows import Retention, StorePlan, WindowOperator, count, tumbling
from pyspark_wm_source import DefaultSource
assert keyedwm.__version__ == version("keyedwm"), version("keyedwm")
assert keyedwm.__file__.startswith(sys.prefix), keyedwm.__file__
options = {"kafka.bootstrap.servers": "h:1", "subscribe": "t"}
assert "watermark" in DefaultSource(options).schema().names
types = {"shop": pa.string(), "event_time": pa.int64(), "topic": pa.string(), "partition": pa.int32()}
schema = pa.schema([*types.items(), ("offset", pa.int64())])
operator = WindowOperator(
    StorePlan(
        schema=schema, by=("shop",), window=tumbling(60_000), aggregates=(("orders", count()),),
        retention=Retention(time_ms=3_600_000, max_bytes=1 << 20),
    )
)
rows = [{"shop": "Oslo", "event_time": ms, "topic": "t", "partition": 0, "offset": ms} for ms in (1_000, 2_000)]
operator.add_message(pa.Table.from_pylist(rows, schema=schema))
operator.watermark(60_000)
orders = [(pane["shop"], pane["orders"]) for pane in operator.flush().to_pylist()]
assert orders == [("Oslo", 2)], orders
"""


def trials(files: Sequence[Path], pythons: Sequence[str] = PYTHONS) -> Iterator[tuple[bool | None, str]]:
    """Yield whether a file could be installed and used, None for a Python that is missing, and a line about it."""
    programs = {release: python(release) for release in pythons}
    for release in (release for release, program in programs.items() if program is None):
        yield None, f"Python {release}: not checked, since this machine has none"
    for installer in INSTALLERS:
        for release, program in programs.items():
            if program is None:
                continue
            with tempfile.TemporaryDirectory(prefix="keyedwm-install-") as home:
                for file in files:
                    began = time.monotonic()
                    fault = fault_of(program, installer, file, Path(home))
                    took = f"{fault or 'ok'}, {time.monotonic() - began:.0f} s"
                    yield not fault, f"Python {release}, {installer}, {file.name}: {took}"


def fault_of(program: Path, installer: str, file: Path, home: Path) -> str:
    """Install a file into an empty environment and use it; returns the error, empty for none. home: an empty place."""
    environment = home / "environment"
    shutil.rmtree(environment, ignore_errors=True)
    own, command = environment / "bin" / "python", environment / "bin" / "keyedwm"
    if installer == "pip":
        steps = [[program, "-m", "venv", environment], [own, "-m", "pip", "install", "--quiet", file]]
        check = [own, "-m", "pip", "check"]
    else:
        steps = [
            [uv(), "venv", "--quiet", "--python", program, environment],
            [uv(), "pip", "install", "--quiet", "--python", own, file],
        ]
        check = [uv(), "pip", "check", "--python", own]
    outside = {name: value for name, value in os.environ.items() if name not in UNSET}
    outside["UV_LOCK_TIMEOUT"] = "3600"  # seconds that another uv may build Spark
    for step in (*steps, check, [own, "-c", PROBE], [command, "--version"], [command, "--help"]):
        done = run(*step, cwd=home, env=outside)
        if done.returncode:
            return " | ".join((done.stdout + done.stderr).split("\n")[-LINES:]).strip(" |") or last_line(done)
    return ""


def last_line(done: subprocess.CompletedProcess[str]) -> str:
    return next(reversed((done.stdout + done.stderr).strip().splitlines()), f"exit code {done.returncode}")
