"""A later version continues what an earlier one left, row for row: checkpoints, tables, ledgers, control records.

With KEYEDWM_IN_FLIGHT=1 each query was killed between the publication of its last batch and Spark's own commit.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.compat.files import restore_files
from tests.compat.scenarios import PARTS, SCENARIOS, Place, answer, records

FIXTURES = sorted(path for name in SCENARIOS for path in (Path(__file__).parent / "fixtures").glob(f"*/{name}"))


@pytest.fixture
def conf(spark) -> Iterator[None]:
    from keyedwm.spark import recommended_conf

    before = {name: spark.conf.get(name, None) for name in recommended_conf(cores=2)}
    for name, value in recommended_conf(cores=2).items():
        spark.conf.set(name, value)
    yield
    for name, value in before.items():
        spark.conf.unset(name) if value is None else spark.conf.set(name, value)


@pytest.fixture
def topics(fixture, kafka) -> Iterator[Mapping[str, Any]]:
    """The topics as the version left them; checkpoints name them, so the next version's have the same names."""
    from keyedwm.testing.admin import delete_topic
    from tests.tools import cluster_at, make_topic

    saved = json.loads((fixture / "kafka.json").read_text())
    for topic, partitions in saved["topics"].items():
        make_topic(kafka.bootstrap, topic, partitions)
    yield saved
    for topic in saved["topics"]:
        delete_topic(cluster_at(kafka.bootstrap), topic)


def forget_last_commits(directory: Path) -> None:
    """Remove the newest entry of each of Spark's commit logs: the next run has to do that batch again."""
    logs = list(directory.glob("*.checkpoint/commits"))
    assert logs
    for log in logs:
        max((path for path in log.iterdir() if path.name.isdigit()), key=lambda path: int(path.name)).unlink()


def test_fixtures_are_there():
    assert FIXTURES


@pytest.mark.parametrize("fixture", FIXTURES, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_what_an_earlier_version_left_is_continued_row_for_row(fixture, topics, spark, kafka, conf, tmp_path):
    from tests.compat.logs import rename_ids, restore
    from tests.tools import produce

    scenario = SCENARIOS[fixture.name]
    restore(kafka.bootstrap, topics)
    directory = tmp_path / fixture.name
    restore_files(fixture / "files", directory)
    rename_ids(kafka.bootstrap, topics, directory)
    if os.environ.get("KEYEDWM_IN_FLIGHT"):
        forget_last_commits(directory)
    produce(kafka.bootstrap, next(iter(scenario.topics)), records(PARTS - 1))
    scenario.run(Place(spark, kafka.bootstrap, directory))
    assert answer(scenario, directory) == json.loads((fixture / "expected.json").read_text())
