"""Rows in Iceberg tables: types, partitions, branches, and changes that others make while a query runs."""

from __future__ import annotations

import uuid
from dataclasses import replace
from datetime import date, datetime, timezone
from decimal import Decimal
from unittest.mock import patch

import pyarrow as pa
import pyarrow.parquet as pq
import pyiceberg.table
import pytest
from pyiceberg.schema import Schema
from pyiceberg.table.update import update_table_metadata
from pyiceberg.types import IntegerType, LongType, NestedField, StringType, UUIDType
from pyspark.sql.pandas.types import from_arrow_schema

from keyedwm.arrow.schema import row_schema
from keyedwm.core.errors import InputError, UnavailableError
from keyedwm.core.watermark import Guarantee
from pyspark_wm_sink.batch.task import Task
from pyspark_wm_sink.iceberg.publish import iceberg_publication
from pyspark_wm_sink.options.sink_options import SinkOptions, SnapshotMode
from pyspark_wm_sink.tables.publish import publish
from pyspark_wm_sink.tables.rows import with_errors
from pyspark_wm_sink.tables.stage import stage
from tests.sink.iceberg_neighbour import play
from tests.sink.iceberg_sink import (
    NAME,
    catalog_of,
    files,
    foreign_append,
    how,
    numbers,
    options,
    rows,
    stage_rows,
    table_of,
)

HOURS = [datetime(2024, 1, 1, 5, tzinfo=timezone.utc), datetime(2024, 1, 2, 5, tzinfo=timezone.utc), None]
STRUCT = pa.struct([("a", pa.int32()), ("b", pa.list_(pa.string()))])
ROWS = pa.table({
    "id": pa.array([1, 2, 3], pa.int64()),
    "text": ["a", "é" * 30, None],
    "at": pa.array(HOURS, pa.timestamp("us", "UTC")),
    "local": pa.array([datetime(1969, 12, 31, 23, 59)] * 3, pa.timestamp("us")),  # noqa: DTZ001 - without zone
    "price": pa.array([Decimal("1.25"), Decimal("-9.99"), None], pa.decimal128(10, 2)),
    "share": pa.array([1.0, None, 3.5], pa.float64()),
    "day": pa.array([date(2024, 1, 1), date(1950, 1, 1), None]),
    "nested": pa.array([{"a": 1, "b": ["x"]}, None, {"a": None, "b": []}], STRUCT),
    "named": pa.array([[("k", 1.0)], None, [("z", None)]], pa.map_(pa.string(), pa.float64())),
    "raw": pa.array([b"1", b"\xff", None]),
    "flag": pa.array([True, False, None]),
})  # fmt: skip
TWO = pa.schema([("n", pa.int64()), ("s", pa.string())])


def two(n: int, s: str) -> pa.Table:
    return pa.table({"n": [n], "s": [s]})


def test_every_type_comes_back_as_it_was(tmp_path):
    to = how(tmp_path, schema=ROWS.schema)
    publish(to, [stage_rows(to, ROWS)], batch=0)
    assert rows(tmp_path) == ROWS.to_pylist()


@pytest.mark.parametrize(
    ("terms", "partitions"),
    [
        ("id", 3), ("day(at)", 3), ("hour(at)", 3), ("month(local)", 1), ("year(day)", 3), ("bucket(4, id)", 2),
        ("bucket(4, text)", 3), ("truncate(1, text)", 3), ("truncate(10, id)", 1), ("price", 3), ("raw, flag", 3),
        ("day(at), bucket(4, id)", 3),
    ],
)  # fmt: skip
def test_rows_lie_in_the_partitions_of_the_transforms_and_are_found_by_them(terms, partitions, tmp_path):
    to = how(tmp_path, schema=ROWS.schema, partitionBy=terms)
    publish(to, [stage_rows(to, ROWS)], batch=0)
    assert files(tmp_path) == partitions
    table = table_of(tmp_path)
    for row in ROWS.to_pylist():
        assert table.scan(row_filter=f"id = {row['id']}").to_arrow().to_pylist() == [row]
    matching_rows = table.scan(row_filter="at >= '2024-01-02T00:00:00+00:00'").to_arrow()
    assert matching_rows.column("id").to_pylist() == [2]
    publish(how(tmp_path, schema=ROWS.schema), [stage_rows(to, ROWS, 1)], batch=1)  # as the table is
    with pytest.raises(InputError, match=r"is partitioned by .*, option partitionBy says bucket\(3, id\): leave"):
        how(tmp_path, schema=ROWS.schema, partitionBy="bucket(3,id)")


def test_a_required_column_takes_rows_and_names_the_first_null_and_texts_become_uuids(tmp_path):
    columns = (
        NestedField(1, "n", LongType(), required=True), NestedField(2, "u", UUIDType()),
        NestedField(3, "i", IntegerType()),
    )  # fmt: skip
    catalog_of(tmp_path).create_table(NAME, Schema(*columns))
    schema = pa.schema([("n", pa.int64()), ("u", pa.string()), ("i", pa.int16())])
    to, one = how(tmp_path, schema=schema), uuid.uuid4()

    def of(n: int | None, text: str | None) -> pa.Table:
        return pa.table([[n], [text], [3]], schema=schema)

    publish(to, [stage_rows(to, of(1, str(one))), stage_rows(to, of(2, None))], batch=0)
    assert rows(tmp_path) == [{"n": 1, "u": one, "i": 3}, {"n": 2, "u": None, "i": 3}]
    with pytest.raises(InputError, match=r"column n is null in a row, and the table declares it NOT NULL"):
        stage_rows(to, of(None, str(one)), 1)
    with pytest.raises(InputError, match=r"column u has a value that .*uuid.* cannot hold \('no' is no UUID\)"):
        stage_rows(to, of(1, "no"), 1)
    assert files(tmp_path) == 2


def test_control_rows_inline_come_back_with_the_events(tmp_path):
    schema = row_schema(("",), headers=False, control=True)
    columns = from_arrow_schema(schema.remove_metadata())
    catalog_of(tmp_path)
    sink_options = SinkOptions.parse(options(tmp_path, createTable="true", controlRows="inline"))
    to = with_errors(
        iceberg_publication,
        sink_options,
        sink_options.target,
        SnapshotMode.BARRIER,
        columns,
        overwrite=False,
        stream=True,
    )
    event = {"value": b"v", "topic": "t", "partition": 0, "offset": 4}
    end = {"kind": "barrier", "channel": "t-0", "snapshot": 0, "channels": 1}
    event_rows = pa.Table.from_pylist([event, {"topic": "t", "partition": 0, "offset": 5, "control": end}], schema)
    task = Task(query="q", run="r", batch=0, partition=0, attempt=0)
    publish(to, [stage(to.stage, task, event_rows.to_batches())], batch=0)
    control = [row["control"] for row in rows(tmp_path)]
    assert [None if one is None else (one["kind"], one["snapshot"]) for one in control] == [None, ("barrier", 0)]
    assert table_of(tmp_path).properties.keys() == {"keyedwm.main.q", "write.metadata.delete-after-commit.enabled"}


def test_not_a_number_hides_behind_no_bound(tmp_path):
    values = pa.table({"f": [1.0, float("nan")]})
    to = how(tmp_path, schema=values.schema)
    message = stage_rows(to, values)
    assert message.files[0].metrics["upper_bounds"] == {}
    (file,) = (tmp_path / "db").rglob("*.parquet")
    assert not pq.read_metadata(file).row_group(0).column(0).is_stats_set


def test_a_time_that_python_cannot_hold_is_written(tmp_path):
    late = pa.table({"at": pa.array([10**18, -(10**17)], pa.timestamp("us", "UTC"))})
    to = how(tmp_path, schema=late.schema)
    publish(to, [stage_rows(to, late)], batch=0)
    assert table_of(tmp_path).scan().to_arrow().column("at").cast(pa.int64()).to_pylist() == [10**18, -(10**17)]


def test_columns_that_others_add_rename_and_move_while_a_query_runs_are_found_by_field_id(tmp_path):
    to = how(tmp_path, schema=TWO)
    publish(to, [stage_rows(to, two(1, "a"))], batch=0)
    with table_of(tmp_path).update_schema() as update:
        update.add_column("new", StringType())
        update.rename_column("s", "text")
        update.move_first("s")
    publish(to, [stage_rows(to, two(2, "b"), 1)], batch=1)
    assert sorted(rows(tmp_path), key=lambda row: row["n"]) == [
        {"text": "a", "n": 1, "new": None}, {"text": "b", "n": 2, "new": None},
    ]  # fmt: skip
    with table_of(tmp_path).update_schema() as update:
        update.delete_column("text")
    with pytest.raises(UnavailableError, match=r"the column s of the Iceberg table db\.t changed after the rows"):
        publish(to, [stage_rows(to, two(3, "c"), 2)], batch=2)
    assert len(rows(tmp_path)) == 2


def test_a_table_that_gets_other_partitions_while_a_query_runs_is_refused_until_it_starts_again(tmp_path):
    to = how(tmp_path)
    publish(to, [stage_rows(to, [1])], batch=0)
    message = stage_rows(to, [2], 1)
    with table_of(tmp_path).update_spec() as update:
        update.add_identity("n")
    with pytest.raises(UnavailableError, match=r"the partitions of the Iceberg table db\.t changed after the rows"):
        publish(to, [message], batch=1)
    again = how(tmp_path)
    publish(again, [stage_rows(again, [2, 3], 1)], batch=1)
    assert numbers(tmp_path) == [1, 2, 3]


def test_merge_schema_adds_columns_and_lets_rows_lack_some(tmp_path):
    to = how(tmp_path)
    publish(to, [stage_rows(to, [1])], batch=0)
    with pytest.raises(InputError, match=r"s: string in the rows, missing in the table\); .* mergeSchema=true adds"):
        how(tmp_path, schema=TWO)
    wider = how(tmp_path, schema=TWO, mergeSchema="true")
    publish(wider, [stage_rows(wider, two(2, "b"), 1)], batch=1)
    narrow = how(tmp_path, mergeSchema="true")
    publish(narrow, [stage_rows(narrow, [3], 2)], batch=2)
    assert sorted((row["n"], row["s"]) for row in rows(tmp_path)) == [(1, None), (2, "b"), (3, None)]


def test_a_branch_begins_at_main_and_leaves_main_alone(tmp_path):
    to = how(tmp_path)
    publish(to, [stage_rows(to, [1])], batch=0)
    audit = how(tmp_path, branch="audit")
    publish(audit, [stage_rows(audit, [2], query="of-audit")], batch=0)
    publish(audit, [stage_rows(audit, [2], query="of-audit")], batch=0)
    assert numbers(tmp_path) == [1]
    table = table_of(tmp_path)
    assert sorted(table.scan().use_ref("audit").to_arrow().column("n").to_pylist()) == [1, 2]
    table.manage_snapshots().set_current_snapshot(ref_name="audit").commit()  # audited: main takes its rows over
    assert numbers(tmp_path) == [1, 2]
    first = how(tmp_path / "new", branch="audit")
    publish(first, [stage_rows(first, [5])], batch=0)
    assert numbers(tmp_path / "new") == []


def test_a_batch_is_known_after_its_snapshot_has_expired(tmp_path):
    to = how(tmp_path)
    for batch in range(3):
        publish(to, [stage_rows(to, [batch], batch)], batch=batch)
    foreign_append(tmp_path, 50)
    table = table_of(tmp_path)
    older = [one.snapshot_id for one in table.snapshots() if one.snapshot_id != table.current_snapshot().snapshot_id]
    table.maintenance.expire_snapshots().by_ids(older).commit()
    publish(to, [stage_rows(to, [2], 2)], batch=2)
    publish(to, [stage_rows(to, [3], 3)], batch=3)
    assert numbers(tmp_path) == [0, 1, 2, 3, 50]


def test_a_rollback_behind_the_newest_batch_is_refused_until_it_is_undone_or_accepted(tmp_path):
    to = how(tmp_path)
    for batch in range(2):
        publish(to, [stage_rows(to, [batch], batch)], batch=batch)
    first, newest = (one.snapshot_id for one in table_of(tmp_path).snapshots())
    table_of(tmp_path).manage_snapshots().rollback_to_snapshot(first).commit()
    for _ in range(2):  # also once somebody else has written behind it
        with pytest.raises(InputError, match=r"was rolled back to an older snapshot .* now comes batch 2: set the"):
            publish(to, [stage_rows(to, [2], 2)], batch=2)
        foreign_append(tmp_path, 50)
    table_of(tmp_path).manage_snapshots().set_current_snapshot(snapshot_id=newest).commit()
    publish(to, [stage_rows(to, [2], 2)], batch=2)
    assert numbers(tmp_path) == [0, 1, 2]
    table_of(tmp_path).manage_snapshots().rollback_to_snapshot(first).commit()
    publish(replace(to, guarantee=Guarantee.AT_LEAST_ONCE), [stage_rows(to, [3], 3)], batch=3)
    publish(to, [stage_rows(to, [4], 4)], batch=4)
    assert numbers(tmp_path) == [0, 3, 4]


def test_a_table_that_is_dropped_or_created_again_is_refused(tmp_path):
    to = how(tmp_path)
    publish(to, [stage_rows(to, [0])], batch=0)
    message = stage_rows(to, [1], 1)
    catalog_of(tmp_path).drop_table(NAME)
    with pytest.raises(InputError, match=r"there is no Iceberg table at db\.t, but batch 1 of query q follows batches"):
        publish(to, [message], batch=1)
    catalog_of(tmp_path).create_table(NAME, pa.schema([("n", pa.int64())]))
    with pytest.raises(InputError, match=r"was dropped and created again while the query ran: restore it"):
        publish(to, [stage_rows(to, [1], 1)], batch=1)
    again = how(tmp_path)
    with pytest.raises(InputError, match=r"has no batch of query q, and now comes batch 1: it was dropped and created"):
        publish(again, [stage_rows(again, [1], 1)], batch=1)
    publish(replace(again, guarantee=Guarantee.AT_LEAST_ONCE), [stage_rows(again, [1], 1)], batch=1)
    publish(again, [stage_rows(again, [2], 2)], batch=2)
    assert numbers(tmp_path) == [1, 2]


@pytest.mark.parametrize("properties", [{"format-version": "1"}, {"commit.manifest-merge.enabled": "true"}])
def test_tables_of_version_1_and_those_that_merge_manifests_take_rows(properties, tmp_path):
    columns = pa.schema([("n", pa.int64())])
    catalog_of(tmp_path).create_table(NAME, columns, properties=properties)
    to = how(tmp_path)
    for batch in range(3):
        publish(to, [stage_rows(to, [batch], batch)], batch=batch)
        publish(to, [stage_rows(to, [batch], batch)], batch=batch)
    assert numbers(tmp_path) == [0, 1, 2]


def test_a_commit_copies_no_metadata_which_grows_with_every_snapshot(tmp_path):
    to = how(tmp_path)
    publish(to, [stage_rows(to, [0])], batch=0)
    with patch.object(pyiceberg.table, "update_table_metadata", wraps=update_table_metadata) as copied:
        publish(to, [stage_rows(to, [1], 1)], batch=1)
    assert not copied.called
    assert numbers(tmp_path) == [0, 1]


def test_complete_mode_replaces_the_rows_with_one_snapshot_a_batch(tmp_path):
    to = how(tmp_path, overwrite=True)
    publish(to, [stage_rows(to, [1])], batch=0)
    foreign_append(tmp_path, 50)
    publish(to, [stage_rows(to, [2, 3], 1)], batch=1)
    publish(to, [stage_rows(to, [2, 3], 1)], batch=1)
    assert (numbers(tmp_path), len(table_of(tmp_path).snapshots())) == ([2, 3], 3)


def test_a_neighbour_that_compacts_and_expires_at_the_same_time_costs_no_row(tmp_path):
    run = play(tmp_path, 25)
    assert (run.lost_numbers, run.doubled, run.failed) == ([], [], [])
    assert run.turns
