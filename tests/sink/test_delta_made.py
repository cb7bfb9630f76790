"""Tables that Spark's own Delta made, each with one thing that asks something of its writers: appended to, or refused.

The tables are beside `make.py`, which made them.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder
from pyspark.sql.types import LongType, StringType, StructType, TimestampNTZType

from keyedwm.core.errors import InputError
from pyspark_wm_sink.batch.task import Task
from pyspark_wm_sink.tables.publish import publish
from pyspark_wm_sink.tables.stage import stage
from pyspark_wm_sink.writer import stream_writer

TABLES_DIRECTORY = Path(__file__).parent / "delta_made"
ROWS = StructType().add("n", LongType()).add("s", StringType())
FURTHER = {"timestamp_ntz": ("at", TimestampNTZType(), pa.timestamp("us"))}
# What the sink does with each table: None for an append, else the words of its refusal.
MATRIX = {
    "append_only": None,
    "change_data_feed": None,
    "char_and_varchar": r"column l is declared as array<varchar\(2\)>, whose lengths are not checked",
    "check_constraint": r"CHECK constraint small \(n < 10\)",
    "check_constraint_features": r"CHECK constraint small \(n < 10\)",
    "checkpoint_protection": "feature checkpointProtection .deltalake .* does not commit to such tables",
    "clustering": r"feature clustering \(deltalake .*feature domainMetadata",
    "column_defaults": r"feature allowColumnDefaults \(deltalake",
    "column_mapping": "delta.columnMapping.mode=name",
    "column_mapping_by_id": "delta.columnMapping.mode=id",
    "deletion_vectors": None,
    "domain_metadata": r"feature domainMetadata \(deltalake",
    "generated": r"column g is generated \(n \* 2\)",
    "iceberg_compat": r"delta.columnMapping.mode=name; feature icebergCompatV2",
    "identity": r"column i is an identity column; feature identityColumns \(each row needs the next number\)",
    "in_commit_timestamps": r"feature inCommitTimestamp \(each commit needs a time of its own\)",
    "materialized_partitions": r"feature materializePartitionColumns \(files must hold the partition columns\)",
    "not_null": None,
    "not_null_inside": r"field o\.x is not null",
    "plain": None,
    "row_tracking": r"feature rowTracking \(each file needs ids for its rows\)",
    "row_tracking_supported": r"feature rowTracking \(each file needs ids for its rows\)",
    "timestamp_ntz": None,
    "type_widening": r"feature typeWidening \(deltalake",
    "v2_checkpoint": None,
    "vacuum_protocol_check": r"feature vacuumProtocolCheck \(deltalake",
    "variant": None,
}


@pytest.fixture
def copy_table(tmp_path: Path):
    def copy(name: str) -> Path:
        return Path(shutil.copytree(TABLES_DIRECTORY / name, tmp_path / name))

    return copy


def write(table: Path, rows: pa.Table, schema: StructType, batch: int = 0, query: str = "q", **options: str) -> None:
    """One batch as Spark would have it: the start's checks, one task, the commit."""
    overwrite = options.pop("overwrite", "") == "yes"
    how = stream_writer({"path": str(table), **options}, schema, overwrite=overwrite)._how
    task = Task(query=query, run="r", batch=batch, partition=0, attempt=0)
    publish(how, [stage(how.stage, task, rows.to_batches())], batch=batch)


def parquet(table: Path) -> int:
    return len([file for file in table.rglob("*.parquet") if "_delta_log" not in file.parts])


@pytest.mark.parametrize("name", [name for name, sentence in MATRIX.items() if sentence])
def test_a_table_that_asks_what_the_sink_does_not_do_is_refused_by_name_before_anything_is_written(copy_table, name):
    table = copy_table(name)
    files, version = parquet(table), DeltaTable(table).version()
    with pytest.raises(InputError, match=MATRIX[name]) as error:
        stream_writer({"path": str(table), "mergeSchema": "true"}, ROWS, overwrite=False)
    assert "another writer" not in error.value.message
    assert (parquet(table), DeltaTable(table).version()) == (files, version)


@pytest.mark.parametrize("name", [name for name, sentence in MATRIX.items() if not sentence])
def test_a_table_whose_features_ask_nothing_of_an_append_takes_rows(copy_table, name):
    table = copy_table(name)
    before, protocol = DeltaTable(table).schema().to_json(), DeltaTable(table).protocol()
    files = len(DeltaTable(table).file_uris())
    rows, schema = pa.table({"n": [7, 8], "s": ["x", None]}), ROWS
    if name in FURTHER:
        column, kind, arrow = FURTHER[name]
        rows = rows.append_column(column, pa.array([0, None], arrow))
        schema = StructType([*ROWS.fields]).add(column, kind)
    for batch in (0, 1):
        write(table, rows, schema, batch, mergeSchema="true")
    after = DeltaTable(table)
    assert len(after.file_uris()) == files + 2
    assert (after.schema().to_json(), after.protocol()) == (before, protocol)
    newest = json.loads((table / "_delta_log" / f"{after.version():020d}.json").read_text().splitlines()[0])
    size = next(iter(pa.table(after.get_add_actions()).to_pylist()))["size_bytes"]
    assert newest["commitInfo"]["operationMetrics"] == {
        "numFiles": "1", "numOutputRows": "2", "numOutputBytes": str(size),
    }  # fmt: skip


def test_rows_that_replace_those_with_deletion_vectors_leave_none_of_them(copy_table):
    table = copy_table("deletion_vectors")
    write(table, pa.table({"n": [7], "s": ["x"]}), ROWS, overwrite="yes")
    query_result = QueryBuilder().register("t", DeltaTable(table)).execute("select * from t")
    assert pa.table(query_result.read_all()).to_pylist() == [{"n": 7, "s": "x"}]
    newest = (table / "_delta_log" / f"{DeltaTable(table).version():020d}.json").read_text().splitlines()
    (removed,) = [action["remove"] for action in map(json.loads, newest) if "remove" in action]
    assert removed["deletionVector"] is not None


def test_a_feature_that_the_library_does_not_read_is_named(copy_table):
    for feature in ("brandNew", "catalogManaged"):
        table = copy_table("plain")
        log = table / "_delta_log" / f"{0:020d}.json"
        protocol = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": [feature]}
        lines = [json.loads(line) for line in log.read_text().splitlines()]
        for line in lines:
            if "protocol" in line:
                line["protocol"] = {**protocol, "writerFeatures": [feature]}
        log.write_text("\n".join(map(json.dumps, lines)) + "\n")
        with pytest.raises(InputError, match=f"has the feature {feature}, which deltalake does not read: drop it"):
            stream_writer({"path": str(table)}, ROWS, overwrite=False)
        shutil.rmtree(table)


def test_a_constraint_that_comes_while_a_batch_is_staged_publishes_nothing(copy_table):
    table = copy_table("plain")
    how = stream_writer({"path": str(table)}, ROWS, overwrite=False)._how
    message = stage(how.stage, Task(query="q", run="r", batch=0, partition=0, attempt=0), [])
    DeltaTable(table).alter.add_constraint({"small": "n < 10"})
    with pytest.raises(InputError, match="CHECK constraint small"):
        publish(how, [message], batch=0)
