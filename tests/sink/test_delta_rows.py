"""Rows as a table wants them: cast where nothing is lost, held to what its columns forbid, refused in one sentence."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder, Schema
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import IntegerType, StringType, StructType

from keyedwm.core.errors import InputError, OptionError, UnavailableError
from pyspark_wm_sink.batch.task import Task
from pyspark_wm_sink.tables import row_values as written_module
from pyspark_wm_sink.tables.publish import publish
from pyspark_wm_sink.tables.stage import stage
from pyspark_wm_sink.writer import stream_writer
from tests.sink.delta_sink import how, numbers, stage_rows
from tests.sink.test_delta_made import ROWS, copy_table, parquet, write

__all__ = ["copy_table"]
LONG, TEXT, INT = pa.int64(), pa.string(), pa.int32()
OFFSETS = {"topic": TEXT, "partition": INT, "offset": LONG}
TASK = Task(query="q", run="r", batch=0, partition=0, attempt=0)


def table_of(path: Path, *columns: pa.Field) -> Path:
    DeltaTable.create(str(path), Schema.from_arrow(pa.schema(columns)))
    return path


def append(table: Path, rows: list[dict], columns: dict[str, pa.DataType], batch: int = 0, **options: str) -> None:
    schema = pa.schema(list(columns.items()))
    write(table, pa.Table.from_pylist(rows, schema), from_arrow_schema(schema), batch, **options)


def test_a_text_that_is_too_long_for_its_column_is_refused_and_shorter_ones_are_written_as_spark_does(copy_table):
    table = copy_table("char_and_varchar")
    log = table / "_delta_log" / f"{0:020d}.json"
    log.write_text(log.read_text().replace("array<varchar(2)>", "array<string>").replace("__CHAR_VARCHAR_TYPE_STRING"
                   '\\":\\"array', 'other\\":\\"array'))  # fmt: skip
    rows = [{"n": 0, "s": "abc", "c": "x"}, {"n": 1, "s": "äöü  ", "c": "xy"}, {"n": 2, "s": None, "c": None}]
    append(table, rows, {"n": LONG, "s": TEXT, "c": TEXT}, mergeSchema="true")
    stored_rows = sorted((row["n"], row["s"], row["c"]) for row in DeltaTable(table).to_pyarrow_table().to_pylist())
    assert stored_rows == [(0, "abc", "x "), (1, "äöü", "xy"), (2, None, None)]
    files = parquet(table)
    for row, sentence in (
        ({"s": "abcdefg"}, r"column s of the table is varchar\(3\), .* \(t-1, offset 7\) has 7 characters: cut it"),
        ({"c": "abc"}, r"column c of the table is char\(2\), .* \(t-1, offset 7\) has 3 characters: cut it"),
    ):
        rows = [{"s": "a", "c": "b"}, {**row, "topic": "t", "partition": 1, "offset": 7}]
        with pytest.raises(InputError, match=sentence):
            append(table, rows, {"s": TEXT, "c": TEXT, **OFFSETS}, 1, mergeSchema="true")
    assert parquet(table) == files


def test_a_column_that_is_not_null_takes_rows_and_names_the_first_null(copy_table):
    table = copy_table("not_null")
    columns = {"n": LONG, "s": TEXT, **OFFSETS}
    append(table, [{"n": 1}, {"n": 2}], columns, mergeSchema="true")
    place = {"topic": "t", "partition": 0, "offset": 5}
    with pytest.raises(InputError, match=r"column n is null in a row \(t-0, offset 5\), and the table declares it NOT"):
        append(table, [{"n": 1}, {"n": 3}, {"n": None, **place}], columns, 1)
    with pytest.raises(InputError, match="n: not null in the table, missing in the rows"):
        append(table, [], {"s": TEXT}, 1, mergeSchema="true")
    assert sorted(DeltaTable(table).to_pyarrow_table().column("n").to_pylist()) == [1, 2]


WIDENED = [
    (pa.int8(), "long", 1, 1), (INT, "long", -5, -5), (pa.int16(), "integer", 7, 7), (INT, "double", 3, 3.0),
    (pa.int16(), "float", 3, 3.0), (pa.float32(), "double", 0.5, 0.5), (INT, "decimal(12,2)", 4, Decimal("4.00")),
    (pa.decimal128(5, 2), "decimal(7,3)", Decimal("1.25"), Decimal("1.250")),
    (pa.date32(), "timestamp_ntz", dt.date(2024, 3, 31), dt.datetime(2024, 3, 31)),  # noqa: DTZ001 - it has no zone
    (pa.list_(INT), {"type": "array", "elementType": "long", "containsNull": True}, [1, None], [1, None]),
]  # fmt: skip


@pytest.mark.parametrize(("here", "there", "value", "stored_value"), WIDENED)
def test_a_value_is_cast_where_nothing_can_be_lost(tmp_path, here, there, value, stored_value):
    field = {"name": "v", "type": there, "nullable": True, "metadata": {}}
    DeltaTable.create(str(tmp_path), Schema.from_json(json.dumps({"type": "struct", "fields": [field]})))
    for batch in (0, 1):
        append(tmp_path, [{"v": value}, {"v": None}], {"v": here}, batch)
    assert DeltaTable(tmp_path).to_pyarrow_table().column("v").to_pylist() == [stored_value, None] * 2


@pytest.mark.parametrize(
    ("here", "there"),
    [(LONG, "integer"), (LONG, "double"), (INT, "float"), (pa.float64(), "float"), (INT, "decimal(10,2)"),
     (pa.decimal128(5, 2), "decimal(5,3)"), (TEXT, "integer"), (INT, "string"), (pa.timestamp("us", "UTC"), "date")],
)  # fmt: skip
def test_a_value_that_could_be_lost_is_refused_without_advice_that_cannot_help(tmp_path, here, there):
    field = {"name": "v", "type": there, "nullable": True, "metadata": {}}
    DeltaTable.create(str(tmp_path), Schema.from_json(json.dumps({"type": "struct", "fields": [field]})))
    for columns in ({"v": here}, {"v": here, "more": INT}):
        with pytest.raises(InputError, match=r"v: .* in the rows, .* in the table") as error:
            append(tmp_path, [], columns)
        assert "mergeSchema" not in error.value.message
        assert "cast" in error.value.message


def test_a_date_becomes_the_start_of_its_day_in_the_sessions_zone(tmp_path, monkeypatch):
    table = table_of(tmp_path / "t", pa.field("v", pa.timestamp("us", "UTC")))
    zone = {"spark.sql.session.timeZone": "America/Sao_Paulo"}
    monkeypatch.setattr(written_module, "TaskContext", type("Of", (), {"get": lambda: Zone}))
    monkeypatch.setattr(Zone, "getLocalProperty", staticmethod(zone.get), raising=False)
    append(table, [{"v": dt.date(2018, 11, 4)}], {"v": pa.date32()})  # a day that begins at one o'clock
    (stored_time,) = DeltaTable(table).to_pyarrow_table().column("v").to_pylist()
    assert stored_time == dt.datetime(2018, 11, 4, 3, tzinfo=dt.timezone.utc)
    zone.clear()
    with pytest.raises(InputError, match=r"column v is a date, .*: set spark\.sql\.session\.timeZone, or cast the"):
        append(table, [{"v": dt.date(2018, 11, 4)}], {"v": pa.date32()}, 1)


class Zone:
    """Stands for a task's context."""


def test_fields_of_structs_find_their_places_and_may_come_and_go_with_merge_schema(tmp_path):
    part = pa.struct([("a", pa.int64()), ("b", pa.string())])
    table = table_of(tmp_path / "t", pa.field("s", part), pa.field("l", pa.list_(part)))

    def row(**fields) -> list[dict]:
        return [{"s": fields, "l": [fields]}]

    def columns(**fields: pa.DataType) -> dict[str, pa.DataType]:
        part = pa.struct(list(fields.items()))
        return {"l": pa.list_(part), "s": part}

    append(table, row(b="x", a=1), columns(b=TEXT, a=INT))
    for fields in ({"a": LONG}, {"a": LONG, "b": TEXT, "c": INT}):
        with pytest.raises(InputError, match=r"s\.[bc]: .*missing in the .*; mergeSchema=true adds columns"):
            append(table, [], columns(**fields), 1)
    append(table, row(a=2), columns(a=LONG), 1, mergeSchema="true")
    append(table, row(c=3, a=3), columns(c=INT, a=LONG), 2, mergeSchema="true")
    rows = sorted(DeltaTable(table).to_pyarrow_table().column("s").to_pylist(), key=lambda one: one["a"])
    assert rows == [{"a": 1, "b": "x", "c": None}, {"a": 2, "b": None, "c": None}, {"a": 3, "b": None, "c": 3}]
    rows = sorted(DeltaTable(table).to_pyarrow_table().column("l").to_pylist(), key=lambda one: one[0]["a"])
    assert rows[2] == [{"a": 3, "b": None, "c": 3}]
    with pytest.raises(InputError, match=r"s\.A: spelled a in the table"):
        append(table, [], columns(A=LONG, b=TEXT, c=INT), 3, mergeSchema="true")


@pytest.mark.parametrize(
    ("was", "now"),
    [('"nullable":true', '"nullable":false'), ('"long"', '"decimal(20,0)"')],
)
def test_a_table_whose_columns_change_while_a_batch_is_staged_gets_nothing_of_it(copy_table, was, now):
    table = copy_table("plain")
    plan = stream_writer(
        {"path": str(table)}, StructType().add("n", IntegerType()).add("s", StringType()), overwrite=False
    )._how
    message = stage(plan.stage, TASK, [pa.record_batch({"n": pa.array([1], pa.int32()), "s": ["a"]})])
    log = table / "_delta_log" / f"{2:020d}.json"
    for line in (table / "_delta_log" / f"{0:020d}.json").read_text().splitlines():
        if "metaData" in line:
            action = json.loads(line)
            schema_text = action["metaData"]["schemaString"].replace(was, now, 1)
            action["metaData"]["schemaString"] = schema_text
            log.write_text(json.dumps(action) + "\n")
    with pytest.raises(
        UnavailableError, match="or their constraints changed after the rows of batch 0 were staged: start"
    ):
        publish(plan, [message], batch=0)


@pytest.mark.parametrize("name", ["sum(x)", "a b", "a,b", "a=b", "a\tb", "a{", "s.a;"])
def test_a_column_whose_name_spark_takes_in_no_table_is_refused_at_its_creation(tmp_path, name):
    top, _, field = name.partition(".")
    column = {top: pa.struct([(field, INT)]) if field else INT}
    with pytest.raises(InputError, match=r"cannot be in a new Delta table, .*: rename it, for example \.with") as error:
        append(tmp_path / "t", [], {"n": INT, **column})
    assert repr(name) in error.value.message
    assert not (tmp_path / "t").exists()
    DeltaTable.create(str(tmp_path / "t"), pa.schema([("n", pa.int32())]))
    for options in ({}, {"mergeSchema": "true"}):
        with pytest.raises(InputError, match=r"missing in the table|its name holds a blank") as error:
            append(tmp_path / "t", [], {"n": INT, **column}, **options)
        assert "mergeSchema" not in str(error.value)


ODD = ["", " ", " a ", "a ", "\t\n\r\x01\x1f", "%41", "%", "a=b", "a/b", "../a", "a\\b", "a:b", "'\"`", "ü\U0001f600é",
       "null", "NULL", "#?&+", "x" * 4_000, "\x7f", "a\u2028b", "{}[]", "__HIVE__", "*", "~"]  # fmt: skip


def test_every_text_comes_back_as_partition_value(tmp_path):
    rows = [{"n": n, "p": text} for n, text in enumerate(ODD)]
    append(tmp_path / "t", rows, {"n": LONG, "p": TEXT}, partitionBy="p")
    there = DeltaTable(tmp_path / "t")
    expected_parts = {row["n"]: row["p"] or None for row in rows}  # as Delta has it, an empty text is null
    read = QueryBuilder().register("t", there).execute("select n, p from t")
    for table_rows in (there.to_pyarrow_table(), pa.table(read.read_all())):
        assert {row["n"]: row["p"] for row in table_rows.to_pylist()} == expected_parts
    with pytest.raises(
        InputError, match=r"column p, which partitions .* the text __HIVE_DEFAULT_PARTITION__ in a row, which read"
    ):
        append(tmp_path / "t", [{"n": 1, "p": "__HIVE_DEFAULT_PARTITION__"}], {"n": LONG, "p": TEXT}, 1)


def test_an_empty_text_of_a_partition_column_that_is_not_null_is_refused_as_a_null_is(tmp_path):
    """Delta's log writes an empty text as null, and readers then refuse the whole table."""
    columns = pa.schema([pa.field("n", LONG), pa.field("p", TEXT, nullable=False)])
    DeltaTable.create(str(tmp_path / "t"), Schema.from_arrow(columns), partition_by=["p"])
    append(tmp_path / "t", [{"n": 1, "p": "a"}], {"n": LONG, "p": TEXT})
    with pytest.raises(InputError, match=r"column p is an empty text in a row.*it partitions .* declares it NOT NULL"):
        append(tmp_path / "t", [{"n": 2, "p": "b"}, {"n": 3, "p": ""}], {"n": LONG, "p": TEXT}, 1)
    assert DeltaTable(tmp_path / "t").to_pyarrow_table().to_pylist() == [{"n": 1, "p": "a"}]


def test_every_text_that_spark_takes_comes_back_as_name_of_a_column(tmp_path):
    names = ["a.b", "a`b", "a'b", '"', "a/b", "a\\b", "%41", "ü\U0001f600", "a:b", "a-b", "[0]", "#?", "x" * 300, "$"]
    for n, name in enumerate(names):
        table = tmp_path / str(n)
        rows = pa.table({name: [1], "a": [{"b": 9, "c": 9}], "n": [2], "p": ["x"]})
        columns = from_arrow_schema(rows.schema)
        write(table, rows, columns)
        there = DeltaTable(table)
        assert there.to_pyarrow_table().to_pylist() == rows.to_pylist()
        (action,) = pa.table(there.get_add_actions()).to_pylist()
        assert (action["max"][name], action["max"]["n"]) == (1, 2)
        other = tmp_path / f"by-{n}"
        write(other, rows, columns, partitionBy=name)
        assert DeltaTable(other).to_pyarrow_table().select(rows.column_names).to_pylist() == rows.to_pylist()


def test_a_table_comes_back_from_every_path_or_its_path_is_refused(tmp_path):
    accepted_names = [
        "a b",
        " a",
        "a ",
        "a=b",
        "a:b",
        "%",
        "%zz",
        "'\"`",
        "ü\U0001f600é",
        "*",
        "~",
        "a&b+c",
        "$x",
        "x" * 200,
        "a|b",
    ]
    for name in accepted_names:
        to = how(tmp_path / name)
        stream_writer({"path": str(tmp_path / name)}, ROWS, overwrite=False)
        publish(to, [stage_rows(to, [1])], batch=0)
        publish(to, [stage_rows(to, [2], 1)], batch=1)
        assert numbers(tmp_path / name) == [1, 2]
        assert (tmp_path / name / "_delta_log").is_dir()
    for name in ("a\\b", "a\nb", "a\x7fb", "a\x01", "a#b", "a?b", "%41"):
        for path in (str(tmp_path / name), f"file://{tmp_path}/{name}"):
            with pytest.raises(OptionError, match=r"option path: .* is wrong; "):
                stream_writer({"path": path}, ROWS, overwrite=False)
    assert sorted(one.name for one in tmp_path.iterdir()) == sorted(accepted_names)
