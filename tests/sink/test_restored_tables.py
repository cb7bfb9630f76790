"""A table of which an older state came back, with or without the checkpoint of that batch: each row is there once."""

from __future__ import annotations

import datetime as dt
import os
from dataclasses import replace

import pytest
from deltalake import DeltaTable

from keyedwm.core.errors import FencedError, InputError
from keyedwm.core.watermark import Guarantee
from pyspark_wm_sink.options.sink_options import SnapshotMode
from tests.sink.input_log import Reader, delta_reader, follows, iceberg_reader, offered_offsets

NOON_S = 1_700_049_600


@pytest.fixture
def reader(tables, tmp_path):
    return Reader(tables, tmp_path, tables.how(tmp_path))


def test_a_table_that_was_taken_back_is_continued_behind_what_it_holds(reader):
    reader.run(t0=10)
    reader.run(t0=20)
    taken_back(reader)
    with pytest.raises(InputError, match="after the newest batch of query q") as error:
        reader.copy().run(t0=30)
    assert offered_offsets(error.value) == {"t-0": 10, "t-1": 0}
    with pytest.raises(InputError, match="query q wrote of t-0 up to offset 10"):
        reader.copy(query="from the beginning", at={"t-0": 0, "t-1": 0}, batch=0).run(t0=30)
    follows(error.value, reader, t0=30)


def test_a_table_and_a_checkpoint_of_the_same_batch_continue_together(reader):
    """A user takes both back: the batches whose rows the restore removed are published again."""
    reader.run(t0=10)
    older = reader.copy()
    reader.run(t0=20)
    reader.run(t0=30)
    taken_back(reader)
    older.run(t0=20)
    assert older.numbers() == reader.once(t0=20)
    for end in (30, 40):
        older.run(t0=end)
    assert older.numbers() == reader.once(t0=40)


@pytest.mark.parametrize("newest", [1, 2])
def test_a_checkpoint_that_is_newer_than_a_restored_table_loses_no_batch_in_silence(reader, newest):
    """Its first batches end where removed ones ended: they are in the log, and their rows are not in the table."""
    reader.run(t0=10)
    reader.run(t0=20)
    between = reader.copy()
    for at in range(newest):
        reader.run(t0=30 + 10 * at)
    taken_back(reader)
    with pytest.raises(InputError, match=r"after batch 2 of query q was published, and this batch is replayed: .* "
                       r"restore the checkpoint of batch 0, or start with a new checkpoint that begins behind the "
                       r"published batch 0") as error:  # fmt: skip
        between.copy().run(t0=30)
    follows(error.value, reader, t0=30)


def test_batches_that_a_restore_removed_are_written_again_at_least_once(reader):
    reader.run(t0=10)
    reader.run(t0=20)
    between = reader.copy(to=replace(reader.to, guarantee=Guarantee.AT_LEAST_ONCE))
    reader.run(t0=30)
    taken_back(reader)
    between.run(t0=30)
    between.copy(to=reader.to).run(t0=40)
    assert between.numbers() == sorted({*range(10), *range(20, 40)})


def test_a_batch_that_a_restore_removed_comes_again_only_where_the_table_ends(reader):
    reader.run(t0=10)
    older = reader.copy()
    reader.run(t0=20)
    taken_back(reader)
    for elsewhere in (older.copy(at={"t-0": 9, "t-1": 0}), older.copy(is_planned=False)):
        with pytest.raises(InputError, match="after batch 1 of query q was published, and this batch is replayed"):
            elsewhere.run(t0=20)
    older.run(t0=20)
    assert older.numbers() == reader.once(t0=20)


def taken_back(reader: Reader, batch: int = 0) -> None:
    """Bring back the table as it was after a batch of its first life."""
    if reader.tables.KIND == "Delta":
        DeltaTable(reader.place).restore(1 + batch)
        return
    table = reader.to.open()._table
    with table.manage_snapshots() as snapshots:
        snapshots.set_current_snapshot(
            sorted(table.snapshots(), key=lambda one: one.sequence_number)[batch].snapshot_id
        )


@pytest.mark.parametrize("mode", SnapshotMode)
def test_of_two_restores_in_turn_only_the_checkpoint_of_the_present_rows_continues(reader, mode):
    """The rows of the second life are removed, and those of the first one are back, of later batches, too."""
    reader.to = replace(reader.to, mode=mode)
    reader.run(t0=10)
    second = reader.copy()
    reader.run(t0=20)
    reader.run(t0=30)
    taken_back(reader)
    second.run(t0=15)
    taken_back(reader, batch=2)
    for checkpoint in (second, second.copy(at=reader.at), reader.copy(at=second.at), reader.copy(is_planned=False)):
        with pytest.raises((FencedError, InputError)):
            checkpoint.run(t0=40)
    reader.run(t0=40)
    assert reader.numbers() == reader.once(t0=40)
    taken_back(reader)
    second = second.copy(batch=1, at={"t-0": 10, "t-1": 0})
    for end in (25, 40, 50, 60):
        second.run(t0=end)
    assert reader.numbers() == reader.once(t0=60)


@pytest.mark.parametrize("query", ["q", "new"])
def test_a_table_that_was_taken_back_to_before_the_first_batch_begins_again(reader, query):
    reader.tables.foreign_append(reader.place, -1)
    first = reader.copy(query=query)
    for end in (10, 20):
        reader.run(t0=end)
    if reader.tables.KIND == "Delta":
        DeltaTable(reader.place).restore(0)
    else:
        taken_back(reader, batch=0)
    for end in (15, 30):
        first.run(t0=end)
    assert reader.numbers() == [-1, *reader.once(t0=30)]


def test_after_a_restore_to_a_point_in_time_no_row_comes_twice(tmp_path):
    """The log does not name the version that has come back."""
    reader = delta_reader(tmp_path / "t")
    reader.run(t0=10)
    reader.run(t0=20)
    table = DeltaTable(tmp_path / "t")
    for version, seconds in ((0, 0), (1, 10), (2, 20)):
        os.utime(tmp_path / f"t/_delta_log/{version:020}.json", (NOON_S + seconds, NOON_S + seconds))
    table.restore(dt.datetime.fromtimestamp(NOON_S + 15, dt.timezone.utc))
    assert reader.numbers() == reader.once(t0=10)
    for query in ("q", "new"):
        with pytest.raises(InputError, match=r"was restored to an older version, or to a point in time, "):
            reader.copy(query=query, at={"t-0": 0, "t-1": 0}, batch=0).run(t0=20)
    assert reader.numbers() == reader.once(t0=10)


def test_no_batch_is_skipped_where_the_log_no_longer_has_what_a_restore_removed(tmp_path):
    reader = delta_reader(tmp_path / "t")
    reader.run(t0=10)
    older = reader.copy()
    reader.run(t0=20)
    reader.run(t0=30)
    taken_back(reader)
    table = DeltaTable(tmp_path / "t")
    table.create_checkpoint()
    for version in range(table.version()):
        (tmp_path / f"t/_delta_log/{version:020}.json").unlink()
    for checkpoint in (older, older.copy(batch=0, at={"t-0": 0, "t-1": 0})):
        with pytest.raises(InputError, match="and this batch is replayed"):
            checkpoint.run(t0=20)


def test_a_removed_batch_whose_snapshot_has_expired_is_published_again(tmp_path):
    reader = iceberg_reader(tmp_path)
    reader.run(t0=10)
    older = reader.copy()
    reader.run(t0=20)
    reader.run(t0=30)
    taken_back(reader)
    table = reader.to.open()._table
    expired_ids = [one.snapshot_id for one in table.snapshots() if one.sequence_number > 1]
    table.maintenance.expire_snapshots().by_ids(expired_ids).commit()
    for end in (20, 40):
        older.run(t0=end)
    assert reader.numbers() == reader.once(t0=40)


@pytest.mark.parametrize("guarantee", Guarantee)
def test_a_batch_before_an_expired_snapshot_is_not_published_again(tmp_path, guarantee):
    reader = iceberg_reader(tmp_path)
    first = reader.copy(to=replace(reader.to, guarantee=guarantee))
    for end in (10, 20, 30):
        reader.run(t0=end)
    table = reader.to.open()._table
    table.maintenance.expire_snapshots().by_id(table.snapshots()[1].snapshot_id).commit()
    first.run(t0=10)
    reader.run(t0=40)
    assert reader.numbers() == reader.once(t0=40)


def test_a_batch_of_a_branch_that_main_then_followed_is_not_published_again(tmp_path):
    """Its driver died before Spark noted the batch, and it starts again on main, to which the branch was moved."""
    main = iceberg_reader(tmp_path)
    main.run(t0=10)
    audit = main.copy(to=iceberg_reader(tmp_path, branch="audit").to)
    audit.run(t0=20)
    table = main.to.open()._table
    with table.manage_snapshots() as snapshots:
        snapshots.set_current_snapshot(ref_name="audit")
    for end in (20, 30):
        main.run(t0=end)
    assert main.numbers() == main.once(t0=30)
