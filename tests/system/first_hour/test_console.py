"""A script that fails shows the sentence in the last lines of its console; one that is well adds nothing to Spark's."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.installed import PATIENCE_S
from tests.system.first_hour.conftest import Run
from tests.tools import Record, produce

SCRIPT = """
import sys
import keyedwm.spark
from pyspark.sql import SparkSession

spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
given = dict(pair.split("=", 1) for pair in sys.argv[2:])
rows = spark.readStream.format("keyedwm").options(**given).load()
query = rows.writeStream.format("noop").option("checkpointLocation", sys.argv[1]).start()
try:
    query.awaitTermination()
except Exception:
    print("REASON", keyedwm.spark.reason(query), flush=True)
    raise
"""


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (
            ["watermarkLags=1 second"],
            "option watermarklags is unknown to the keyedwm source: did you mean watermarkLag?",
        ),
        (["kafka.default.api.timeout.ms=1000"], "no Kafka broker answered at 127.0.0.1:9 within 1000 ms"),
    ],
    ids=["at load", "in the running query"],
)
def test_the_sentence_stands_in_the_last_lines(shell: Run, python: str, tmp_path: Path, options, sentence):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    common = ["kafka.bootstrap.servers=127.0.0.1:9", "subscribe=orders"]
    ran = shell([python, script, tmp_path / "checkpoint", *common, *options])
    assert ran.returncode == 1
    last = [line for line in ran.stderr.splitlines()[-20:] if line.startswith("keyedwm: ")]
    assert len(last) == 1, ran.stderr[-4_000:]
    assert sentence in last[0]
    if "timeout" in options[0]:
        assert sentence in next(line for line in ran.stdout.splitlines() if line.startswith("REASON "))


HEALTHY = """
import sys
from keyedwm.spark import aggregate, count, session_conf, tumbling
from pyspark.sql import SparkSession

bootstrap, topic, home = sys.argv[1:]
builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
builder = builder.config("spark.ui.showConsoleProgress", "false")
for name, value in session_conf(cores=2).items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
print("SESSION", file=sys.stderr, flush=True)
given = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
rows = spark.readStream.format("keyedwm").options(**given).load()
counts = aggregate(rows, "key", tumbling("1 second"), {"n": count()})
writer = counts.drop("pane").writeStream.format("keyedwm").trigger(availableNow=True)
writer.options(path=f"{home}/table", checkpointLocation=f"{home}/checkpoint").start().awaitTermination()
print("END", file=sys.stderr, flush=True)
"""
# What Spark says of each such query: two settings that streams do without, and the begin and the end of a worker.
OF_SPARK = re.compile(
    r"$|.* WARN (ResolveWriteToStream|MicroBatchExecution): |"
    r"Starting Streaming TransformWithStateInPandas Python worker\.|.*StateServer: No more data to read from the "
)


@pytest.mark.starts
def test_a_healthy_run_says_nothing_beside_what_spark_says_once_a_query(kafka, topic_of, tmp_path: Path):
    topic = topic_of(2)
    produce(kafka.bootstrap, topic, [Record(at % 2, at * 300, b"x") for at in range(8)])
    script = tmp_path / "script.py"
    script.write_text(HEALTHY)
    ran = subprocess.run(
        [sys.executable, script, kafka.bootstrap, topic, tmp_path], capture_output=True, text=True, check=False,
        env=os.environ | {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable},
        timeout=PATIENCE_S,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr[-3_000:]
    lines = ran.stderr.partition("SESSION\n")[2].partition("END\n")[0].splitlines()
    first_time = [line for line in lines if line.startswith("compiling, once per machine and user")]
    assert [line for line in lines if not OF_SPARK.match(line) and line not in first_time] == []
    assert len(first_time) <= 1
    assert len(lines) - len(first_time) <= 6  # one for each bucket would come on top
