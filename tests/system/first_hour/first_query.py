"""The wheel in an environment of its own: from records in Kafka to windows in Delta, as a user's script does it.

Run by its name: pytest -n 0 tests/system/first_hour/first_query.py. It is not part of the suite, as it
compiles everything anew: compiled code is kept by the place of its module.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.system.first_hour.conftest import Run
from tests.tools import Record, produce

pytestmark = pytest.mark.starts

# Python workers are forked from `keyedwm.daemon`, as `session_conf` has it.
SCRIPT = """
import json, sys
from keyedwm.spark import aggregate, count, session_conf, tumbling
from pyspark.sql import SparkSession, functions as F

bootstrap, topic, home = sys.argv[1:]
builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
builder = builder.config("spark.sql.session.timeZone", "UTC")
for name, value in session_conf(cores=2).items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
given = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
rows = spark.readStream.format("keyedwm").options(**given).load().withColumn("page", F.col("value").cast("string"))
counts = aggregate(rows, "page", tumbling("1 minute"), {"visits": count()})
writer = counts.selectExpr("window.start as minute", "page", "visits", "control").writeStream.format("keyedwm")
writer = writer.options(path=f"{home}/table", checkpointLocation=f"{home}/checkpoint").trigger(availableNow=True)
writer.start().awaitTermination()

from deltalake import DeltaTable

found = DeltaTable(f"{home}/table").to_pyarrow_table().to_pylist()
parents = spark.sparkContext.range(2, numSlices=2).map(lambda _: __import__("sys").modules["__main__"].__spec__.name)
print("FOUND", json.dumps([sorted([f"{r['minute']:%H:%M}", r["page"], r["visits"]] for r in found), parents.collect()]))
spark.stop()
"""


def test_the_first_query_of_an_installed_wheel_counts_exactly_with_workers_that_have_everything_loaded(
    kafka, topic_of, shell: Run, python: str, tmp_path: Path
):
    topic = topic_of(2)
    times_s = {0: [10, 40, 61, 300], 1: [30, 75]}  # of two partitions, the second of which lags behind
    produce(kafka.bootstrap, topic, [Record(p, s * 1_000, b"home") for p, seconds in times_s.items() for s in seconds])
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    ran = shell([python, script, kafka.bootstrap, topic, tmp_path])
    assert ran.returncode == 0, ran.stderr[-3_000:]
    (line,) = [line for line in ran.stdout.splitlines() if line.startswith("FOUND ")]
    counts, parents = json.loads(line.removeprefix("FOUND "))
    # Partition 1 stands at 00:01:15, so the minute from 00:01 is open although partition 0 has passed 00:05.
    assert counts == [["00:00", "home", 3]]
    assert parents == ["keyedwm.daemon", "keyedwm.daemon"]


def test_after_warm_the_first_query_compiles_nothing(kafka, topic_of, shell: Run, python: str, tmp_path: Path):
    topic = topic_of(2)
    produce(kafka.bootstrap, topic, [Record(p, s * 1_000, b"home") for p in (0, 1) for s in (10, 61, 300)])
    caches = {"XDG_CACHE_HOME": str(tmp_path / "caches")}
    warmed = shell([Path(python).with_name("keyedwm"), "warm"], caches)
    assert warmed.returncode == 0, warmed.stderr[-3_000:]
    assert "left to the first task" not in warmed.stdout
    made = sorted((tmp_path / "caches").rglob("*.nbc"))
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    ran = shell([python, script, kafka.bootstrap, topic, tmp_path], caches)
    assert ran.returncode == 0, ran.stderr[-3_000:]
    assert len(made) > 50
    assert sorted((tmp_path / "caches").rglob("*.nbc")) == made
