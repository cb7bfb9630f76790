"""kfake of franz-go, a second implementation of Kafka's protocol: a Spark job between topics, and `keyedwm doctor`.

The job runs twice with one checkpoint, and writes exactly once. Each value is expected once.
"""

from __future__ import annotations

import contextlib
import io
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

from keyedwm.cli.main import main as keyedwm
from tests.platforms.parts import NotServedError
from tests.sink.conftest import records_of
from tests.support.kfake_server import SOURCE, NoKfakeError, build, kfake
from tests.tools import Record, make_topic, produce

ROOT = Path(__file__).parents[2]
JOB_LIMIT_S = 600
RECORDS, PARTITIONS = 400, 2  # of each run
WORKS = ("the source", "truncation check", "recreation check", "the exactly-once sink to Kafka", "tiered storage")


def run(folder: Path) -> str:
    """Raise an error for the first claim that is wrong."""
    try:
        build()
    except NoKfakeError as error:
        raise NotServedError(str(error)) from error
    with kfake(brokers=2) as bootstrap:
        topics = [make_topic(bootstrap, name, PARTITIONS) for name in ("orders", "copies")]
        for half in (0, 1):
            produce(bootstrap, topics[0], records(half))
            _run_job(bootstrap, folder)
        rows = Counter(record[2] for record in records_of(bootstrap, topics[1]))
        expected = Counter(record.value for half in (0, 1) for record in records(half))
        if rows != expected:
            raise AssertionError(f"missing: {expected - rows}; not expected: {rows - expected}")
        _check_doctor(bootstrap, topics)
    return f"kfake {_version()}, 2 brokers: {rows.total()} rows exactly once over a restart, doctor finds no failure"


def records(half: int) -> list[Record]:
    """Return the records of one run, one a second on each partition."""
    numbers = range(half * RECORDS, (half + 1) * RECORDS)
    return [Record(n % PARTITIONS, 1_700_000_000_000 + n * 1_000, b"%d" % n) for n in numbers]


def _run_job(bootstrap: str, folder: Path) -> None:
    options = json.dumps({"kafka.bootstrap.servers": bootstrap})
    command = [sys.executable, "-W", "ignore", "-m", __name__, options, str(folder)]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=JOB_LIMIT_S)
    if result.returncode:
        raise AssertionError(f"the job failed: {(result.stdout + result.stderr)[-3_000:]}")


def _check_doctor(bootstrap: str, topics: list[str]) -> None:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        code = keyedwm(["doctor", "--bootstrap", bootstrap, "--topic", topics[0], "--target", topics[1]])
    lines = printed.getvalue().splitlines()
    missing = [name for name in WORKS if not any(line.startswith(f"ok    {name}: ") for line in lines)]
    if code or missing:
        raise AssertionError(f"doctor ends with {code}, without {missing}: {printed.getvalue()}")


def _version() -> str:
    lines = (SOURCE / "go.mod").read_text(encoding="utf-8").splitlines()
    return next(line.split()[-1] for line in lines if "franz-go/pkg/kfake" in line)


def _job(options: dict[str, str], folder: Path) -> None:
    """Copy `orders` to `copies`, and stop at the logs' ends."""
    from pyspark.sql import SparkSession

    from keyedwm.spark import session_conf

    spark = SparkSession.builder.master("local[2]").config(map=session_conf(cores=2)).getOrCreate()
    rows = spark.readStream.format("keyedwm").options(**options, subscribe="orders", startingOffsets="earliest").load()
    writer = rows.selectExpr("value", "watermark", "control").writeStream.format("keyedwm")
    writer = writer.options(**options, topic="copies", checkpointLocation=str(folder / "checkpoint"))
    writer.trigger(availableNow=True).start().awaitTermination()
    spark.stop()


if __name__ == "__main__":
    _job(json.loads(sys.argv[1]), Path(sys.argv[2]))
