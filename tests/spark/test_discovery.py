"""`format("keyedwm")` is found whatever the order of the two packages, and when it is registered by hand."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from deltalake import DeltaTable

from tests.tools import Record, produce

pytestmark = pytest.mark.starts

ROOT = Path(__file__).parents[2]
PACKAGES = ("pyspark_wm_source", "pyspark_wm_sink")


def test_both_packages_export_the_very_same_class():
    import pyspark_wm_sink
    import pyspark_wm_source

    assert pyspark_wm_sink.DefaultSource is pyspark_wm_source.DefaultSource


def test_the_packages_load_nothing_heavy():
    code = (
        "import sys, pyspark_wm_source, pyspark_wm_sink; print(*sorted({name.split('.')[0] for name in sys.modules}))"
    )
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert not {"pyarrow", "numpy", "pandas", "kafka", "numba", "deltalake"} & set(loaded.stdout.split())


@pytest.fixture(scope="module")
def homes(tmp_path_factory) -> dict[str, Path]:
    """A directory for each package, the same ones for each order: functions are compiled once for a path."""
    made = {}
    for package in (*PACKAGES, "keyedwm", "tests"):
        made[package] = tmp_path_factory.mktemp("only") / package
        made[package].symlink_to(ROOT / package)
    return made


@pytest.mark.parametrize("order", [PACKAGES, PACKAGES[::-1]], ids=" then ".join)
def test_either_order_of_the_packages_serves_both_halves(kafka, topic_of, tmp_path, homes, order):
    # An interpreter that sees neither this checkout nor its installation: only one directory per package, in `order`.
    paths = [str(homes[package].parent) for package in (*order, "keyedwm", "tests")]
    libraries = next(path for path in sys.path if path.endswith("site-packages"))
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S "$@"\n')
    python.chmod(python.stat().st_mode | stat.S_IXUSR)
    topic = topic_of(2)
    produce(kafka.bootstrap, topic, [Record(0, 10, b"a"), Record(1, 20, b"b")])
    environment = {
        "PYTHONPATH": os.pathsep.join([*paths, libraries]), "PYSPARK_PYTHON": str(python),
        "PYSPARK_DRIVER_PYTHON": str(python), "PYTHONWARNINGS": "ignore", "PYTHONSAFEPATH": "1",
    }  # fmt: skip
    ran = subprocess.run(
        [str(python), "-m", "tests.spark.other_session", "through", kafka.bootstrap, topic, str(tmp_path)],
        cwd=tmp_path, env={**os.environ, **environment}, capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr[-4_000:]
    found = json.loads(ran.stdout.splitlines()[-1])
    assert found["order"] == list(order)
    assert sorted(found["packages"]) == sorted(str(homes[package].parent) for package in PACKAGES)
    values = DeltaTable(tmp_path / "table").to_pyarrow_table().column("value").to_pylist()
    assert sorted(values) == [b"a", b"b"]


def test_registering_by_hand_works_too(spark, kafka, topic_of, run, load):
    from pyspark_wm_source import DefaultSource

    topic = topic_of()
    produce(kafka.bootstrap, topic, [Record(0, 10, b"a")])
    spark.dataSource.register(DefaultSource)
    assert [row["value"] for row in run(load(topic).where("control IS NULL")).rows] == [b"a"]
