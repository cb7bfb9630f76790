"""Stage and publish without Spark, on real Delta tables: crashes, races, doubts."""

from __future__ import annotations

import json
import pickle
import resource
import threading
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql.types import LongType, StructType

from keyedwm.arrow.rows import ControlRow
from keyedwm.core.errors import FencedError, FormatError, InputError, RegressionError, UnavailableError
from keyedwm.core.rows import Kind
from keyedwm.core.watermark import Guarantee
from pyspark_wm_sink import publish as publish_module
from pyspark_wm_sink.options import SnapshotMode
from pyspark_wm_sink.publish import Publication, publish
from pyspark_wm_sink.record import Record
from pyspark_wm_sink.stage import Staged, StagePlan, stage
from pyspark_wm_sink.task import Task
from pyspark_wm_sink.writer import stream_writer

COLUMNS = pa.schema([("n", pa.int64())])
FLOATS = (0.0, 1.0, float("nan"), float("inf"))
SPARK_COLUMNS = StructType().add("n", LongType())


def how(table: Path, mode: SnapshotMode = SnapshotMode.BATCH, schema: pa.Schema = COLUMNS) -> Publication:
    plan = StagePlan(path=str(table), storage={}, schema=schema, has_control=False, inline=False, has_offsets=False)
    return Publication(stage=plan, mode=mode, guarantee=Guarantee.EXACTLY_ONCE, overwrite=False)


def staged(to: Publication, numbers: list[int], batch: int = 0, query: str = "q", control: tuple = ()) -> Staged:
    task = Task(query=query, run="r", batch=batch, partition=0, attempt=0)
    rows = [pa.record_batch({"n": pa.array(numbers, pa.int64())})] if numbers else []
    message = stage(to.stage, task, rows)
    return Staged(
        task=task, files=message.files, event_rows=message.event_rows, control=control, event_tops=message.event_tops
    )


def numbers(table: Path) -> list[int]:
    return sorted(DeltaTable(table).to_pyarrow_table().column("n").to_pylist())


def files(table: Path) -> int:
    return len(list(table.glob("*.parquet")))


def again(value):
    return pickle.loads(pickle.dumps(value))  # noqa: S301 - what Spark does with them


def barrier(snapshot: int, offset: int = 0) -> ControlRow:
    return ControlRow(kind=Kind.BARRIER, channel="t-0", snapshot=snapshot, channels=1, offset=offset)


def test_a_crash_between_staging_and_commit_leaves_nothing_visible(tmp_path):
    to = how(tmp_path)
    publish(to, [staged(to, [1])], batch=0)
    staged(to, [2, 3], batch=1)  # and the driver dies
    assert numbers(tmp_path) == [1]
    publish(to, [staged(to, [2, 3], batch=1)], batch=1)
    assert numbers(tmp_path) == [1, 2, 3]


def test_the_same_batch_is_published_once_whoever_comes(tmp_path):
    to = how(tmp_path)
    publish(to, [staged(to, [1])], batch=0)
    publish(to, [staged(to, [1])], batch=0)
    assert numbers(tmp_path) == [1]
    assert files(tmp_path) == 1


def test_an_old_batch_of_a_copied_checkpoint_is_compared_with_its_own_record(tmp_path):
    to = how(tmp_path, SnapshotMode.BARRIER)
    for batch in range(3):
        publish(to, [staged(to, [batch], batch, control=(barrier(batch, 10 * batch),))], batch=batch)
    publish(to, [staged(to, [1], 1, control=(barrier(1, 10),))], batch=1)
    with pytest.raises(FencedError, match="batch 1 of query q is in the table"):
        publish(to, [staged(to, [1], 1, control=(barrier(1, 11),))], batch=1)
    assert numbers(tmp_path) == [0, 1, 2]
    assert files(tmp_path) == 3


def test_two_queries_share_a_table_and_neither_sees_the_others_record(tmp_path):
    to = how(tmp_path, SnapshotMode.BARRIER)
    publish(to, [staged(to, [1], control=(barrier(0),))], batch=0)
    publish(to, [staged(to, [2], query="other", control=(barrier(40),))], batch=0)
    publish(to, [staged(to, [3], 1, control=(barrier(1),))], batch=1)
    assert numbers(tmp_path) == [1, 2, 3]


def test_the_record_is_found_behind_many_foreign_commits(tmp_path):
    to = how(tmp_path, SnapshotMode.BARRIER)
    publish(to, [staged(to, [1], control=(barrier(0),))], batch=0)
    for n in range(40):
        write_deltalake(tmp_path, pa.table({"n": [100 + n]}), mode="append")
    with pytest.raises(InputError, match="snapshot 5 of channels t-0 follows snapshot 0"):
        publish(to, [staged(to, [2], 1, control=(barrier(5),))], batch=1)
    publish(to, [staged(to, [2], 1, control=(barrier(1),))], batch=1)
    assert len(numbers(tmp_path)) == 42


def test_concurrent_writers_only_make_it_retry(tmp_path):
    """Six queries and a foreign writer create and append to one table at once: every row arrives once."""
    to = how(tmp_path)
    failed: list[BaseException] = []

    def run(query: int) -> None:
        try:
            for batch in range(4):
                publish(to, [staged(to, [10 * query + batch], batch, f"q{query}")], batch=batch)
        except BaseException as error:  # noqa: BLE001 - handed to the main thread
            failed.append(error)

    threads = [threading.Thread(target=run, args=(query,)) for query in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert numbers(tmp_path) == sorted(10 * query + batch for query in range(6) for batch in range(4))


def test_a_twin_of_the_same_query_cannot_publish_a_batch_twice(tmp_path):
    """Two processes commit the same batches at once, as when a stopped run's commit is still on its way."""
    to = how(tmp_path)
    publish(to, [staged(to, [0])], batch=0)
    failed: list[BaseException] = []

    def run() -> None:
        try:
            for batch in range(1, 8):
                publish(to, [staged(to, [batch], batch)], batch=batch)
        except BaseException as error:  # noqa: BLE001 - handed to the main thread
            failed.append(error)

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert numbers(tmp_path) == list(range(8))
    assert files(tmp_path) == 8


def test_readers_see_only_whole_snapshots(tmp_path):
    """While batches of three files of two rows are published, every version read holds whole batches."""
    to = how(tmp_path)
    publish(to, [staged(to, [0])], batch=0)
    stop = threading.Event()
    seen: set[int] = set()
    torn: list[int] = []

    def read() -> None:
        while not stop.is_set():
            count = DeltaTable(tmp_path).to_pyarrow_table().num_rows
            seen.add(count)
            if (count - 1) % 6:
                torn.append(count)

    reader = threading.Thread(target=read)
    reader.start()
    for batch in range(1, 15):
        publish(to, [staged(to, [batch, batch], batch) for _ in range(3)], batch=batch)
    stop.set()
    reader.join()
    assert torn == []
    assert len(seen) > 1


def test_a_commit_in_doubt_that_happened_is_not_repeated(tmp_path, monkeypatch):
    """The log entry is written, then the answer is lost: the record's attempt says that it was us."""
    to = how(tmp_path)
    publish(to, [staged(to, [1])], batch=0)
    real = publish_module.delta.append

    def lose_the_answer(*args, **options):
        real(*args, **options)
        raise OSError("connection reset")

    monkeypatch.setattr(publish_module.delta, "append", lose_the_answer)
    publish(to, [staged(to, [2], 1)], batch=1)
    assert numbers(tmp_path) == [1, 2]


def test_a_commit_that_fails_keeps_its_files_and_can_be_repeated(tmp_path, monkeypatch):
    to = how(tmp_path)
    publish(to, [staged(to, [1])], batch=0)
    message = staged(to, [2], 1)
    with monkeypatch.context() as broken:
        broken.setattr(publish_module.delta, "append", _disk_full)
        with pytest.raises(UnavailableError, match=r"batch 1 could not be published .* No space left"):
            publish(to, [message], batch=1)
    assert numbers(tmp_path) == [1]
    publish(to, [message], batch=1)
    assert numbers(tmp_path) == [1, 2]


def _disk_full(*_args, **_options):
    raise OSError("No space left on device")


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
    lost, kept = staged(to, [1]), staged(to, [2])
    writer.abort([lost, None], 0)
    assert files(tmp_path) == 1
    writer.abort([kept], 0)
    assert files(tmp_path) == 1


def test_no_rows_make_no_file(tmp_path):
    assert staged(how(tmp_path), []).files == ()
    assert files(tmp_path) == 0


def test_a_newer_record_is_refused_and_nothing_is_touched(tmp_path):
    to = how(tmp_path)
    from deltalake import CommitProperties, Transaction

    write_deltalake(
        tmp_path, pa.table({"n": [1]}),
        commit_properties=CommitProperties(
            custom_metadata={"keyedwm": '{"version":2}'}, app_transactions=[Transaction("q", 0)]
        ),
    )  # fmt: skip
    with pytest.raises(FormatError, match="format version 2, this keyedwm reads version 1"):
        publish(to, [staged(to, [2], 1)], batch=1)
    assert DeltaTable(tmp_path).version() == 0
    assert files(tmp_path) == 1


@pytest.mark.parametrize(
    ("given", "right"),
    [
        ({"partition_by": ["n"]}, "is partitioned by n"),
        ({"configuration": {"delta.columnMapping.mode": "name"}}, "delta.columnMapping.mode"),
    ],
)
def test_a_table_that_asks_more_of_its_writers_is_refused(tmp_path, given, right):
    to = how(tmp_path / "t", schema=pa.schema([("n", pa.int64()), ("m", pa.int64())]))
    (tmp_path / "t").mkdir()
    try:
        DeltaTable.create(str(tmp_path / "t"), pa.schema([("n", pa.int64()), ("m", pa.int64())]), **given)
    except Exception as error:  # noqa: BLE001 - not every deltalake creates every kind of table
        pytest.skip(f"deltalake does not create such a table: {error}")
    with pytest.raises(InputError, match=right):
        publish(to, [staged(to, [])], batch=0)


def test_writer_messages_and_errors_survive_pickling(tmp_path):
    options = {"path": str(tmp_path), "storage.secret": "s3cr3t"}
    writer = stream_writer(options, SPARK_COLUMNS, overwrite=False)
    message = staged(how(tmp_path), [1], control=(barrier(0),))
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
            wanted = pc.sum(pc.equal(everything.column(name), value)).as_py()
            assert dataset.to_table(filter=pc.field(name) == value).num_rows == wanted


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
    assert long["maxValues"] == {"s": "x" * 30 + "y"}
    assert long["nullCount"] == {"t": 1, "s": 0}
    assert "minValues" not in stats([9 * 10**17], "beyond the year 9999")
    assert "minValues" not in stats([0], "\U0010ffff" * 40)


def test_equal_records_have_equal_text_and_come_back_whole(tmp_path):
    to = how(tmp_path, SnapshotMode.BARRIER)
    publish(to, [staged(to, [1], control=(barrier(0, 7),))], batch=0)
    text = DeltaTable(tmp_path).history(1)[0]["keyedwm"]
    assert Record.from_json(text).to_json() == text
    assert Record.from_json(text).channels["t-0"].offset == 7


def test_a_torn_log_is_named_as_damage_and_nothing_is_published(table):
    to = how(table)
    publish(to, [staged(to, [1])], batch=0)
    newest = max((table / "_delta_log").glob("*.json"))
    whole = newest.read_text()
    newest.write_text(whole[:-20])
    with pytest.raises(InputError, match=r"the log of the Delta table .* is damaged .*: restore its last entry"):
        publish(to, [staged(to, [2], batch=1)], batch=1)
    newest.write_text(whole)
    publish(to, [staged(to, [2], batch=1)], batch=1)
    assert numbers(table) == [1, 2]


def test_a_full_disk_is_named_and_the_batch_can_come_again(table):
    to = how(table)
    publish(to, [staged(to, [1])], batch=0)
    message = staged(to, [2], batch=1)
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))  # no file of this process takes another byte
    try:
        with pytest.raises(UnavailableError, match=r"could not be published .*: File too large") as refused:
            publish(to, [message], batch=1)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    assert "\x1b" not in str(refused.value)
    publish(to, [message], batch=1)
    assert numbers(table) == [1, 2]
