"""The present code reads every durable piece in the fixtures, without Kafka and without Spark."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from keyedwm.core.encoding import decode_committed
from keyedwm.kafka.client.values import TopicPartition
from keyedwm.kafka.requests.groups import Committed
from pyspark_wm_sink.batch.record import METADATA_KEY, Record
from pyspark_wm_sink.kafka.ledger import Ledger
from pyspark_wm_sink.kafka.marker import Marker
from pyspark_wm_sink.places.notes import Claim
from pyspark_wm_source.values.offsets import QueryOffset, state_place

FIXTURES = sorted(path.parent for path in (Path(__file__).parent / "fixtures").glob("*/*/kafka.json"))
LEDGERS = sorted((Path(__file__).parent / "fixtures").glob("*/*/files/*.checkpoint/keyedwm"))
each_fixture = pytest.mark.parametrize("fixture", FIXTURES, ids=lambda path: f"{path.parent.name}-{path.name}")


def kafka_of(fixture: Path) -> dict[str, Any]:
    return json.loads((fixture / "kafka.json").read_text())


def offsets_of(fixture: Path) -> Iterator[dict[str, Any]]:
    """The offsets in the checkpoints, oldest first: Spark writes a version, its settings, and a line per source."""
    for path in sorted(fixture.glob("files/*.checkpoint/offsets/*"), key=lambda path: (path.parts[-3], int(path.name))):
        yield from (offset for line in path.read_text().splitlines()[2:] if "channels" in (offset := json.loads(line)))


@each_fixture
def test_every_offset_is_read(fixture):
    offsets = list(offsets_of(fixture))
    assert offsets
    for offset in offsets:
        read = QueryOffset.from_json(offset)
        assert read.batch == offset["batch"]
        assert {tp.topic for tp in read.channels} == set(offset["offsets"])


@each_fixture
def test_every_committed_state_is_read(fixture):
    last = {offset["group"]: QueryOffset.from_json(offset) for offset in offsets_of(fixture)}
    positions = kafka_of(fixture)["groups"]
    assert set(last) <= set(positions)
    for group, offset in last.items():
        for name, (next_offset, metadata) in positions[group].items():
            topic, _, partition = name.rpartition("-")
            place = state_place(group, TopicPartition(topic, int(partition)), next_offset, offset.settings)
            assert decode_committed(metadata, bytes.fromhex(offset.state_key), place).axes


@each_fixture
def test_every_record_of_a_table_is_read(fixture):
    commits = [
        json.loads(line) for path in fixture.glob("files/*/_delta_log/*.json") for line in path.read_text().splitlines()
    ]
    records = [one["commitInfo"][METADATA_KEY] for one in commits if METADATA_KEY in one.get("commitInfo", ())]
    assert len(records) >= 2
    assert all(Record.from_json(text).query for text in records)


@dataclass
class SavedGroups:
    """Answers for the committed offsets in a fixture, as a cluster does."""

    groups: dict[str, dict[str, list]]

    def fetch_offsets(self, group: str, partitions: Iterable[TopicPartition] | None) -> dict[TopicPartition, Committed]:
        commits = {}
        for name, committed in self.groups[group].items():
            topic, _, number = name.rpartition("-")
            where = TopicPartition(topic, int(number))
            if partitions is None or where in set(partitions):
                commits[where] = Committed(*committed)
        return commits


def test_a_ledger_is_there():
    assert LEDGERS


@pytest.mark.parametrize("ledger", LEDGERS, ids=lambda path: f"{path.parts[-5]}-{path.parts[-4]}")
def test_a_ledger_its_epoch_and_its_marker_are_read(ledger, tmp_path):
    shutil.copytree(ledger, tmp_path / "ledger")
    saved, ledger_copy = kafka_of(ledger.parents[2]), Ledger(tmp_path / "ledger")
    history, newest = ledger_copy.run_history(), ledger_copy.newest()
    marker = Marker.of(history.query, ledger_copy)
    assert newest.published
    for topic in (None, list(saved["topics"])[-1]):
        assert marker.read(SavedGroups(saved["groups"]), topic).batch == newest.batch
    assert (
        ledger_copy.epoch() == len(json.loads(json.loads((ledger / "epoch.json").read_text())["body"])["owners"]) == 1
    )
    assert ledger_copy.take_epoch("another driver") == Claim(owner="another driver", epoch=2, is_new=True)
