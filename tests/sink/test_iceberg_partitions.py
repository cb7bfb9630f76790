"""The partition and the bounds of a row beside PyIceberg's own scalar functions, over values at the edges of types."""

from __future__ import annotations

import re
import uuid
from collections import Counter
from dataclasses import replace
from decimal import Context, Decimal
from itertools import product

import pyarrow as pa
import pytest
from pyiceberg.expressions import EqualTo, GreaterThanOrEqual, LessThan, LessThanOrEqual
from pyiceberg.expressions.visitors import _InclusiveMetricsEvaluator, expression_evaluator, inclusive_projection
from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    TruncateTransform,
    YearTransform,
)
from pyiceberg.typedef import Record
from pyiceberg.types import (
    BinaryType,
    DateType,
    DecimalType,
    IcebergType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    TimestampType,
    TimestamptzType,
    UUIDType,
)

from keyedwm.core.errors import InputError, OptionError
from pyspark_wm_sink.batch.task import Task
from pyspark_wm_sink.iceberg.partitions import directory_of, parse_term, partitions_of
from pyspark_wm_sink.iceberg.schema import file_columns
from pyspark_wm_sink.iceberg.stage import IcebergStagePlan
from pyspark_wm_sink.iceberg.table import _data_file
from pyspark_wm_sink.tables.publish import publish
from pyspark_wm_sink.tables.stage import stage
from tests.sink.iceberg_sink import files, how, numbers, stage_rows, table_of

DAY_US = 86_400_000_000
BASE_TIMES = (0, DAY_US, 365 * DAY_US, 3_600_000_000)
ENDS_OF_TIME = (-62_135_596_800_000_000, 253_402_300_799_999_999)  # the years 1 to 9999
STEPS = (-1_000_000, -999_999, -1, 0, 1, 999_999)
TIMES = sorted({sign * at + step for at, step, sign in product(BASE_TIMES, STEPS, (1, -1))} | {*ENDS_OF_TIME})
TIMES = [-(2**63) + 1, ENDS_OF_TIME[0] - 1, *TIMES, ENDS_OF_TIME[1] + 1, 2**63 - 1]
DAYS = [-(2**31), -719_163, -719_162, -366, -365, -59, -1, 0, 1, 58, 365, 2_932_896, 2_932_897, 2**31 - 1]
TEXTS = ["", "a", "a\0b", "abc", "z" * 40, "é" * 5, "\ud7ff" * 3, "\uffff" * 17, "😀" * 4, "\U0010ffff" * 20, "你" * 28]
SPANS = (YearTransform(), MonthTransform(), DayTransform())
TRUNCATIONS = tuple(TruncateTransform(width) for width in (1, 10, 2**31 - 1))
OTHER = (IdentityTransform(), BucketTransform(16))


def whole(bits: int) -> list[int]:
    return [-(2 ** (bits - 1)), 1 - 2 ** (bits - 1), -11, -10, -9, -1, 0, 1, 9, 10, 2 ** (bits - 1) - 1]


def decimals(digits: int, scale: int) -> list[Decimal]:
    most = 10**digits - 1
    numbers = sorted({-most, 1 - most, -129, -128, -11, -10, -1, 0, 1, 9, 127, 128, most})
    return [Decimal(one).scaleb(-scale, Context(prec=60)) for one in numbers if abs(one) <= most]


KINDS: dict[IcebergType, tuple[list, tuple]] = {
    TimestampType(): (TIMES, (*SPANS, HourTransform(), *OTHER)),
    TimestamptzType(): (TIMES, (*SPANS, HourTransform(), *OTHER)),
    DateType(): (DAYS, (*SPANS, *OTHER)),
    IntegerType(): (whole(32), (*TRUNCATIONS, *OTHER)),
    LongType(): (whole(64), (*TRUNCATIONS, *OTHER)),
    DecimalType(3, 0): (decimals(3, 0), (*TRUNCATIONS, *OTHER)),
    DecimalType(9, 2): (decimals(9, 2), (*TRUNCATIONS, *OTHER)),
    DecimalType(38, 10): (decimals(38, 10), (*TRUNCATIONS, *OTHER)),
    StringType(): (TEXTS, (*TRUNCATIONS[:2], *OTHER)),
    BinaryType(): ([text.encode("utf-8") for text in TEXTS] + [b"\xff" * 20], (*TRUNCATIONS[:2], *OTHER)),
    UUIDType(): ([uuid.UUID(int=0), uuid.UUID(int=2**127), uuid.UUID(int=2**128 - 1)], OTHER),
}
CASES = [(kind, transform) for kind, (_, transforms) in KINDS.items() for transform in transforms]


def schema_of(kind: IcebergType) -> Schema:
    return Schema(NestedField(1, "v", kind, required=False))


def column_of(kind: IcebergType, values: list) -> pa.Table:
    """Values as a task has them; times are numbers of microseconds or days."""
    columns = file_columns(schema_of(kind))
    arrow = columns.field("v").type
    if pa.types.is_temporal(arrow):
        return pa.table([pa.array(values, pa.int32() if pa.types.is_date(arrow) else pa.int64()).view(arrow)], columns)
    if isinstance(arrow, pa.UuidType):
        storage = pa.array([one.bytes for one in values], pa.binary(16))
        return pa.table([pa.ExtensionArray.from_storage(arrow, storage)], columns)
    return pa.table([pa.array(values, arrow)], columns)


def scalar(kind: IcebergType, transform, value):
    """The partition by PyIceberg's function of one value; None where it has none that the type can hold."""
    try:
        partition_value = transform.transform(kind)(value)
        transform.to_human_string(kind, partition_value)
    except OverflowError:
        return None
    of = transform.result_type(kind)
    if isinstance(of, DecimalType):
        return partition_value if len(partition_value.as_tuple().digits) <= of.precision else None
    if isinstance(of, IntegerType | LongType):
        return partition_value if of.min <= partition_value <= of.max else None
    return partition_value.bytes if isinstance(partition_value, uuid.UUID) else partition_value


@pytest.mark.parametrize(("kind", "transform"), CASES, ids=lambda one: str(one).replace(" ", ""))
def test_a_row_lies_in_the_partition_that_a_reader_computes_or_is_refused(kind, transform):
    schema, spec = schema_of(kind), PartitionSpec(PartitionField(1, 1000, transform, "part"))

    def parts_of(values: list) -> dict[tuple, int]:
        partitions = partitions_of(column_of(kind, values), spec, schema, has_offsets=False)
        return {part: rows.num_rows for part, rows in partitions}

    part_of_value = {}
    for value in KINDS[kind][0]:
        expected = scalar(kind, transform, value)
        # PyIceberg's scalar ends with Python's years; the years and months beyond keep the order.
        if expected is None and not isinstance(transform, YearTransform | MonthTransform):
            sentence = f"column v, which partitions the table by {term(transform)}, holds {value!r} in a row, and"
            with pytest.raises(InputError, match=re.escape(sentence)):
                parts_of([value])
        else:
            (part,) = parts_of([value])
            assert expected is None or part == (expected,)
            assert all(len(word) < 256 for word in directory_of(part, spec, schema).split("/"))
            part_of_value[value] = part
    assert parts_of(list(part_of_value)) == Counter(part_of_value.values())
    if isinstance(transform, YearTransform | MonthTransform):
        assert list(part_of_value.values()) == sorted(part_of_value.values())


def term(transform) -> str:
    name, _, size = str(transform).rstrip("]").partition("[")
    return "v" if name == "identity" else f"{name}({size}, v)" if size else f"{name}(v)"


def plan_of(place, schema: Schema, spec: PartitionSpec) -> IcebergStagePlan:
    return IcebergStagePlan(
        name="db.t", location=str(place), uuid="u", files={}, properties={}, columns=schema, spec=spec,
        schema=file_columns(schema), has_control=False, inline=False, has_offsets=False,
    )  # fmt: skip


@pytest.mark.parametrize("kind", KINDS, ids=lambda one: str(one).replace(" ", ""))
def test_no_filter_passes_over_a_row_by_its_partition_or_the_bounds_of_its_file(kind, tmp_path):
    """Each file through the two questions by which PyIceberg plans a scan, for filters by its rows' own values."""
    values, transforms = KINDS[kind]
    schema = schema_of(kind)
    filters = (EqualTo, LessThan, LessThanOrEqual, GreaterThanOrEqual)
    spec = PartitionSpec(*(PartitionField(1, 1000 + at, one, f"p{at}") for at, one in enumerate(transforms)))
    written_values = [value for value in values if all(scalar(kind, one, value) is not None for one in transforms)][
        ::-2
    ]
    project = inclusive_projection(schema, spec)
    parts = Schema(*spec.partition_type(schema).fields)
    for value in written_values:
        task = Task(query="q", run="r", batch=0, partition=0, attempt=0)
        pair = column_of(kind, [value, value])
        (file,) = stage(plan_of(tmp_path, schema, spec), task, pair.to_batches()).files
        data_file: DataFile = _data_file(file, 0)
        for literal, compare in product([*written_values[:: max(1, len(written_values) // 9)], value], filters):
            matches = {
                EqualTo: value == literal, LessThan: value < literal, LessThanOrEqual: value <= literal,
                GreaterThanOrEqual: value >= literal,
            }[compare]  # fmt: skip
            if not matches:
                continue
            condition = compare("v", literal)
            of_partition = expression_evaluator(parts, project(condition), case_sensitive=True)
            assert of_partition(Record(*file.partition)), (value, condition)
            assert _InclusiveMetricsEvaluator(schema, condition).eval(data_file), (value, condition)


def test_no_transform_has_a_width_that_other_readers_cannot_read():
    assert parse_term("truncate(2147483647, v)") == ("v", TruncateTransform(2**31 - 1))
    for wrong in ("truncate(2147483648, v)", "bucket(99999999999999999999, v)"):
        with pytest.raises(OptionError, match="bucket"):
            parse_term(wrong)


def test_a_text_whose_directory_would_be_too_long_for_a_file_system_partitions_a_table(tmp_path):
    source_rows = pa.table({"n": pa.array([1, 2, 3]), "s": ["你" * 28, "你" * 29, "/" * 300]})
    to = how(tmp_path, schema=source_rows.schema, partitionBy="s")
    publish(to, [stage_rows(to, source_rows)], batch=0)
    assert numbers(tmp_path) == [1, 2, 3]
    assert table_of(tmp_path).scan(row_filter=EqualTo("s", "你" * 28)).to_arrow().column("n").to_pylist() == [1]
    names = {place.name for place in (tmp_path / "db" / "t" / "data").glob("s=*")}
    assert names == {"s=" + "%E4%BD%A0" * 7, "s=" + "%2F" * 21}


def test_a_row_that_has_no_partition_is_named_with_its_place(tmp_path):
    columns = {"n": pa.array([5, -(2**31)], pa.int32()), "topic": ["t"] * 2, "offset": [7, 8]}
    source_rows = pa.table({**columns, "partition": pa.array([0, 1], pa.int32())})
    to = how(tmp_path, schema=source_rows.schema, partitionBy="truncate(10, n)")
    message = (
        r"column n, which partitions the table by truncate\(10, n\), holds -2147483648 in a row \(t-1, offset 8\), and "
        r"its partition is beyond the numbers that int can hold: leave such rows out, .* \[fix the input\]"
    )
    with pytest.raises(InputError, match=message):
        stage_rows(to, source_rows)
    assert files(tmp_path) == 0


def test_a_commit_that_pyiceberg_cannot_write_is_refused_not_told_as_one_that_passes(tmp_path):
    """Should values come so far: here one that no manifest can hold."""
    source_rows = pa.table({"n": pa.array([5], pa.int32())})
    to = how(tmp_path, schema=source_rows.schema, partitionBy="truncate(10, n)")
    message = stage_rows(to, source_rows)
    (file,) = message.files
    with pytest.raises(InputError, match=r"batch 0 could not be published, because .* does not take it: .*\[fix the"):
        publish(to, [replace(message, files=(replace(file, partition=(2**40,)),))], batch=0)
    publish(to, [message], batch=0)
    assert numbers(tmp_path) == [5]
