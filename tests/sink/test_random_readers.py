"""Random tables that the sink wrote, by readers that others wrote: no filter passes over a row."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable, Schema

from pyspark_wm_sink.tables.publish import publish
from tests.sink import delta_readers, iceberg_readers
from tests.sink.delta_readers import duckdb_with, how
from tests.sink.table_sink import stage_rows

WIDE = pa.schema([pa.field(f"c{at:02}", pa.int64()) for at in range(40)])


@pytest.fixture(scope="module", params=["delta", "iceberg"])
def player(request):
    module, extensions = {"delta": (delta_readers, ("delta",)), "iceberg": (iceberg_readers, ("avro", "iceberg"))}[
        request.param
    ]
    for package in module.PACKAGES:
        pytest.importorskip(package, reason="make install, or pip install 'keyedwm[test]', brings the readers")
    return module.compare_readers, duckdb_with(*extensions)


@pytest.mark.filterwarnings("ignore")  # of the readers
@pytest.mark.parametrize("seed", range(1, 6))
def test_no_reader_passes_over_a_row_of_a_random_table(player, seed, tmp_path):
    play, duckdb = player
    compared, wrong = play(seed, tmp_path / "t", duckdb, filters=6)
    assert compared
    assert not wrong


@pytest.mark.parametrize(
    ("properties", "indexed"),
    [
        ({}, 32),
        ({"delta.dataSkippingNumIndexedCols": "-1"}, 40),
        ({"delta.dataSkippingNumIndexedCols": "2"}, 2),
        ({"delta.dataSkippingNumIndexedCols": "0"}, 0),
        ({"delta.dataSkippingStatsColumns": "c39, `c38`"}, 2),
        ({"delta.dataSkippingStatsColumns": "c39; c38"}, 40),  # what deltalake cannot read, it passes over
        ({"delta.dataSkippingStatsColumns": "c39, é"}, 40),
        ({"delta.dataSkippingNumIndexedCols": " 3"}, 40),
    ],
    ids=str,
)
def test_a_file_has_bounds_of_the_columns_of_which_the_table_wants_them(properties, indexed, tmp_path):
    """deltalake's Arrow reader takes a missing one for "no row matches"; the rows have the columns backwards."""
    DeltaTable.create(tmp_path, Schema.from_arrow(WIDE), configuration=properties)
    rows = pa.table({name: [at] for at, name in enumerate(reversed(WIDE.names))})
    to = how(tmp_path, rows.schema)
    message = stage_rows(to, rows)
    publish(to, [message], batch=0)
    assert len(json.loads(message.files[0].stats)["maxValues"]) == indexed
    dataset = DeltaTable(tmp_path).to_pyarrow_dataset()
    for at, name in enumerate(rows.column_names):
        assert dataset.to_table(filter=pc.field(name) == at).num_rows == 1


def test_a_column_that_the_rows_lack_is_null_to_a_filter(tmp_path):
    DeltaTable.create(tmp_path, Schema.from_arrow(pa.schema([("n", pa.int64()), ("m", pa.int64())])))
    rows = pa.table({"n": [1]})
    to = how(tmp_path, rows.schema, mergeSchema="true")
    publish(to, [stage_rows(to, rows)], batch=0)
    dataset = DeltaTable(tmp_path).to_pyarrow_dataset()
    assert dataset.to_table(filter=pc.field("m").is_null()).num_rows == 1
    assert dataset.to_table(filter=pc.field("m").is_valid()).num_rows == 0


def test_structs_that_are_null_are_found(tmp_path):
    """deltalake's Arrow reader takes a struct without bounds, among columns with bounds, for "no row matches"."""
    of_two = pa.struct([("a", pa.int64()), ("b", pa.struct([("c", pa.string())]))])
    structs = pa.array([None, {"a": 1, "b": {"c": "x"}}], of_two)
    there = pa.table({"n": [1, 2], "s": structs, "none": pa.nulls(2, of_two), "lacking": pa.nulls(2, of_two)})
    DeltaTable.create(tmp_path, Schema.from_arrow(there.schema))
    rows = there.drop_columns("lacking")
    to = how(tmp_path, rows.schema, mergeSchema="true")
    publish(to, [stage_rows(to, rows)], batch=0)
    DeltaTable(tmp_path).create_checkpoint()
    dataset = DeltaTable(tmp_path).to_pyarrow_dataset()
    nulls = {name: dataset.to_table(filter=pc.field(name).is_null()).num_rows for name in there.column_names}
    assert nulls == {"n": 0, "s": 1, "none": 2, "lacking": 2}
    assert dataset.to_table(filter=pc.field("s", "b", "c") == "x").num_rows == 1
    assert dataset.to_table(filter=pc.field("n") > 2).num_rows == 0


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.string(), "𠮷"),  # as an escape of JSON it is another character to readers by Rust's Arrow
        (pa.string(), "\U0010ffff" * 33),
        (pa.decimal128(38, 18), "-3.500000000000000001"),
        (pa.bool_(), True),
        (pa.timestamp("us"), "1969-12-31 23:59:59.999999"),
    ],
    ids=str,
)
def test_a_value_is_found_by_its_bounds(kind, value, tmp_path):
    scalar = pa.scalar(value).cast(kind)
    rows = pa.table([pa.array([scalar.as_py(), None], kind)], ["v"])
    to = how(tmp_path, rows.schema)
    publish(to, [stage_rows(to, rows)], batch=0)
    table = DeltaTable(tmp_path)
    assert table.to_pyarrow_dataset().to_table(filter=pc.field("v") == scalar).num_rows == 1
    (logged,) = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    assert logged["min.v"] <= scalar.as_py() <= logged["max.v"]


def test_polars_reads_the_values_of_partitions_and_fails_where_a_directory_cannot_name_them(tmp_path):
    polars = pytest.importorskip("polars", reason="make install, or pip install 'keyedwm[test]', brings it")
    texts = ["x/y=1%", "é'", " ", "__HIVE", None]
    rows = pa.table({"n": range(5), "s": texts, "at": pa.array([-1, 0, 1, None, 10**15], pa.timestamp("us", "UTC"))})
    to = how(tmp_path / "t", rows.schema, partitionBy="s, at")
    publish(to, [stage_rows(to, rows)], batch=0)
    assert polars.scan_delta(str(tmp_path / "t")).collect().sort("n").to_arrow().to_pylist() == rows.to_pylist()
    long = pa.table({"n": [1], "s": ["你" * 99]})
    to = how(tmp_path / "long", long.schema, partitionBy="s")
    publish(to, [stage_rows(to, long)], batch=0)
    assert DeltaTable(tmp_path / "long").to_pyarrow_table().to_pylist() == long.to_pylist()
    with pytest.raises(polars.exceptions.SchemaFieldNotFoundError, match="values-in-the-log"):
        polars.scan_delta(str(tmp_path / "long")).collect()
