"""Real queries whose checkpoint was lost or put back: each record is there once, whatever columns the frame has."""

from __future__ import annotations

import json
import re
import shutil

import pytest
from deltalake import DeltaTable
from pyspark.errors import StreamingQueryException

from tests.tools import Record, produce

TARGETS = ("delta", "delta without control rows", "kafka")
COLUMNS = ("key", "value", "event_time", "watermark", "control")


@pytest.fixture(params=TARGETS)
def query(request, spark, kafka, topic_of, committed, tmp_path):
    """What sends records, runs the query with a checkpoint from some offsets, and reads what it has published."""
    topic, target = topic_of(2), topic_of(1)
    table = str(tmp_path / "table")
    to = {"kafka.bootstrap.servers": kafka.bootstrap, "topic": target} if request.param == "kafka" else {"path": table}
    is_plain = request.param == "delta without control rows"
    columns, condition = (COLUMNS[:-1], "control IS NULL") if is_plain else (COLUMNS, "true")

    class Query:
        def send(self, *texts: str) -> None:
            produce(kafka.bootstrap, topic, [Record(len(text) % 2, 1_000, text.encode()) for text in texts])

        def run(self, checkpoint: str, starting: str = "earliest") -> None:
            source = {"kafka.bootstrap.servers": kafka.bootstrap, "subscribe": topic, "startingOffsets": starting}
            rows = spark.readStream.format("keyedwm").options(**source).load().where(condition).select(*columns)
            writer = rows.writeStream.format("keyedwm").options(**to, checkpointLocation=str(tmp_path / checkpoint))
            writer.trigger(availableNow=True).start().awaitTermination()

        def published(self) -> list[str]:
            if "topic" in to:
                return sorted(committed(target))
            return sorted(value.decode() for value in DeltaTable(table).to_pyarrow_table().column("value").to_pylist())

    return Query()


def offered_offsets(error: StreamingQueryException) -> str:
    (offsets_json,) = set(re.findall(r"startingOffsets=(\{.*?\}\})", str(error)))
    assert json.loads(offsets_json)
    return offsets_json


def test_a_lost_checkpoint_doubles_nothing_and_the_error_says_where_to_begin(query, tmp_path):
    query.send("a", "bb", "ccc")
    query.run("first")
    shutil.rmtree(tmp_path / "first")
    query.send("dddd", "eeeee")
    with pytest.raises(StreamingQueryException, match=r"was the checkpoint lost\?") as error:
        query.run("first")
    assert query.published() == ["a", "bb", "ccc"]
    query.run("second", offered_offsets(error.value))
    assert query.published() == ["a", "bb", "ccc", "dddd", "eeeee"]


@pytest.mark.parametrize("query", ["kafka"], indirect=True)
def test_an_older_copy_of_a_checkpoint_doubles_nothing_and_the_error_says_where_to_begin(query, tmp_path):
    query.send("a", "bb")
    query.run("checkpoint")
    shutil.copytree(tmp_path / "checkpoint", tmp_path / "older")
    query.send("ccc")
    query.run("checkpoint")
    query.send("dddd", "eeeee")
    with pytest.raises(StreamingQueryException, match="an older copy of the checkpoint") as error:
        query.run("older")
    assert query.published() == ["a", "bb", "ccc"]
    query.run("new", offered_offsets(error.value))
    assert query.published() == ["a", "bb", "ccc", "dddd", "eeeee"]
