"""A script that fails shows the sentence in the last lines of its console, however much Spark says before it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.first_hour.conftest import Run

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
        (["kafka.isolaton.level=read_committed"], "did you mean kafka.isolation.level?"),
        (["kafka.default.api.timeout.ms=1000"], "no Kafka broker answered at 127.0.0.1:9 within 1000 ms"),
    ],
    ids=["at load", "a mistyped property", "in the running query"],
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
