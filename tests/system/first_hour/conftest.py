"""A user's shell: keyedwm is installed in an environment, nothing is set for Spark, the `python3` on PATH lacks it."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.installed import PATIENCE_S, built_wheel, environment_of

Run = Callable[..., subprocess.CompletedProcess]


def pyspark_home() -> Path:
    spec = find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent


@pytest.fixture(scope="session")
def python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The Python of an environment in which the wheel is installed; this checkout is not on its path."""
    home = tmp_path_factory.mktemp("installed")
    return str(environment_of(built_wheel(home), home / "environment"))


@pytest.fixture
def shell(tmp_path: Path) -> Run:
    """Run a command in that shell, in an empty directory; `variables` are set on top."""
    other = tmp_path / "bin" / "python3"
    other.parent.mkdir()
    # PySpark and the packages beside it, but no `.pth` files: so no editable installation, and not this checkout.
    other.write_text(f'#!/bin/sh\nPYTHONPATH="{pyspark_home().parent}" exec "{sys.executable}" -S "$@"\n')
    other.chmod(other.stat().st_mode | stat.S_IXUSR)
    unset = ("PYTHONPATH", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "PYTHONWARNINGS", "SPARK_HOME",
             "PYTHONDONTWRITEBYTECODE")  # fmt: skip
    base = {name: value for name, value in os.environ.items() if name not in unset}
    base |= {"PATH": f"{other.parent}:{base['PATH']}", "SPARK_LOCAL_IP": "127.0.0.1"}
    empty = tmp_path / "empty"
    empty.mkdir()

    def run(
        command: Sequence[str | Path], variables: Mapping[str, str] | None = None, said: str = ""
    ) -> subprocess.CompletedProcess:
        return subprocess.run(
            [str(word) for word in command], env=base | dict(variables or {}), cwd=empty, input=said,
            capture_output=True, text=True, timeout=PATIENCE_S, check=False,
        )  # fmt: skip

    return run


@pytest.fixture
def another_python(tmp_path: Path, shell: Run) -> Path:
    """The Python on PATH that does not have keyedwm."""
    del shell
    return tmp_path / "bin" / "python3"
