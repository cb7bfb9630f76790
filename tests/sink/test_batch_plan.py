"""The plan of a batch, read from Spark's offset log as the source wrote it there."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from keyedwm.core.axis import Counts
from keyedwm.core.coalescer import CommonState
from keyedwm.core.errors import FormatError, UnavailableError
from keyedwm.core.watermark import Status
from keyedwm.kafka.client.values import TopicPartition
from pyspark_wm_sink.batch.batch_plan import BatchPlan, SourceRange, read_plan
from pyspark_wm_sink.batch.record import Reads, Record
from pyspark_wm_source.values.offsets import NOT_STARTED, Channel, QueryOffset
from tests.sink.test_record_formats import FEW, MANY

BEFORE = QueryOffset(
    batch=NOT_STARTED, group="g", state_key="00", now_ms=0, coalesced=CommonState(),
    begins={TopicPartition("a-b", 0): 3},
)  # fmt: skip
PLANNED = replace(
    BEFORE,
    batch=7,
    begins={},
    channels={
        TopicPartition("a-b", number): Channel(
            next_offset=12, read=read, status=Status.ACTIVE, since_ms=0, counts=Counts(future=number), axes={}
        )
        for number, read in enumerate((0, 5))
    },
)


@pytest.fixture
def checkpoint(tmp_path):
    def write(*lines: str, query: str = "q", batch: int = 7):
        (tmp_path / "offsets").mkdir()
        (tmp_path / "metadata").write_text(json.dumps({"id": query}))
        (tmp_path / "offsets" / str(batch)).write_text("\n".join(["v1", "{}", *lines]))
        return str(tmp_path)

    return write


def test_a_batch_begins_and_ends_where_its_sources_planned_it(checkpoint):
    place = checkpoint(json.dumps(PLANNED.to_json()), json.dumps(BEFORE.to_json()), '{"a-b":{"0":9}}', "4", "-")
    of_first = SourceRange(begins={"a-b-0": 12, "a-b-1": 7}, ends={"a-b-0": 12, "a-b-1": 12})
    of_second = SourceRange(begins={"a-b-0": 3}, ends={"a-b-0": 3})
    assert read_plan(place, "q", 7) == BatchPlan(sources=(of_first, of_second, None, None, None))
    assert read_plan(place, "q", 7).begins == {"a-b-0": 3, "a-b-1": 7}


def test_state_of_operators_is_seen(checkpoint, tmp_path):
    place = checkpoint(json.dumps(PLANNED.to_json()))
    assert not read_plan(place, "q", 7).is_stateful
    (tmp_path / "state" / "0").mkdir(parents=True)
    assert read_plan(place, "q", 7).is_stateful


@pytest.mark.parametrize(
    ("sentence", "query", "batch", "lines"),
    [
        ("is that of another query", "other", 7, [json.dumps(PLANNED.to_json())]),
        ("cannot be read from the checkpoint", "q", 7, ['{"state_key":"00"}']),
        ("cannot be read from the checkpoint", "q", 7, ['{"state_key":']),
        (None, "q", 8, [json.dumps(PLANNED.to_json())]),
    ],
)
def test_what_cannot_be_read_is_unknown_and_said(sentence, query, batch, lines, checkpoint, caplog):
    assert read_plan(checkpoint(*lines), query, batch) is None
    assert sentence in caplog.text if sentence else not caplog.records


def test_without_a_checkpoint_the_plan_is_unknown(tmp_path):
    assert read_plan(None, "q", 7) is None
    assert read_plan(str(tmp_path / "nowhere"), "q", 7) is None


def test_a_store_that_refuses_is_asked_once_in_a_process(monkeypatch, caplog):
    def reject_read(_self, name):
        read_names.append(name)
        raise UnavailableError("no login")

    read_names = []
    monkeypatch.setattr("keyedwm.savepoint_files.Files.read", reject_read)
    monkeypatch.setattr("pyspark_wm_sink.batch.batch_plan._unreachable", set())
    for batch in range(3):
        assert read_plan("s3://bucket/checkpoint", "q", batch) is None
    assert read_names == ["metadata"]
    assert len(caplog.records) == 1


def test_a_later_version_of_what_a_record_keeps_is_refused():
    value = json.loads(replace(FEW, reads=Reads(sources=())).to_json())
    with pytest.raises(FormatError, match="has reads of format version 2, this keyedwm reads version 1"):
        Record.from_json(json.dumps({**value, "reads": {"version": 2, "sources": []}}))


@pytest.mark.parametrize("record", [FEW, MANY], ids=["plain", "packed"])
@pytest.mark.parametrize("sources", [None, (), ({"a-b-0": 3}, None)])
def test_a_record_keeps_how_far_was_read_and_earlier_versions_pass_over_it(record, sources):
    with_reads = replace(record, reads=Reads(sources=sources))
    assert Record.from_json(with_reads.to_json()) == with_reads
    value = json.loads(with_reads.to_json())
    assert value["version"] == json.loads(record.to_json())["version"]
    assert Record.from_json(json.dumps({name: value[name] for name in value if name != "reads"})) == record
