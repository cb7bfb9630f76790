"""The docs are run: every Python block of a page, in order, against a real Kafka and a real Spark."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from keyedwm.kafka.admin import create_topic
from keyedwm.kafka.cluster import Cluster
from keyedwm.kafka.config import ClientConfig
from keyedwm.testing.broker import Broker

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!https?:)([^)#]+)")
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_code_of_a_page_runs(page: Path, kafka: Broker, spark: SparkSession, topic: str, tmp_path: Path) -> None:
    blocks = BLOCK.findall(page.read_text())
    if not blocks:
        assert "```python" not in page.read_text()
        return
    cluster = Cluster.connect(ClientConfig.from_options({"bootstrap.servers": kafka.bootstrap}))
    topics = {"orders": topic, "refunds": f"{topic}-refunds"}
    for name in topics.values():
        create_topic(cluster, name, 2)
    cluster.close()
    names = {"spark": spark}
    for block in blocks:
        code = block.replace("localhost:9092", kafka.bootstrap).replace('"/data/', f'"{tmp_path}/')
        for shown, name in topics.items():
            code = code.replace(f'"{shown}"', f'"{name}"')
        exec(compile(code, str(page), "exec"), names)  # noqa: S102 - our own docs
        for query in spark.streams.active:
            query.processAllAvailable()
            query.stop()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for link in LINK.findall(page.read_text()):
        assert (page.parent / link).exists(), f"{page.name} links to {link}"
