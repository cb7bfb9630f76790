"""Columns chosen without `control` turn control rows into rows of nulls: the first such commit of a start warns."""

from __future__ import annotations

import pyarrow as pa
import pytest

from pyspark_wm_sink.batch import source_columns
from pyspark_wm_sink.batch.batch_plan import BatchPlan, SourceRange
from pyspark_wm_sink.batch.source_columns import warn_of_null_rows
from tests.sink.delta_sink import how, stage_rows

OURS = BatchPlan(sources=(SourceRange(begins={}, ends={}),))
COLUMNS = pa.schema([("user", pa.string()), ("n", pa.int64())])


@pytest.fixture(autouse=True)
def _a_new_process():
    source_columns._warn_of_lost_control.cache_clear()
    yield
    source_columns._warn_of_lost_control.cache_clear()


def reports(path, *rows):
    table = pa.Table.from_pylist([dict(zip(COLUMNS.names, row, strict=True)) for row in rows], schema=COLUMNS)
    return [stage_rows(how(path, schema=COLUMNS), table)]


def test_rows_of_nulls_alone_are_warned_of_once(tmp_path, caplog):
    for _ in range(2):
        warn_of_null_rows(reports(tmp_path, ("a", 1), (None, None)), OURS)
    assert caplog.text.count("keep the column control, or drop control rows first with keyedwm.spark.events(df)") == 1


@pytest.mark.parametrize(
    ("rows", "plan"),
    [
        ([("a", None), (None, 1)], OURS),
        ([(None, None)], BatchPlan(sources=(None,))),
        ([(None, None)], None),
    ],
    ids=["a value in each row", "another source", "an unknown plan"],
)
def test_other_rows_are_not_warned_of(tmp_path, caplog, rows, plan):
    warn_of_null_rows(reports(tmp_path, *rows), plan)
    assert caplog.text == ""
