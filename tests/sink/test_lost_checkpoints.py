"""A checkpoint that was lost, or is an older copy: no row is doubled or lost by whoever follows the sentence."""

from __future__ import annotations

import shutil
from dataclasses import replace

import pytest

from keyedwm.core.errors import FencedError, InputError
from keyedwm.core.watermark import Guarantee
from pyspark_wm_sink.options.sink_options import SnapshotMode
from tests.sink.input_log import Reader, delta_reader, follows, offered_offsets

WITH_CONTROL = pytest.mark.parametrize("mode", [SnapshotMode.BARRIER, SnapshotMode.BATCH], ids=["control", "plain"])


@pytest.fixture
def reader(tables, tmp_path):
    return Reader(tables, tmp_path, tables.how(tmp_path))


@WITH_CONTROL
def test_a_lost_checkpoint_is_refused_without_any_column_of_offsets(reader, mode, caplog):
    reader.to = replace(reader.to, mode=mode)
    reader.run(t0=20, t1=20)
    reader.run(t0=21)
    new_reader = reader.copy(query="new", at={"t-0": 0, "t-1": 0}, batch=0)
    with pytest.raises(InputError, match=r"query q wrote of t-0 up to offset 21, .* has rows of offset 0 of it, .* was "
                       r"the checkpoint lost\? .* set sharedTable=true") as error:  # fmt: skip
        new_reader.run(t0=22, t1=21)
    assert reader.numbers() == reader.once(t0=21, t1=20)
    caplog.clear()
    follows(error.value, reader, t0=22, t1=21)
    assert not caplog.records
    new_reader.copy(query="shared", to=replace(reader.to, is_shared=True)).run(t0=1)
    assert reader.numbers().count(0) == 2


def test_of_queries_that_began_behind_each_other_the_last_says_where_to_begin(reader):
    reader.run(t0=5)
    for name, end in (("b", 7), ("a", 9)):
        reader = reader.copy(query=name, batch=0)
        reader.run(t0=end)
    with pytest.raises(InputError, match="query a wrote of t-0 up to offset 9") as error:
        reader.copy(query="new", at={"t-0": 0, "t-1": 0}, batch=0).run(t0=10)
    follows(error.value, reader, t0=10)


def test_one_partition_that_is_read_again_is_enough(reader):
    reader.run(t0=5, t1=5)
    with pytest.raises(InputError, match=r"wrote of t-1 up to offset 5, .* rows of offset 4 of it"):
        reader.copy(query="new", at={"t-0": 5, "t-1": 4}, batch=0).run(t0=9, t1=9)


def test_a_query_of_another_topic_is_neither_refused_nor_warned_of(reader, caplog):
    reader.run(t0=5, t1=5)
    reader.copy(query="new", at={"u-0": 0}, batch=0).run(u0=3)
    assert not caplog.records
    assert reader.numbers() == reader.once(t0=5, t1=5, u0=3)


def test_the_second_of_two_united_sources_is_compared_too(reader):
    reader.at = {"t-0": 0, "u-0": 0}
    reader.one_source = False
    reader.run(t0=3)
    reader.run(u0=4)
    with pytest.raises(InputError, match="wrote of u-0 up to offset 4") as error:
        reader.copy(query="new", at={"t-0": 3, "u-0": 0}, batch=0).run(t0=5, u0=5)
    assert str(error.value).count("startingOffsets=") == 2
    follows(error.value, reader, t0=5, u0=5)


def test_where_a_query_begins_must_be_known_beside_rows_of_another(reader):
    reader.run(t0=5, t1=5)
    blind = reader.copy(query="new", at={"t-0": 0, "t-1": 0}, batch=0, is_planned=False)
    with pytest.raises(InputError, match="cannot be known: make checkpointLocation an option of the write") as error:
        blind.run(t0=5)
    assert reader.numbers() == reader.once(t0=5, t1=5)
    follows(error.value, reader, t0=6, t1=6)


def test_a_record_of_an_earlier_version_is_warned_of(reader, monkeypatch, caplog):
    """Versions 0.2.0 and 0.3.0 did not record where a batch ends."""
    with monkeypatch.context() as patch:
        patch.setattr("pyspark_wm_sink.batch.seal._reads_of", lambda _report: None)
        reader.run(t0=5, t1=5)
    reader.copy(query="new", at={"t-0": 5, "t-1": 5}, batch=0).run(t0=6)
    assert "holds rows of other queries, q is one, and query new is new there" in caplog.text
    reader.run(t0=7)  # the old query goes on, and says now how far it has read
    with pytest.raises(InputError, match="query q wrote of t-0 up to offset 7"):
        reader.copy(query="newer", at={"t-0": 6, "t-1": 6}, batch=0).run(t0=8)


@WITH_CONTROL
@pytest.mark.parametrize("guarantee", Guarantee)
def test_an_older_copy_of_the_checkpoint_is_refused_with_the_way_on(reader, mode, guarantee):
    reader.to = replace(reader.to, mode=mode)
    reader.run(t0=10, t1=10)
    older = reader.copy(to=replace(reader.to, guarantee=guarantee))
    reader.run(t0=20)
    reader.run(t1=20)
    with pytest.raises(FencedError, match=r"with t-0 read up to offset 20, now it comes with offset 30: an older copy "
                       r"of the checkpoint was restored, or two queries run .* if another one runs, stop this one, "
                       r"else restore the newest copy, or start with a new checkpoint that") as error:  # fmt: skip
        older.run(t0=30, t1=30)
    assert reader.numbers() == reader.once(t0=20, t1=20)
    follows(error.value, reader, t0=30, t1=30)


def test_an_older_copy_that_repeats_its_first_batch_is_refused_at_the_next(reader):
    reader.run(t0=10)
    older = reader.copy()
    for end in (20, 30, 40):
        reader.run(t0=end)
    older.run(t0=20)
    with pytest.raises(FencedError, match="with t-0 read up to offset 30, now it comes with offset 41") as error:
        older.run(t0=41)
    assert offered_offsets(error.value) == {"t-0": 40, "t-1": 0}
    follows(error.value, reader, t0=41)


def test_the_newest_copy_of_the_checkpoint_goes_on(reader):
    """The other way of the same sentence: one from before the newest batch was noted repeats it, and goes on."""
    reader.run(t0=10)
    newest = reader.copy()
    reader.run(t0=20)
    newest.run(t0=20)
    newest.run(t0=30)
    assert reader.numbers() == reader.once(t0=30)


def test_no_new_checkpoint_in_this_table_is_offered_to_a_query_with_state(reader):
    reader.is_stateful = True
    reader.run(t0=10)
    older = reader.copy()
    reader.run(t0=20)
    with pytest.raises(FencedError, match=r"restore the newest copy, or start with a new checkpoint and another table, "
                       r"and read the input from its beginning") as error:  # fmt: skip
        older.run(t0=30)
    assert not offered_offsets(error.value)


def test_rows_that_differ_though_the_input_is_the_same_are_no_copy_s(reader):
    reader.to = replace(reader.to, stage=replace(reader.to.stage, compares_content=True))
    again = reader.copy()
    reader.run(t0=3)
    random = again.copy(at={"t-0": 0, "t-1": 0})
    from tests.sink import input_log

    before = dict(input_log.FIRST_OF)
    try:
        input_log.FIRST_OF["t-0"] = 77
        with pytest.raises(FencedError, match="of other content: the query was changed, or gives other rows") as error:
            random.run(t0=3)
        random.copy(to=replace(reader.to, stage=replace(reader.to.stage, compares_content=False))).run(t0=3)
    finally:
        input_log.FIRST_OF.update(before)
    assert "set replayCheck=counts" in str(error.value)
    assert "copy of the checkpoint" not in str(error.value)
    assert reader.numbers() == reader.once(t0=3)
    follows(error.value, reader, t0=4)


def test_an_older_copy_of_the_table_is_continued_behind_what_it_holds(tmp_path):
    reader = delta_reader(tmp_path / "t")
    reader.run(t0=10)
    shutil.copytree(tmp_path / "t", tmp_path / "older")
    reader.run(t0=20)
    reader.run(t0=30)
    shutil.rmtree(tmp_path / "t")
    (tmp_path / "older").rename(tmp_path / "t")
    with pytest.raises(InputError, match=r"restore the version that holds batch 2, or start with a new") as error:
        reader.copy().run(t0=40)
    follows(error.value, reader, t0=40)


def test_a_table_that_is_gone_is_written_anew_from_the_beginning(tmp_path):
    reader = delta_reader(tmp_path / "t")
    reader.run(t0=10)
    shutil.rmtree(tmp_path / "t")
    with pytest.raises(
        InputError, match=r"new checkpoint and read the input from its beginning \(startingOffsets=earl"
    ):
        reader.run(t0=20)
    reader.copy(query="new", at={"t-0": 0, "t-1": 0}, batch=0).run(t0=20)
    assert reader.numbers() == reader.once(t0=20)
