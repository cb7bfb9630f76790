"""Python workers that are forked from a process which has loaded everything, and only where a session asks for it."""

from __future__ import annotations

import json

import pytest

from keyedwm.spark import recommended_conf, session_conf
from tests.first_hour.conftest import Run

NAME = "spark.python.daemon.module"
SCRIPT = """
import json, sys
import keyedwm.spark
from pyspark.sql import SparkSession

builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
for name, value in {**keyedwm.spark.session_conf(cores=1), **json.loads(sys.argv[1])}.items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()

def loaded(_):
    import sys
    given = getattr(sys.modules["__main__"], "__spec__", None)
    return given and given.name, "numba" in sys.modules

print("FOUND", json.dumps(spark.sparkContext.range(1).map(loaded).first()))
spark.stop()
"""


def test_the_setting_stands_beside_those_that_a_session_takes_later():
    assert NAME not in recommended_conf()
    assert session_conf(cores=3) == {
        **recommended_conf(cores=3), NAME: "keyedwm.daemon", "spark.python.unix.domain.socket.enabled": "true"
    }  # fmt: skip


@pytest.mark.starts
@pytest.mark.parametrize(
    ("own", "found"),
    [({}, ["keyedwm.daemon", True]), ({NAME: "pyspark.daemon"}, ["pyspark.daemon", False])],
    ids=["ours", "the session's own"],
)
def test_workers_have_everything_loaded_unless_the_session_has_a_daemon_of_its_own(
    shell: Run, python: str, tmp_path, own, found
):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    ran = shell([python, script, json.dumps(own)])
    assert ran.returncode == 0, ran.stderr[-3_000:]
    (line,) = [line for line in ran.stdout.splitlines() if line.startswith("FOUND ")]
    assert json.loads(line.removeprefix("FOUND ")) == found
    assert "RuntimeWarning" not in ran.stderr
