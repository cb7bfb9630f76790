"""What a task stages for a Delta table: files, their statistics, messages that survive pickling."""

from __future__ import annotations

import json
import math
import pickle
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from keyedwm.core.errors import FencedError, InputError, RegressionError, UnavailableError
from pyspark_wm_sink.batch.task import Task
from pyspark_wm_sink.tables.publish import publish
from pyspark_wm_sink.tables.stage import stage
from pyspark_wm_sink.writer import stream_writer
from tests.sink.delta_sink import SPARK_COLUMNS, barrier, files, how, stage_rows

FLOATS = (0.0, 1.0, float("nan"), float("inf"))


def test_rows_that_cannot_be_staged_leave_no_file(tmp_path):
    to = how(tmp_path)
    task = Task(query="q", run="r", batch=0, partition=0, attempt=0)

    def broken():
        yield pa.record_batch({"n": pa.array(range(1 << 20), pa.int64())})
        raise OSError("worker lost")

    with pytest.raises(UnavailableError, match="worker lost"):
        stage(to.stage, task, broken())
    assert files(tmp_path) == 0


def test_abort_removes_files_only_while_no_commit_can_be_on_its_way(tmp_path):
    writer = stream_writer({"path": str(tmp_path)}, SPARK_COLUMNS, overwrite=False)
    to = how(tmp_path)
    aborted_files, kept_files = stage_rows(to, [1]), stage_rows(to, [2])
    writer.abort([aborted_files, None], 0)
    assert files(tmp_path) == 1
    writer.abort([kept_files], 0)
    assert files(tmp_path) == 1


def test_no_rows_make_no_file(tmp_path):
    assert stage_rows(how(tmp_path), []).files == ()
    assert files(tmp_path) == 0


def again(value):
    return pickle.loads(pickle.dumps(value))  # noqa: S301 - what Spark does with them


def test_writer_messages_and_errors_survive_pickling(tmp_path):
    options = {"path": str(tmp_path), "storage.secret": "s3cr3t"}
    writer = stream_writer(options, SPARK_COLUMNS, overwrite=False)
    message = stage_rows(how(tmp_path), [1], control=(barrier(0),))
    assert again(writer)._how == writer._how
    assert again(message) == message
    assert "s3cr3t" not in repr(writer._how)
    for kind in (FencedError, InputError, RegressionError, UnavailableError):
        assert str(again(kind("why"))) == str(kind("why"))


def test_statistics_never_hide_a_row(tmp_path):
    """Filters on each column through Delta's file pruning find every row that a full scan finds."""
    schema = pa.schema(
        [
            ("n", pa.int64()),
            ("t", pa.timestamp("us", "UTC")),
            ("s", pa.string()),
            ("f", pa.float64()),
            ("d", pa.date32()),
        ]
    )
    to = how(tmp_path, schema=schema)
    task = Task(query="q", run="r", batch=0, partition=0, attempt=0)
    messages = []
    for n in range(4):
        batch = pa.record_batch(
            [
                pa.array([n, None]), pa.array([1_000_001 + n, -1 - n], pa.int64()).view(schema.field("t").type),
                pa.array(["x" * (20 * n), None]), pa.array([FLOATS[n], -n], pa.float64()),
                pa.array([n, -n], pa.int32()).view(pa.date32()),
            ],
            schema=schema,
        )  # fmt: skip
        messages.append(stage(to.stage, task, [batch]))
    publish(to, messages, batch=0)
    dataset = DeltaTable(tmp_path).to_pyarrow_dataset()
    everything = dataset.to_table()
    assert everything.num_rows == 8
    for name in schema.names:
        for value in everything.column(name).drop_null():
            expected_count = pc.sum(pc.equal(everything.column(name), value)).as_py()
            assert dataset.to_table(filter=pc.field(name) == value).num_rows == expected_count


def test_neither_log_nor_file_says_a_bound_beside_which_not_a_number_lies(tmp_path):
    """Spark takes NaN for the largest number, so a file of 1 and NaN must not say that 1 is the largest."""
    nested = pa.struct([("x", pa.float32()), ("n", pa.int64())])
    schema = pa.schema([("n", pa.int64()), ("x", pa.float64()), ("of", nested)])
    to = how(tmp_path, schema=schema)

    def write_values(*values: float | None) -> tuple[dict, pq.RowGroupMetaData]:
        rows = [{"n": 1, "x": value, "of": {"x": value, "n": 1}} for value in values]
        task = Task(query="q", run="r", batch=0, partition=0, attempt=0)
        (file,) = stage(to.stage, task, [pa.RecordBatch.from_pylist(rows, schema)]).files
        return json.loads(file.stats), pq.read_metadata(tmp_path / file.name).row_group(0)

    with_nan, group = write_values(1.0, math.nan)
    assert "maxValues" not in with_nan
    has_statistics = {group.column(i).path_in_schema: group.column(i).is_stats_set for i in range(group.num_columns)}
    assert has_statistics == {"n": True, "x": False, "of.x": False, "of.n": True}
    plain, _ = write_values(2.0, None, -0.5)
    assert plain["nullCount"] == {"n": 0, "x": 1}
    assert (plain["minValues"]["x"], plain["maxValues"]["x"]) == (-0.5, 2.0)
    assert write_values(None)[0]["maxValues"] == {"n": 1, "of": {}}
    assert "maxValues" not in write_values(math.inf)[0]


def test_bytes_that_are_no_text_in_a_column_of_text_stop_no_query(tmp_path):
    """Spark's cast of a record's value to a string checks nothing, and other readers refuse a file with such bytes."""
    schema = pa.schema([("n", pa.int64()), ("s", pa.string())])
    raw = pa.array([b"a", b"\xff", b"z"])
    batch = pa.record_batch([pa.array([1, 2, 3]), pa.Array.from_buffers(pa.string(), 3, raw.buffers())], schema=schema)
    to = how(tmp_path, schema=schema)
    task = Task(query="q", run="r", batch=0, partition=0, attempt=0)
    publish(to, [stage(to.stage, task, [batch])], batch=0)
    rows = DeltaTable(tmp_path).to_pyarrow_table().sort_by("n")
    assert rows.column("s").to_pylist() == ["a", "\ufffd", "z"]
    files = stage(replace(to.stage, partition_by=("s",)), task, [batch]).files
    assert sorted(file.partition["s"] for file in files) == ["a", "z", "\ufffd"]


@pytest.mark.parametrize("kind", [pa.date32(), pa.timestamp("us", "UTC"), pa.timestamp("us")], ids=str)
def test_a_time_that_python_cannot_hold_is_written_and_named_where_it_would_partition_the_table(kind, tmp_path):
    far = [106_751_991] if pa.types.is_date(kind) else [2**63 - 1]
    times = pa.array(far, pa.int32() if pa.types.is_date(kind) else pa.int64()).cast(kind)
    batch = pa.record_batch([times, pa.array([1])], names=["at", "n"])
    to, task = how(tmp_path, schema=batch.schema), Task(query="q", run="r", batch=0, partition=0, attempt=0)
    publish(to, [stage(to.stage, task, [batch])], batch=0)
    (file_path,) = DeltaTable(tmp_path).file_uris()
    assert pq.read_table(file_path).column("at").chunk(0).equals(times)
    with pytest.raises(InputError, match="column at, which partitions the table, holds a time beyond the years 1 to"):
        stage(replace(to.stage, partition_by=("at",)), task, [batch])


def test_bounds_are_wide_outwards_or_there_are_none(tmp_path):
    schema = pa.schema([("t", pa.timestamp("us", "UTC")), ("s", pa.string())])
    to = how(tmp_path, schema=schema)
    task = Task(query="q", run="r", batch=0, partition=0, attempt=0)

    def stats(us: list[int | None], text: str) -> dict:
        columns = [pa.array(us, pa.int64()).view(schema.field("t").type), pa.array([text] * len(us))]
        message = stage(to.stage, task, [pa.record_batch(columns, schema=schema)])
        return json.loads(message.files[0].stats)

    plain = stats([1_500, -1_500], "é")
    assert plain["minValues"] == {"t": "1969-12-31T23:59:59.998Z", "s": "é"}
    assert plain["maxValues"] == {"t": "1970-01-01T00:00:00.002Z", "s": "é"}
    long = stats([None], "x" * 31 + "\U0010ffff" * 9)
    assert long["maxValues"] == {"s": "x" * 31 + "\U0010ffff" * 9}  # which is whole
    assert stats([None], "x" * 33)["maxValues"] == {"s": "x" * 32 + "\U0010ffff"}
    assert stats([None], "x" * 31 + "\U0010ffff" * 4 + "x" * 9)["maxValues"] == {"s": "x" * 31 + "\U0010ffff" * 5}
    assert long["nullCount"] == {"t": 1, "s": 0}
    assert "minValues" not in stats([9 * 10**17], "beyond the year 9999")
    assert "minValues" not in stats([0], "\U0010ffff" * 65)
