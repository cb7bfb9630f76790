"""Environments that are not on the workers: shipped as an archive, with the package and without it."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import tarfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from keyedwm.runtime.compiled import cache_directory
from tests.cluster.conftest import LIMIT_S, Feed
from tests.installed import built_wheel, environment_of
from tests.support.standalone import Standalone, standalone

pytestmark = [pytest.mark.starts, pytest.mark.cluster]

PYTHON = "./environment/bin/python"
NOT_HANDED_ON = ("PYTHONPATH", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "VIRTUAL_ENV")


@pytest.fixture(scope="module")
def workers() -> Iterator[Standalone]:
    """Two, on which no variable leads to the checkout."""
    with pytest.MonkeyPatch.context() as patch:
        for name in NOT_HANDED_ON:
            patch.delenv(name, raising=False)
        with standalone(2) as running:
            yield running


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One with the wheel in it; what it depends on is lent by path."""
    home = tmp_path_factory.mktemp("shipped")
    wheel = built_wheel(home)
    environment_of(wheel, home / "environment")
    shutil.copy(wheel, home / "keyedwm.zip")  # Spark puts no file on the path that ends in .whl
    return home / "environment"


def packed(environment: Path, archive: Path) -> str:
    with tarfile.open(archive, "w:gz") as file:
        file.add(environment, ".")
    return f"{archive}#environment"


def without_the_package(environment: Path, place: Path) -> Path:
    shutil.copytree(environment, place, symlinks=True, ignore=shutil.ignore_patterns("keyedwm*", "pyspark_wm*"))
    return place


@pytest.fixture
def ship(workers: Standalone, kafka, feed: Feed, environment: Path, tmp_path: Path):
    """Run the program as a user does whose workers lack the package; what it printed, what tasks noted, its rows."""

    def shipped(archive: str, *, code: int = 0, py_files: Sequence[Path] = ()) -> tuple[str, list[dict], Counter]:
        directory = tmp_path / "driver"
        (tmp_path / "notes").mkdir()
        directory.mkdir()
        shutil.copy(Path(__file__).with_name("shipped.py"), directory / "program.py")
        (directory / "environment").symlink_to(environment)
        given = {
            "master": workers.url, "bootstrap": kafka.bootstrap, "topic": feed.topic, "notes": str(tmp_path / "notes"),
            "out": str(tmp_path / "out"), "checkpoint": str(tmp_path / "checkpoint"),
            "py_files": [str(path) for path in py_files],
            "conf": {
                "spark.archives": archive,
                "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1",
                "spark.executor.memory": "512m", "spark.ui.enabled": "false", "spark.log.level": "ERROR",
                "spark.executorEnv.NUMBA_CACHE_DIR": str(cache_directory() or ""),
            },
        }  # fmt: skip
        variables = {name: value for name, value in os.environ.items() if name not in NOT_HANDED_ON}
        variables |= {"PYSPARK_PYTHON": PYTHON, "SPARK_LOCAL_IP": "127.0.0.1"}
        ran = subprocess.run(
            [PYTHON, "-W", "ignore", "program.py", json.dumps(given)], cwd=directory, env=variables,
            capture_output=True, text=True, timeout=LIMIT_S, check=False,
        )  # fmt: skip
        said = ran.stdout + ran.stderr
        assert ran.returncode == code, said[-4_000:]
        notes = [json.loads(path.read_text()) for path in (tmp_path / "notes").iterdir()]
        parts = [pq.ParquetFile(path).read() for path in (tmp_path / "out").glob("*.parquet")]
        return said, notes, Counter(value for part in parts for value in part["value"].to_pylist())

    return shipped


def test_executors_run_a_shipped_environment_that_no_worker_has(ship, feed: Feed, environment: Path, tmp_path: Path):
    _, notes, rows = ship(packed(environment, tmp_path / "environment.tar.gz"))
    assert rows == feed.values
    assert notes
    for note in notes:
        assert Path(note["package"]).is_relative_to(note["at"])
        assert set(note["pythons"]) == {PYTHON}  # one reads the source, one runs functions


def test_the_package_in_py_files_does_not_reach_the_tasks_that_read(ship, environment: Path, tmp_path: Path):
    bare = packed(without_the_package(environment, tmp_path / "bare"), tmp_path / "bare.tar.gz")
    said, _, rows = ship(bare, code=1, py_files=[environment.with_name("keyedwm.zip")])
    assert not rows
    (told,) = [line for line in said.splitlines() if line.startswith("keyedwm: ")]
    assert told.startswith(f"keyedwm: a worker on host {socket.gethostname()} runs a Python that does not have")


def test_a_worker_whose_environment_lacks_the_package_is_named_by_its_host(ship, environment: Path, tmp_path: Path):
    bare = packed(without_the_package(environment, tmp_path / "bare"), tmp_path / "bare.tar.gz")
    said, notes, _ = ship(bare, code=1)
    assert not notes
    (told,) = [line for line in said.splitlines() if line.startswith("keyedwm: ")]
    assert told.startswith(
        f"keyedwm: a worker on host {socket.gethostname()} runs a Python that does not have the package"
    )
