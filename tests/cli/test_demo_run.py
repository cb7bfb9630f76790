"""The demo as people start it: two days of flights through a real Kafka and a real Spark."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from examples.demo.spark_jars import spark_kafka_connector_jars
from keyedwm.kafka.client.config import ClientConfig
from keyedwm.kafka.requests.cluster import Cluster
from keyedwm.testing.broker import VARIABLE
from tests.tools import wait_until

pytestmark = pytest.mark.starts

KEYEDWM = Path(sys.executable).with_name("keyedwm")
LIMIT_S = 600


@pytest.fixture(scope="module", autouse=True)
def _fetched():
    """Otherwise the demo fetches the jars, and says so where the registry is slow."""
    spark_kafka_connector_jars()


def start(kafka, tmp_path, *arguments):
    """The command in a session and a temporary directory of its own, on the tests' broker."""
    own = {**os.environ, VARIABLE: kafka.bootstrap, "TMPDIR": str(tmp_path)}
    return subprocess.Popen(
        [KEYEDWM, "demo", *arguments], env=own, cwd=tmp_path, text=True, start_new_session=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def processes_of(session):
    """Command lines of the processes in a session that still run (a zombie does not)."""
    commands = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, _, its_session = stat.read_text().rpartition(")")[2].split()[:4]
            command = stat.with_name("cmdline").read_text()
        except OSError:  # it ended while we looked
            continue
        if int(its_session) == session and state != "Z":
            commands.append(command)
    return commands


def topics_of(kafka):
    cluster = Cluster.connect(ClientConfig.from_options({"bootstrap.servers": kafka.bootstrap}))
    try:
        return [topic for topic in cluster.topics() if topic.startswith("keyedwm-demo")]
    finally:
        cluster.close()


def beside_progress(complaint):
    """What the command said on stderr; on a slow machine also that it looks up jars, which does not count."""
    return [line for line in complaint.splitlines() if not line.startswith("fetching ")]


def test_two_days_of_flights_keep_the_promise(kafka, tmp_path):
    with start(kafka, tmp_path, "--days", "2", "--steps", "4") as running:
        output, complaint = running.communicate(timeout=LIMIT_S)
    assert (running.returncode, beside_progress(complaint)) == (0, [])
    assert "step 4 of 4: " in output
    assert "the event table equals the input: 1,776 records" in output
    figures = json.loads((tmp_path / "build" / "demo.json").read_text())
    assert figures["broker"] == "given"
    assert [figures[side]["rows_in"] for side in ("native", "keyedwm", "exact")] == [1_773] * 3
    assert figures["keyedwm"]["lost"] <= figures["exact"]["late_behind_own_watermark"]
    assert figures["native"]["lost"] > 10 * figures["keyedwm"]["lost"]
    assert (tmp_path / "build" / "demo.png").stat().st_size > 50_000
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("keyedwm-demo")] == []
    assert topics_of(kafka) == []


def test_ctrl_c_leaves_nothing_behind(kafka, tmp_path):
    with start(kafka, tmp_path, "--days", "1", "--steps", "9") as running:
        while not running.stdout.readline().startswith("step 1"):
            assert running.poll() is None
        os.killpg(running.pid, signal.SIGINT)
        _, complaint = running.communicate(timeout=LIMIT_S)
    assert (running.returncode, beside_progress(complaint)) == (130, [])
    wait_until(lambda: not processes_of(running.pid), "the processes are gone")
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("keyedwm-demo")] == []
    assert topics_of(kafka) == []
