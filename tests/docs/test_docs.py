"""The docs are run: every Python block of a page and `$ keyedwm ...`, in order, with a real Kafka and a real Spark.

What stands in a `text` block behind a Python block is what the block prints.
"""

from __future__ import annotations

import contextlib
import io
import re
import shlex
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from keyedwm.cli.main import main as command
from keyedwm.kafka.client.config import ClientConfig
from keyedwm.kafka.requests.cluster import Cluster
from keyedwm.testing.admin import create_topic
from keyedwm.testing.broker import Broker

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```python\n(.*?)^```(?:\n+```text\n(.*?)^```)?|^    \$ keyedwm (.*?)$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!https?:)([^)#]+)")
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
# Pages create them.
TOPICS_OF_PAGES = (
    "site-visits", "page-visits", "placed", "shipments", "clean", "upper-case", "accepted", "dead-letters",
    "avro-orders",
)  # fmt: skip


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_code_of_a_page_runs(
    page: Path,
    kafka: Broker,
    spark: SparkSession,
    topic: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    monkeypatch.setenv("KAFKA_JAAS", "no page logs in")
    blocks = BLOCK.findall(page.read_text())
    if not blocks:
        assert "```python" not in page.read_text()
        return
    cluster = Cluster.connect(ClientConfig.from_options({"bootstrap.servers": kafka.bootstrap}))
    topics = {"orders": topic, "refunds": f"{topic}-refunds"}
    for name in topics.values():
        create_topic(cluster, name, 2)
    cluster.close()
    topics |= {name: f"{topic}-{name}" for name in TOPICS_OF_PAGES}
    names = {"spark": spark}
    database = request.getfixturevalue("postgres").address if "import psycopg" in page.read_text() else ""
    registry = request.getfixturevalue("schema_registry") if "localhost:8081" in page.read_text() else ""
    store = request.getfixturevalue("store_of_keys") if "localhost:8123" in page.read_text() else ""
    for block, printed, command_line in blocks:
        if command_line:
            assert command(shlex.split(command_line.replace("/data/", f"{tmp_path}/"))) == 0
            continue
        code = (
            block.replace("localhost:9092", kafka.bootstrap)
            .replace("0.0.0.0:9464", "127.0.0.1:0")
            .replace("postgresql://localhost/shop", database)
            .replace("http://localhost:8081/apis/ccompat/v7", registry)
            .replace("http://localhost:8081", registry)
            .replace("http://localhost:8123", store)
            .replace("http://localhost:9200", store)
            .replace('"/data/', f'"{tmp_path}/')
        )
        code = code.replace("awaitAnyTermination()", "awaitAnyTermination(timeout=1)")  # the test stops the queries
        for topic_of_page, name in topics.items():
            code = code.replace(f'"{topic_of_page}"', f'"{name}"')
        with contextlib.redirect_stdout(io.StringIO()) as out:
            exec(compile(code, str(page), "exec"), names)  # noqa: S102 - our own docs
        assert not printed or out.getvalue() == printed
        for query in spark.streams.active:
            query.processAllAvailable()
            query.stop()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for link in LINK.findall(page.read_text()):
        assert (page.parent / link).exists(), f"{page.name} links to {link}"
