"""A real Prometheus server scrapes a running query, and its alert fires when one partition holds the watermark."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from keyedwm.spark import metrics
from tests.metrics.test_monitoring import RULES
from tests.tools import Record, produce, wait_until

if TYPE_CHECKING:
    from keyedwm.spark.api.metrics import Metrics

PROMETHEUS = shutil.which("prometheus")
# The rule's own times are minutes; everything else of it is as it is shipped.
SHORTER = {"> 300": "> 5", "[5m]": "[1m]", "for: 1m": "for: 1s"}

pytestmark = pytest.mark.skipif(PROMETHEUS is None, reason="Prometheus is not installed (apt-get install prometheus)")


class Server:
    """A Prometheus server. port: where it answers."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"

    def get(self, path: str, **query: str) -> Any:
        try:
            asked = f"{self.url}{path}?{urllib.parse.urlencode(query)}"
            with urllib.request.urlopen(asked, timeout=5) as answer:  # noqa: S310 - a server of this machine
                return json.loads(answer.read())["data"]
        except (urllib.error.URLError, ConnectionError):
            return None

    def value(self, expression: str) -> float | None:
        """The value of an expression with one result; None while there is none."""
        found = self.get("/api/v1/query", query=expression)
        return float(found["result"][0]["value"][1]) if found and found["result"] else None

    def firing(self) -> list[dict[str, Any]]:
        found = self.get("/api/v1/alerts")
        return [one for one in found["alerts"] if one["state"] == "firing"] if found else []


@pytest.fixture
def exported(spark) -> Iterator[Metrics]:
    running = metrics(spark, address="127.0.0.1:0")
    yield running
    running.stop()


@pytest.fixture
def server(exported: Metrics, tmp_path: Path) -> Iterator[Server]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    rules = RULES.read_text()
    for long, short in SHORTER.items():
        assert long in rules
        rules = rules.replace(long, short)
    (tmp_path / "rules.yml").write_text(rules)
    config = {
        "global": {"scrape_interval": "3s", "evaluation_interval": "1s"},
        "rule_files": ["rules.yml"],
        "scrape_configs": [{"job_name": "keyedwm", "static_configs": [{"targets": [exported.place]}]}],
    }
    (tmp_path / "prometheus.yml").write_text(json.dumps(config))  # YAML reads JSON
    with (tmp_path / "prometheus.log").open("w") as log:
        process = subprocess.Popen(
            [str(PROMETHEUS), f"--config.file={tmp_path / 'prometheus.yml'}", f"--storage.tsdb.path={tmp_path / 'db'}",
             f"--web.listen-address=127.0.0.1:{port}"],
            stdout=log, stderr=log,
        )  # fmt: skip
    try:
        found = Server(port)
        wait_until(lambda: found.value("up") == 1, "Prometheus' first scrape")
        yield found
    finally:
        process.terminate()
        process.wait(30)


def test_the_alert_fires_when_a_partition_is_held_back(server, kafka, topic_of, load, tmp_path):
    topic = topic_of(2)
    produce(kafka.bootstrap, topic, [Record(0, 1_000_000), Record(1, 1_000_000)])
    query = (
        load(topic, idleTimeout="none").writeStream.format("keyedwm").option("path", str(tmp_path / "table"))
        .option("checkpointLocation", str(tmp_path / "checkpoint")).queryName("held").start()
    )  # fmt: skip
    moved = 0

    def goes_on() -> None:
        """Partition 0 gets another record, partition 1 none."""
        nonlocal moved
        moved += 1
        produce(kafka.bootstrap, topic, [Record(0, 1_000_000 + 1_000 * moved)])
        query.processAllAvailable()

    def fires() -> list[dict[str, Any]]:
        goes_on()
        return [one for one in server.firing() if one["labels"]["alertname"] == "KeyedwmWatermarkStuck"]

    try:
        query.processAllAvailable()
        (alert, *others) = wait_until(fires, "the alert")
        assert server.value('keyedwm_watermark_timestamp_seconds{query="held"}') == 1_000
        assert server.value('keyedwm_watermark_holders{query="held"}') == 1
        assert server.value('keyedwm_partition_watermark_delay_seconds{partition="1"} - '
                            'on (query) keyedwm_watermark_delay_seconds') == 0  # fmt: skip
        # Partition 1 goes on, and the alert ends.
        produce(kafka.bootstrap, topic, [Record(1, 1_000_000 + 1_000 * moved)])
        query.processAllAvailable()
        goes_on()
        moves = f'keyedwm_watermark_timestamp_seconds{{query="held"}} > {1_000 + moved / 2}'
        wait_until(lambda: server.value(moves), "a watermark that moves")
    finally:
        query.stop()
    assert not others
    assert alert["labels"] == {
        "alertname": "KeyedwmWatermarkStuck", "instance": server_target(server), "job": "keyedwm", "key": "0",
        "query": "held", "severity": "warning", "source": "0",
    }  # fmt: skip
    wait_until(lambda: server.value('keyedwm_query_active{query="held"}') == 0, "the end of the query")
    wait_until(lambda: not server.firing(), "the end of the alert")


def server_target(server: Server) -> str:
    (target,) = server.get("/api/v1/targets")["activeTargets"]
    return target["labels"]["instance"]
