"""Our rows beside those of Spark's own Kafka connector, on the same topic, in one session."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

import pytest

from examples.demo.spark_jars import spark_kafka_connector_jars
from keyedwm.core.errors import UnavailableError
from tests.tools import Record, make_topic, produce

pytestmark = pytest.mark.starts

ROOT = Path(__file__).parents[2]
MINUTE_MS = 60_000


def records(seed: int) -> list[Record]:
    """Partition 0 runs ten times ahead of partition 1; keys, values and headers of every shape."""
    rng = random.Random(f"{seed} side by side")
    blobs = [None, b"", b"\x00\xff", "ключ".encode()]
    sent = []
    for step in range(1, 31):
        for partition, pace in ((0, 10), (1, 1)):
            headers = tuple((rng.choice(["", "h"]), rng.choice(blobs)) for _ in range(rng.choice([0, 1, 3])))
            ms = step * pace * MINUTE_MS + 7
            sent.append(Record(partition, ms, rng.choice([*blobs, rng.randbytes(99)]), rng.choice(blobs), headers))
    return sent


@pytest.fixture(scope="module")
def found(kafka, seed, tmp_path_factory) -> dict[str, Any]:
    try:
        spark_kafka_connector_jars()
    except UnavailableError as error:
        pytest.skip(f"Spark's own connector cannot be fetched: {error}")
    topic = make_topic(kafka.bootstrap, f"t-{uuid.uuid4().hex[:16]}", 2)
    sent = records(seed)
    for at in range(0, len(sent), 10):
        produce(kafka.bootstrap, topic, sent[at : at + 10])
    directory = str(tmp_path_factory.mktemp("side-by-side"))
    ran = subprocess.run(
        [sys.executable, "-m", "tests.spark.other_session", "side_by_side", kafka.bootstrap, topic, directory],
        cwd=ROOT, env={**os.environ, "PYTHONWARNINGS": "ignore"}, capture_output=True, text=True, timeout=600,
        check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr[-4_000:]
    return json.loads(ran.stdout.splitlines()[-1])


def test_event_rows_equal_those_of_sparks_own_connector(found, seed):
    assert found["rows"] == len(records(seed))
    assert (found["only_native"], found["only_ours"]) == (0, 0)


def test_our_schema_begins_with_sparks(found):
    native = found["native_schema"]
    assert found["our_schema"][: len(native)] == native
    assert [name for name, _ in found["our_schema"][len(native) :]] == ["event_time", "watermark", "control"]


def test_sparks_own_connector_loses_rows_of_the_slow_partition(found):
    assert found["dropped"] > 0
