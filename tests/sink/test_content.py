"""A published batch that comes again is compared by its content: as many rows are not the same rows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StructType

from keyedwm.core.errors import FencedError, OptionError
from pyspark_wm_sink.batch.record import Record
from pyspark_wm_sink.batch.task import Task
from pyspark_wm_sink.delta.publish import DeltaPublication
from pyspark_wm_sink.options.sink_options import SinkOptions, SnapshotMode
from pyspark_wm_sink.tables.publish import publish
from pyspark_wm_sink.tables.stage import StagedFiles, stage
from pyspark_wm_sink.writer import batch_writer
from tests.sink.delta_sink import files, how, numbers


@pytest.fixture
def to(tmp_path: Path) -> DeltaPublication:
    plain = how(tmp_path / "table")
    return replace(plain, stage=replace(plain.stage, compares_content=True))


def stage_tasks(to: DeltaPublication, *of_tasks: list[int], batch: int = 0) -> list[StagedFiles]:
    """Each list is what one task writes."""
    return [
        stage(
            to.stage,
            Task(query="q", run="r", batch=batch, partition=number, attempt=0),
            [pa.record_batch({"n": pa.array(values, pa.int64())})] if values else [],
        )
        for number, values in enumerate(of_tasks)
    ]


def test_a_published_batch_that_comes_again_in_another_order_and_cut_adds_nothing(to: DeltaPublication) -> None:
    publish(to, stage_tasks(to, [1, 2, 3], [4]), batch=0)
    publish(to, stage_tasks(to, [4], [], [3], [2, 1]), batch=0)
    assert numbers(Path(to.stage.path)) == [1, 2, 3, 4]


def test_a_published_batch_that_comes_again_with_other_content_is_refused_with_the_way_out(
    to: DeltaPublication,
) -> None:
    publish(to, stage_tasks(to, [1, 2], [3]), batch=0)
    with pytest.raises(FencedError, match=r"with as many rows, but of other content: .* set replayCheck=counts"):
        publish(to, stage_tasks(to, [1, 2], [4]), batch=0)
    assert numbers(Path(to.stage.path)) == [1, 2, 3]
    assert files(Path(to.stage.path)) == 2


def test_with_counts_the_published_rows_stand(to: DeltaPublication) -> None:
    publish(to, stage_tasks(to, [1, 2], [3]), batch=0)
    counts = replace(to, stage=replace(to.stage, compares_content=False))
    publish(counts, stage_tasks(counts, [1, 2], [4]), batch=0)
    publish(counts, stage_tasks(counts, [5], batch=1), batch=1)
    assert numbers(Path(to.stage.path)) == [1, 2, 3, 5]


def test_a_record_without_content_is_compared_by_counts(to: DeltaPublication) -> None:
    """As one of an earlier version."""
    counts = replace(to, stage=replace(to.stage, compares_content=False))
    publish(counts, stage_tasks(counts, [1, 2]), batch=0)
    publish(to, stage_tasks(to, [1, 3]), batch=0)
    assert numbers(Path(to.stage.path)) == [1, 2]


def test_the_content_is_kept_in_the_record(to: DeltaPublication) -> None:
    record = Record(query="q", run="r", batch=0, attempt="a", snapshot=None, rows=1, ignored=0, channels={},
                    coalesced={}, content="00ff")  # fmt: skip
    assert Record.from_json(record.to_json()) == record


@pytest.mark.parametrize(
    ("options", "mode", "compared"),
    [
        ({}, SnapshotMode.BATCH, True),
        ({}, SnapshotMode.BARRIER, False),
        ({"replayCheck": "content"}, SnapshotMode.BARRIER, True),
        ({"replayCheck": "counts"}, SnapshotMode.BATCH, False),
        ({"guarantee": "at-least-once"}, SnapshotMode.BATCH, False),
    ],
)
def test_content_is_compared_where_no_barrier_says_what_was_read(
    options: dict[str, str], mode: SnapshotMode, compared: bool
) -> None:
    assert SinkOptions.parse({"path": "/data/t", **options}).compares_content(mode) is compared


def test_the_option_is_refused_where_it_has_no_effect() -> None:
    with pytest.raises(OptionError, match="replayCheck has no effect with guarantee=at-least-once"):
        SinkOptions.parse({"path": "/data/t", "guarantee": "at-least-once", "replayCheck": "counts"})
    with pytest.raises(OptionError, match="replayCheck is for streams"):
        batch_writer({"path": "/data/t", "replayCheck": "counts"}, StructType().add("n", LongType()), overwrite=False)
