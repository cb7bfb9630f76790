"""Batches published to real tables without Spark: each once, whole, whoever comes."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest
from deltalake import DeltaTable

from keyedwm.core.errors import FencedError, InputError
from pyspark_wm_sink.batch.record import Record
from pyspark_wm_sink.options.sink_options import SnapshotMode
from pyspark_wm_sink.tables.publish import publish
from tests.sink.delta_sink import barrier, files, how, numbers, stage_rows
from tests.tools import wait_until


def test_a_crash_between_staging_and_commit_leaves_nothing_visible(tables, tmp_path):
    to = tables.how(tmp_path)
    publish(to, [stage_rows(to, [1])], batch=0)
    stage_rows(to, [2, 3], batch=1)  # and the driver dies
    assert tables.numbers(tmp_path) == [1]
    publish(to, [stage_rows(to, [2, 3], batch=1)], batch=1)
    assert tables.numbers(tmp_path) == [1, 2, 3]


def test_what_a_killed_task_left_goes_with_a_full_vacuum_alone(tmp_path):
    to = how(tmp_path)
    publish(to, [stage_rows(to, [1])], batch=0)
    stage_rows(to, [2, 3], batch=1)  # and the driver dies
    for is_full, files_left in ((False, 2), (True, 1)):
        DeltaTable(tmp_path).vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False, full=is_full)
        assert files(tmp_path) == files_left
    assert numbers(tmp_path) == [1]


def test_the_same_batch_is_published_once_whoever_comes(tables, tmp_path):
    to = tables.how(tmp_path)
    publish(to, [stage_rows(to, [1])], batch=0)
    publish(to, [stage_rows(to, [1])], batch=0)
    assert tables.numbers(tmp_path) == [1]
    assert tables.files(tmp_path) == 1


def test_an_old_batch_of_a_copied_checkpoint_is_compared_with_its_own_record(tables, tmp_path):
    to = tables.how(tmp_path, SnapshotMode.BARRIER)
    for batch in range(3):
        publish(to, [stage_rows(to, [batch], batch, control=(barrier(batch, 10 * batch),))], batch=batch)
    publish(to, [stage_rows(to, [1], 1, control=(barrier(1, 10),))], batch=1)
    with pytest.raises(FencedError, match="batch 1 of query q is in the table"):
        publish(to, [stage_rows(to, [1], 1, control=(barrier(1, 11),))], batch=1)
    assert tables.numbers(tmp_path) == [0, 1, 2]
    assert tables.files(tmp_path) == 3


def test_two_queries_share_a_table_and_neither_sees_the_others_record(tables, tmp_path):
    to = tables.how(tmp_path, SnapshotMode.BARRIER)
    publish(to, [stage_rows(to, [1], control=(barrier(0),))], batch=0)
    publish(to, [stage_rows(to, [2], query="other", control=(barrier(40),))], batch=0)
    publish(to, [stage_rows(to, [3], 1, control=(barrier(1),))], batch=1)
    assert tables.numbers(tmp_path) == [1, 2, 3]


def test_the_record_is_found_behind_many_foreign_commits(tables, tmp_path):
    to = tables.how(tmp_path, SnapshotMode.BARRIER)
    publish(to, [stage_rows(to, [1], control=(barrier(0),))], batch=0)
    for n in range(40):
        tables.foreign_append(tmp_path, 100 + n)
    with pytest.raises(InputError, match="snapshot 5 of channels t-0 follows snapshot 0"):
        publish(to, [stage_rows(to, [2], 1, control=(barrier(5),))], batch=1)
    publish(to, [stage_rows(to, [2], 1, control=(barrier(1),))], batch=1)
    assert len(tables.numbers(tmp_path)) == 42


def test_concurrent_writers_only_make_it_retry(tables, tmp_path):
    """Six queries and a foreign writer create and append to one table at once: every row arrives once."""
    to = replace(tables.how(tmp_path), is_shared=True)
    failed: list[BaseException] = []

    def run(query: int) -> None:
        try:
            for batch in range(4):
                publish(to, [stage_rows(to, [10 * query + batch], batch, f"q{query}")], batch=batch)
        except BaseException as error:  # noqa: BLE001 - handed to the main thread
            failed.append(error)

    threads = [threading.Thread(target=run, args=(query,)) for query in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert tables.numbers(tmp_path) == sorted(10 * query + batch for query in range(6) for batch in range(4))


def test_a_twin_of_the_same_query_cannot_publish_a_batch_twice(tables, tmp_path):
    """Two processes commit the same batches at once, as when a stopped run's commit is still on its way."""
    to = tables.how(tmp_path)
    publish(to, [stage_rows(to, [0])], batch=0)
    failed: list[BaseException] = []

    def run() -> None:
        try:
            for batch in range(1, 8):
                publish(to, [stage_rows(to, [batch], batch)], batch=batch)
        except BaseException as error:  # noqa: BLE001 - handed to the main thread
            failed.append(error)

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert tables.numbers(tmp_path) == list(range(8))
    assert tables.files(tmp_path) == 8


def test_readers_see_only_whole_snapshots(tables, tmp_path):
    """While batches of three files of two rows are published, every version read holds whole batches."""
    to = tables.how(tmp_path)
    publish(to, [stage_rows(to, [0])], batch=0)
    stop = threading.Event()
    row_counts: set[int] = set()
    torn: list[int] = []

    def read() -> None:
        while not stop.is_set():
            count = len(tables.numbers(tmp_path))
            row_counts.add(count)
            if (count - 1) % 6:
                torn.append(count)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        for batch in range(1, 15):
            publish(to, [stage_rows(to, [batch, batch], batch) for _ in range(3)], batch=batch)
            wait_until(lambda: row_counts or torn, "a first look at the table")
        wait_until(lambda: len(row_counts) > 1, "another look at the table")
    finally:
        stop.set()
        reader.join()
    assert torn == []


def test_equal_records_have_equal_text_and_come_back_whole(tables, tmp_path):
    to = tables.how(tmp_path, SnapshotMode.BARRIER)
    publish(to, [stage_rows(to, [1], control=(barrier(0, 7),))], batch=0)
    text = tables.newest_text(tmp_path)
    assert Record.from_json(text).to_json() == text
    assert Record.from_json(text).channels["t-0"].offset == 7
