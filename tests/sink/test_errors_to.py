"""`errorsTo` without Spark: results and rejected messages of one batch, each in its place once, whoever dies."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql.pandas.types import from_arrow_schema

from keyedwm.core.errors import FencedError, InputError, KeyedwmError
from keyedwm.core.watermark import Guarantee
from pyspark_wm_sink.batch.task import Task
from pyspark_wm_sink.delta import publish as publishing
from pyspark_wm_sink.options.sink_options import SinkOptions, SnapshotMode
from pyspark_wm_sink.tables.publish import publish
from pyspark_wm_sink.tables.stage import StagedFiles, stage
from pyspark_wm_sink.writer import batch_writer, stream_writer
from tests.sink import delta_sink
from tests.sink.conftest import records_of
from tests.sink.delta_sink import barrier, files, numbers
from tests.sink.kafka_sink import Died, Sink

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
MESSAGE = pa.struct([
    ("key", pa.binary()), ("value", pa.binary()), ("headers", HEADERS), ("topic", pa.string()),
    ("partition", pa.int32()), ("offset", pa.int64()), ("reason", pa.string()),
])  # fmt: skip


def rows_of(**more: pa.DataType):
    """The columns of a frame, as Spark tells them to the sink."""
    return from_arrow_schema(pa.schema({"n": pa.int64(), "value": pa.string(), **more}))


def message(offset: int) -> dict:
    return {
        "key": b"k", "value": b"raw %d" % offset, "topic": "orders", "partition": 3, "offset": offset,
        "reason": "outside the retention", "headers": None if offset % 2 else [{"key": "own", "value": b"1"}],
    }  # fmt: skip


# Tables


def two_tables(place, tables=delta_sink):
    errors = tables.how(place / "errors", schema=pa.schema(list(MESSAGE)))
    return replace(tables.how(place / "results", SnapshotMode.BARRIER), errors=errors)


def stage_results(
    to, results: list[int], rejected: list[int], batch: int = 0, snapshot: int | None = None
) -> StagedFiles:
    rows = [{"n": n, "rejected": None} for n in results] + [{"n": None, "rejected": message(n)} for n in rejected]
    table = pa.Table.from_pylist(rows, pa.schema([("n", pa.int64()), ("rejected", MESSAGE)]))
    task = Task(query="q", run="r", batch=batch, partition=0, attempt=0)
    staged_files = stage(to.stage, task, table.to_batches(), to.errors.stage)
    return replace(staged_files, control=(barrier(batch if snapshot is None else snapshot),))


def offsets(place) -> list[int]:
    table = DeltaTable(place / "errors").to_pyarrow_table()
    assert set(table.column("reason").to_pylist()) <= {"outside the retention"}
    assert table.column_names == [field.name for field in MESSAGE]
    return sorted(table.column("offset").to_pylist())


def test_results_and_rejected_messages_of_a_batch_go_to_two_tables_and_add_up(tables, tmp_path):
    to = two_tables(tmp_path, tables)
    publish(to, [stage_results(to, [1, 2], [7]), stage_results(to, [3], [])], batch=0)
    publish(to, [stage_results(to, [4], [], 1)], batch=1)
    publish(to, [stage_results(to, [], [8, 9], 2)], batch=2)
    publish(to, [stage_results(to, [], [8, 9], 2)], batch=2)
    assert tables.numbers(tmp_path / "results") == [1, 2, 3, 4]
    error_rows = tables.rows(tmp_path / "errors")
    assert sorted(row["offset"] for row in error_rows) == [7, 8, 9]
    assert set(error_rows[0]) == {field.name for field in MESSAGE}


@pytest.mark.parametrize("dies_in", ["errors", "results"])
@pytest.mark.parametrize("after", [False, True])
def test_a_driver_that_dies_between_the_two_tables_finishes_at_its_next_start(tmp_path, monkeypatch, dies_in, after):
    to = two_tables(tmp_path)
    publish(to, [stage_results(to, [1], [7])], batch=0)
    real = publishing.delta.append

    def append(table, *args, **options):
        dies = table.table_uri.rstrip("/").endswith(dies_in)
        if after or not dies:
            real(table, *args, **options)
        if dies:
            raise Died

    with monkeypatch.context() as dying:
        dying.setattr(publishing.delta, "append", append)
        with pytest.raises(Died):
            publish(to, [stage_results(to, [2], [8, 9], 1)], batch=1)
    rows_and_offsets = numbers(tmp_path / "results"), offsets(tmp_path)
    assert rows_and_offsets in {
        ("errors", False): [([1], [7])], ("errors", True): [([1], [7, 8, 9])],
        ("results", False): [([1], [7, 8, 9])], ("results", True): [([1, 2], [7, 8, 9])],
    }[dies_in, after]  # fmt: skip
    publish(to, [stage_results(to, [2], [8, 9], 1)], batch=1)  # Spark runs the batch again
    publish(to, [stage_results(to, [3], [], 2)], batch=2)
    assert (numbers(tmp_path / "results"), offsets(tmp_path)) == ([1, 2, 3], [7, 8, 9])


def test_a_batch_that_is_refused_leaves_nothing_in_either_table(tmp_path):
    to = two_tables(tmp_path)
    publish(to, [stage_results(to, [1], [7])], batch=0)
    with pytest.raises(InputError, match="snapshot 5 of channels t-0 follows snapshot 0"):
        publish(to, [stage_results(to, [2], [8], 1, snapshot=5)], batch=1)
    assert (numbers(tmp_path / "results"), offsets(tmp_path)) == ([1], [7])
    assert (files(tmp_path / "results"), files(tmp_path / "errors")) == (1, 1)


def test_a_batch_that_comes_again_with_other_rejected_messages_is_refused(tmp_path):
    to = two_tables(tmp_path)
    publish(to, [stage_results(to, [1], [7])], batch=0)
    with pytest.raises(FencedError, match="errors with 1 rows, now it comes with 2"):
        publish(to, [stage_results(to, [1], [7, 8])], batch=0)


def test_the_content_of_rejected_messages_is_compared_when_a_batch_comes_again(tmp_path):
    to = two_tables(tmp_path)
    errors = replace(to.errors, stage=replace(to.errors.stage, compares_content=True))
    to = replace(to, stage=replace(to.stage, compares_content=True), errors=errors)
    publish(to, [stage_results(to, [1], [7, 8])], batch=0)
    publish(to, [stage_results(to, [1], [8]), stage_results(to, [], [7])], batch=0)  # the same rows, spread otherwise
    with pytest.raises(FencedError, match="results with as many rows, but of other content"):
        publish(to, [stage_results(to, [1], [7, 9])], batch=0)
    assert (numbers(tmp_path / "results"), offsets(tmp_path)) == ([1], [7, 8])


def test_abort_removes_what_was_staged_for_both_tables(tmp_path):
    options = {"path": str(tmp_path / "results"), "errorsTo": str(tmp_path / "errors")}
    writer = stream_writer(options, rows_of(rejected=MESSAGE), overwrite=False)
    writer.abort([stage_results(two_tables(tmp_path), [1], [7]), None], 0)
    assert (files(tmp_path / "results"), files(tmp_path / "errors")) == (0, 0)


# Topics


class TwoTopics(Sink):
    """As `Sink`, with a topic for rejected messages."""

    errors: str

    @property
    def how(self):
        usual = super().how
        return replace(
            usual, plan=replace(usual.plan, columns=("key", "value"), errors_to=self.errors, compares_content=True)
        )

    def both(self, batch: int, values: list[str], rejected: list[int]):
        from pyspark_wm_sink.kafka.stage import stage as stage_records

        self.number += 1
        task = Task(query=self.query, run=self.run, batch=batch, partition=0, attempt=0, number=self.number)
        rows = [{"value": value} for value in values] + [{"rejected": message(n)} for n in rejected]
        table = pa.Table.from_pylist(
            rows, pa.schema([("key", pa.string()), ("value", pa.string()), ("rejected", MESSAGE)])
        )
        return stage_records(self.how.plan, task, table.to_batches())


@pytest.fixture
def topics(sink, topic_of) -> TwoTopics:
    two_topics = TwoTopics(sink.bootstrap, sink.topic, sink.ledger, sink.query)
    two_topics.errors = topic_of(1)
    return two_topics


def test_rejected_messages_go_to_the_topic_of_errors_as_they_came_and_say_why_and_whence(topics, committed):
    report = topics.both(0, ["a", "b"], [7, 8])
    assert committed(topics.errors, only_committed=False) == []
    topics.publish(0, report)
    assert committed(topics.topic) == ["a", "b"]
    (odd, even) = records_of(topics.bootstrap, topics.errors)
    reason_headers = [("keyedwm.reason", b"outside the retention"), ("keyedwm.channel", b"orders-3")]
    assert odd[1:3] == (b"k", b"raw 7")
    assert [(one["key"], one["value"]) for one in odd[3]] == [*reason_headers, ("keyedwm.offset", b"7")]
    assert even[1:3] == (b"k", b"raw 8")
    assert [(one["key"], one["value"]) for one in even[3]] == [("own", b"1"), *reason_headers, ("keyedwm.offset", b"8")]


@pytest.mark.parametrize(("step", "visible_values"), [("decide", []), ("mark_published", ["a"])])
def test_results_and_errors_of_a_batch_stand_or_fall_together(
    topics, committed, monkeypatch, dies_at, step, visible_values
):
    with monkeypatch.context():
        dies_at(step)
        with pytest.raises(Died):
            topics.publish(0, topics.both(0, ["a"], [7]))
        monkeypatch.undo()
    topics.restart()
    is_visible = bool(visible_values)
    assert committed(topics.topic, only_committed=is_visible) == visible_values
    assert len(committed(topics.errors, only_committed=is_visible)) == len(visible_values)
    topics.publish(0, topics.both(0, ["a"], [7]))  # Spark runs the batch again
    topics.publish(1, topics.both(1, ["b"], [8]))
    assert (committed(topics.topic), committed(topics.errors)) == (["a", "b"], ["raw 7", "raw 8"])
    assert topics.open() == 0


def test_topics_compare_the_content_of_rejected_messages_too(topics, committed):
    topics.publish(0, topics.both(0, ["a"], [7]))
    with pytest.raises(FencedError, match="with as many rows, but of other content"):
        topics.publish(0, topics.both(0, ["a"], [8]))
    assert (committed(topics.topic), committed(topics.errors)) == (["a"], ["raw 7"])


def test_at_least_once_both_topics_are_written_without_transactions(topics, committed):
    topics.guarantee = Guarantee.AT_LEAST_ONCE
    topics.ledger = None
    report = topics.both(0, ["a"], [7])
    assert report.transaction is None
    assert (committed(topics.topic), committed(topics.errors)) == (["a"], ["raw 7"])


# Refusals

NO_TOPIC = pa.struct([("value", pa.string()), ("reason", pa.string())])
NUMBER = pa.struct([pa.field("value", pa.int64()) if field.name == "value" else field for field in MESSAGE])
TO_KAFKA = {"kafka.bootstrap.servers": "nowhere:1", "topic": "results", "errorsTo": "errors"}


def test_options_that_name_one_place_twice_or_none_are_refused(tmp_path):
    there = str(tmp_path / "there")
    with pytest.raises(KeyedwmError, match="that is the table of the results, another one is expected"):
        SinkOptions.parse({"path": there, "errorsTo": there + "/"})
    for here, other in ((there, f"{there}/errors"), (f"{there}/results", there)):
        with pytest.raises(KeyedwmError, match="whose VACUUM would delete its files: a place beside it"):
            SinkOptions.parse({"path": here, "errorsTo": other})
    SinkOptions.parse({"path": there, "errorsTo": f"{there}-errors"})
    with pytest.raises(KeyedwmError, match="that is the topic of the results, another one is expected"):
        SinkOptions.parse({**TO_KAFKA, "errorsTo": "results"})
    with pytest.raises(KeyedwmError, match="option errorsTo: '' is wrong"):
        SinkOptions.parse({**TO_KAFKA, "errorsTo": ""})
    with pytest.raises(KeyedwmError, match="option errorsTo is missing: the directory or address"):
        SinkOptions.parse({"path": there, "errorsTo": " "})


REJECTED_ROWS = {
    "errorsTo: the rows have no column rejected": ({}, False),
    "column rejected has type string, the rows of a table": ({"rejected": pa.string()}, False),
    "output mode complete replaces": ({"rejected": MESSAGE}, True),
}


@pytest.mark.parametrize("sentence", REJECTED_ROWS)
def test_rows_that_a_table_of_errors_cannot_take_are_refused(sentence, tmp_path):
    columns, overwrite = REJECTED_ROWS[sentence]
    options = {"path": str(tmp_path / "results"), "errorsTo": str(tmp_path / "errors")}
    with pytest.raises(KeyedwmError, match=sentence):
        stream_writer(options, rows_of(**columns), overwrite=overwrite)


@pytest.mark.parametrize(
    ("columns", "sentence"),
    [
        ({}, "the rows have no column rejected"),
        ({"rejected": NO_TOPIC}, "in column rejected have no topic: keep"),
        ({"rejected": pa.int64()}, "in column rejected have no value: keep"),
        ({"rejected": NUMBER}, "value of the messages in column rejected has type bigint"),
    ],
)
def test_messages_that_no_record_can_be_made_of_are_refused(columns, sentence):
    with pytest.raises(KeyedwmError, match=sentence):
        stream_writer(TO_KAFKA, rows_of(**columns), overwrite=False)


def test_a_batch_write_has_no_errors_of_its_own(tmp_path):
    with pytest.raises(KeyedwmError, match="errorsTo is for streams; of a batch write take rejected"):
        batch_writer(
            {"path": str(tmp_path / "t"), "errorsTo": str(tmp_path / "e")}, rows_of(rejected=MESSAGE), overwrite=False
        )
