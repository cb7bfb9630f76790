"""Batches and tables to which nothing is published: what is found, and how the query goes on afterwards."""

from __future__ import annotations

import shutil
from dataclasses import replace

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from keyedwm.core.errors import FencedError, FormatError, InputError
from keyedwm.core.watermark import Guarantee
from pyspark_wm_sink.batch.task import Task
from pyspark_wm_sink.options.sink_options import SnapshotMode
from pyspark_wm_sink.tables.publish import publish
from pyspark_wm_sink.tables.stage import stage
from tests.sink.delta_sink import COLUMNS, barrier, files, how, numbers, stage_rows


def test_a_table_that_is_gone_is_refused_from_the_second_batch_on(tmp_path):
    to = how(tmp_path / "table")
    publish(to, [stage_rows(to, [1])], batch=0)
    shutil.rmtree(tmp_path / "table")
    message = stage_rows(to, [2], 1)
    with pytest.raises(InputError, match=r"there is no Delta table at .*, but batch 1 of query q follows batches"):
        publish(to, [message], batch=1)
    assert not DeltaTable.is_deltatable(str(tmp_path / "table"))
    DeltaTable.create(str(tmp_path / "table"), COLUMNS)  # the way out that the error names
    publish(to, [stage_rows(to, [2], 1)], batch=1)
    assert numbers(tmp_path / "table") == [2]


def test_a_table_that_was_restored_to_an_older_version_is_refused(tmp_path):
    to = how(tmp_path / "table")
    publish(to, [stage_rows(to, [0])], batch=0)
    shutil.copytree(tmp_path / "table", tmp_path / "backup")
    publish(to, [stage_rows(to, [1], 1)], batch=1)
    shutil.rmtree(tmp_path / "table")
    (tmp_path / "backup").rename(tmp_path / "table")
    with pytest.raises(InputError, match=r"the newest batch of query q in .* is 0, and now comes batch 2"):
        publish(to, [stage_rows(to, [2], 2)], batch=2)
    assert numbers(tmp_path / "table") == [0]


def test_a_restore_behind_the_newest_batch_is_refused_until_it_is_undone_or_accepted(tmp_path):
    """RESTORE keeps the application transactions, so the table still says that the newest batch is in it."""
    to = how(tmp_path)
    for batch in range(2):
        publish(to, [stage_rows(to, [batch], batch)], batch=batch)
    whole = DeltaTable(tmp_path).version()
    for target in (whole - 1, whole - 1, whole + 1):  # the last one leads to what the first one left
        DeltaTable(tmp_path).restore(target)
        assert DeltaTable(tmp_path).transaction_version("q") == 1
        with pytest.raises(InputError, match=r"was restored to an older version.* and now comes batch 2"):
            publish(to, [stage_rows(to, [2], 2)], batch=2)
    DeltaTable(tmp_path).restore(whole)
    publish(to, [stage_rows(to, [2], 2)], batch=2)
    assert numbers(tmp_path) == [0, 1, 2]
    DeltaTable(tmp_path).restore(whole)
    publish(replace(to, guarantee=Guarantee.AT_LEAST_ONCE), [stage_rows(to, [3], 3)], batch=3)
    publish(to, [stage_rows(to, [4], 4)], batch=4)
    assert numbers(tmp_path) == [0, 1, 3, 4]


def test_a_batch_that_comes_again_with_other_rows_is_refused_without_any_barrier(tables, tmp_path):
    to = tables.how(tmp_path)
    first = stage_rows(to, [1, 2])
    publish(to, [replace(first, event_tops={"t-0": 7})], batch=0)
    with pytest.raises(FencedError, match="with 2 rows, now it comes with 3: an older copy of the checkpoint was"):
        publish(to, [stage_rows(to, [1, 2, 3])], batch=0)
    with pytest.raises(FencedError, match=r"with rows up to other offsets than it comes with now \(t-0\)"):
        publish(to, [replace(stage_rows(to, [1, 2]), event_tops={"t-0": 8})], batch=0)
    publish(to, [replace(stage_rows(to, [1, 2]), event_tops={"t-0": 7})], batch=0)
    publish(replace(to, guarantee=Guarantee.AT_LEAST_ONCE), [stage_rows(to, [1])], batch=0)
    assert tables.numbers(tmp_path) == [1, 2]


def test_a_newer_record_is_refused_and_nothing_is_touched(tmp_path):
    to = how(tmp_path)
    from deltalake import CommitProperties, Transaction

    write_deltalake(
        tmp_path, pa.table({"n": [1]}),
        commit_properties=CommitProperties(
            custom_metadata={"keyedwm": '{"version":3}'}, app_transactions=[Transaction("q", 0)]
        ),
    )  # fmt: skip
    with pytest.raises(FormatError, match="format version 3, this keyedwm reads versions 1 and 2"):
        publish(to, [stage_rows(to, [2], 1)], batch=1)
    assert DeltaTable(tmp_path).version() == 0
    assert files(tmp_path) == 1


@pytest.mark.parametrize(
    ("table_settings", "right"),
    [
        ({"partition_by": ["n"]}, "is partitioned by n"),
        ({"configuration": {"delta.columnMapping.mode": "name"}}, "delta.columnMapping.mode"),
    ],
)
def test_a_table_that_asks_more_of_its_writers_is_refused(tmp_path, table_settings, right):
    to = how(tmp_path / "t", schema=pa.schema([("n", pa.int64()), ("m", pa.int64())]))
    (tmp_path / "t").mkdir()
    try:
        DeltaTable.create(str(tmp_path / "t"), pa.schema([("n", pa.int64()), ("m", pa.int64())]), **table_settings)
    except Exception as error:  # noqa: BLE001 - not every deltalake creates every kind of table
        pytest.skip(f"deltalake does not create such a table: {error}")
    with pytest.raises(InputError, match=right):
        publish(to, [stage_rows(to, [])], batch=0)


def test_a_torn_log_is_named_as_damage_and_nothing_is_published(table):
    to = how(table)
    publish(to, [stage_rows(to, [1])], batch=0)
    newest = max((table / "_delta_log").glob("*.json"))
    whole = newest.read_text()
    newest.write_text(whole[:-20])
    with pytest.raises(InputError, match=r"the log of the Delta table .* is damaged .*: restore its last entry"):
        publish(to, [stage_rows(to, [2], batch=1)], batch=1)
    newest.write_text(whole)
    publish(to, [stage_rows(to, [2], batch=1)], batch=1)
    assert numbers(table) == [1, 2]


def test_files_that_executors_staged_on_other_hosts_are_noticed(tables, tmp_path):
    to = tables.how(tmp_path)
    publish(to, [stage_rows(to, [1])], batch=0)
    elsewhere = stage_rows(to, [2], 1)
    to.stage.local_path(elsewhere.files[0].name).unlink()
    with pytest.raises(InputError, match=r"1 of 2 files that the tasks staged are not in .* on the driver, .*parquet"):
        publish(to, [stage_rows(to, [3], 1), elsewhere], batch=1)
    assert tables.numbers(tmp_path) == [1]
    assert tables.files(tmp_path) == 1


def test_a_new_query_that_reads_again_what_another_has_published_there_is_refused_unless_told(tables, tmp_path, caplog):
    """As after a checkpoint was lost: the table's record knows how far each partition has been read."""
    to = tables.how(tmp_path, SnapshotMode.BARRIER)
    publish(to, [stage_rows(to, [1], control=(barrier(0, 10),))], batch=0)
    first, begins = stage_rows(to, [1], query="new", control=(barrier(0, 12),)), {"t-0": 3}
    for message, offset in (
        (replace(first, begins=begins), 3),
        (stage_rows(to, [1], query="new", control=(barrier(0, 9),)), 9),  # rows without offsets: the barrier tells
    ):
        with pytest.raises(InputError, match=rf"query q wrote of t-0 up to offset 10, .* query new has rows of offset "
                           rf"{offset} of it, .* was the checkpoint lost\? .* set sharedTable=true"):  # fmt: skip
            publish(to, [message], batch=0)
    assert (tables.numbers(tmp_path), tables.files(tmp_path)) == ([1], 1)
    go_on = replace(stage_rows(to, [2], query="next", control=(barrier(0, 12),)), begins={"t-0": 10})
    publish(to, [go_on], batch=0)
    again = [
        replace(stage_rows(to, [1], query=query, control=(barrier(0, 12),)), begins=begins) for query in ("a", "b")
    ]
    publish(replace(to, is_shared=True), again[:1], batch=0)
    caplog.clear()
    publish(replace(to, guarantee=Guarantee.AT_LEAST_ONCE), again[1:], batch=0)
    assert "so rows that both queries write are in the table twice" in caplog.text
    assert tables.numbers(tmp_path) == [1, 1, 1, 2]


def test_a_query_is_found_behind_many_commits_of_others(tables, tmp_path):
    to = tables.how(tmp_path, SnapshotMode.BARRIER)
    publish(to, [stage_rows(to, [1], control=(barrier(0, 10),))], batch=0)
    third = replace(to, is_shared=True)
    for batch in range(40):
        of_third = replace(barrier(batch, batch), channel="u-0")
        publish(third, [stage_rows(to, [], batch, query="third", control=(of_third,))], batch=batch)
    with pytest.raises(InputError, match=r"query q wrote of t-0 up to offset 10"):
        publish(to, [stage_rows(to, [1], query="new", control=(barrier(0, 9),))], batch=0)


def test_a_table_that_was_made_again_under_a_query_is_gone_on_with_and_warned_of(tmp_path, caplog):
    to = how(tmp_path / "t")
    publish(to, [stage_rows(to, [1])], batch=0)
    shutil.rmtree(tmp_path / "t")
    DeltaTable.create(str(tmp_path / "t"), pa.schema([("n", pa.int64())]))
    publish(to, [stage_rows(to, [2], batch=1)], batch=1)
    publish(to, [stage_rows(to, [3], batch=2)], batch=2)
    assert caplog.text.count("has no batch of query q, and now comes batch 1: it was made again, or forgets") == 1
    assert numbers(tmp_path / "t") == [2, 3]


def test_rows_that_a_restore_took_out_are_written_by_a_new_query(tmp_path):
    to = how(tmp_path, SnapshotMode.BARRIER)
    publish(to, [stage_rows(to, [0], control=(barrier(0, 5),))], batch=0)
    publish(to, [stage_rows(to, [1], 1, control=(barrier(1, 10),))], batch=1)
    DeltaTable(tmp_path).restore(1)
    publish(to, [stage_rows(to, [1], query="new", control=(barrier(0, 9),))], batch=0)
    assert numbers(tmp_path) == [0, 1]


def operator_barrier(name, snapshot):
    return replace(barrier(0, snapshot), channel=f"{name}#0")


def test_two_queries_whose_operators_have_other_names_share_a_table(tables, tmp_path, caplog):
    to = tables.how(tmp_path, SnapshotMode.BARRIER)
    for query, offset in (("q", 10), ("other", 1)):
        publish(
            to, [stage_rows(to, [offset], query=query, control=(operator_barrier(f"of-{query}", offset),))], batch=0
        )
    assert tables.numbers(tmp_path) == [1, 10]
    assert "holds rows of other queries, q is one, and query other is new there" in caplog.text


def test_results_of_an_operator_that_another_query_has_published_there_are_refused_unless_told(
    tables, tmp_path, caplog
):
    """As after a checkpoint was lost: the operator has the same name, and counts its barriers from the start."""
    to = tables.how(tmp_path, SnapshotMode.BARRIER)
    publish(to, [stage_rows(to, [1], control=(operator_barrier("sum", 10),))], batch=0)

    def again(query):
        return [stage_rows(to, [1], query=query, control=(operator_barrier("sum", 1),))]

    with pytest.raises(InputError, match=r"query q wrote of the operator sum, and the new query new begins with results"
                       r" .* was the checkpoint lost\? .* set sharedTable=true"):  # fmt: skip
        publish(to, again("new"), batch=0)
    assert (tables.numbers(tmp_path), tables.files(tmp_path)) == ([1], 1)
    publish(replace(to, is_shared=True), again("a"), batch=0)
    publish(replace(to, guarantee=Guarantee.AT_LEAST_ONCE), again("b"), batch=0)
    assert "so rows that both queries write are in the table twice" in caplog.text
    assert tables.numbers(tmp_path) == [1, 1, 1]


def test_a_task_tells_where_a_first_batch_begins(tables, tmp_path):
    columns = {"topic": ["t", "t", "t", None], "partition": [0, 0, 1, None], "offset": [5, 3, 9, None]}
    rows = pa.table({**columns, "partition": pa.array(columns["partition"], pa.int32())})
    plan = replace(tables.how(tmp_path, schema=rows.schema).stage, has_offsets=True)
    for batch, begins in ((0, {"t-0": 3, "t-1": 9}), (1, {})):
        task = Task(query="q", run="r", batch=batch, partition=0, attempt=0)
        assert stage(plan, task, rows.to_batches()).begins == begins
