"""Keys that are equal meet in every operator, however their bytes are written: NaN, zeros, texts that are no UTF-8."""

from __future__ import annotations

import datetime as dt
import decimal

import numpy as np
import pyarrow as pa
import pytest

from keyedwm.arrow.columns import valid_texts
from keyedwm.arrow.hashing import content_sum, hashed
from keyedwm.core.errors import InputError
from keyedwm.operators.aggregates import functions as agg
from keyedwm.operators.aggregates.aggregate_function import Groups, RowOrder
from keyedwm.operators.aggregates.distinct import ApproximateDistinct
from keyedwm.operators.buckets import bucket_of
from keyedwm.operators.exchange_input import ExchangeMessages
from keyedwm.operators.frames.partials import ExchangePartials, combine_rows
from keyedwm.operators.frames.plan import SlidingWindow, WindowPlan
from keyedwm.operators.join.exchange_side import ExchangeSide
from keyedwm.operators.messages.channels import Channels
from keyedwm.operators.process.plan import ProcessInput
from keyedwm.operators.protocol import operator_of
from keyedwm.operators.shuffle import shipped
from keyedwm.operators.state.blobs import unpacked
from keyedwm.operators.state.key_dictionary import KeyDictionary, key_columns
from keyedwm.operators.state.store import MemoryStore

# As the JVM makes them: 0 / 0, sqrt(-1) on x86, and one with a payload.
NANS = np.array([0x7FF8000000000000, 0xFFF8000000000000, 0x7FF8000000000001], np.uint64).view(np.float64)
NO_TEXT = pa.array([b"\xff", b"caf\xe9", b"ok", None]).view(pa.string())
SCHEMA = pa.schema([("k", pa.float64()), ("time", pa.int64())])


def floats(values, kind) -> pa.Array:
    with np.errstate(all="ignore"):
        return pa.array(values.astype(kind.to_pandas_dtype()))


@pytest.mark.parametrize("kind", [pa.float64(), pa.float32()], ids=str)
def test_all_nans_are_one_key_and_both_zeros_are(kind):
    for values in (floats(NANS, kind), pa.array([0.0, -0.0], kind)):
        assert len(set(bucket_of([pa.chunked_array([values])], len(values), 997).tolist())) == 1
        assert len(set(hashed(values).tolist())) == 1
        known = KeyDictionary([pa.field("k", kind)])
        assert set(known.numbers(key_columns(["k"], pa.table({"k": values})), len(values)).tolist()) == {0}


INPUTS = {
    "aggregate": ExchangePartials(
        WindowPlan(
            schema=SCHEMA, by=("k",), window=SlidingWindow(10, 10), aggregates=(("n", agg.count()),), time="time"
        )
    ),
    "process": ProcessInput(schema=SCHEMA, by=("k",), time="time"),
    "store": ExchangeMessages(schema=SCHEMA, by=("k",), time="time"),
    "join": ExchangeSide(schema=SCHEMA, by=("k",), times=("time",)),
}


@pytest.mark.parametrize("of", INPUTS)
def test_every_operator_ships_equal_keys_to_one_bucket(of):
    rows = pa.table([pa.array(np.append(NANS, [0.0, -0.0])), pa.array([1, 2, 3, 4, 5])], schema=SCHEMA)
    ids = tuple(range(64))
    batches = list(shipped({0: INPUTS[of]}, ids, 0, [[rows]], ()))
    assert [len(set(batch["bucket"].to_pylist())) for batch in batches] == [2]
    if of == "process":  # which groups by the bytes
        tables = [unpacked(blob) for blob in batches[0]["partials"].to_pylist()]
        assert sorted(len(set(table["k"].cast(pa.float64()).to_numpy().view(np.int64))) for table in tables) == [1, 1]


BUCKETS = {  # of 1,000, as version 0.2.0 had them
    "text": (pa.array(["a", "b", "", "Zürich", None]), [619, 389, 202, 2, 585]),
    "bytes": (pa.array([b"a", b"\xff", b"", None]), [619, 987, 202, 585]),
    "double": (pa.array([1.5, float("nan"), 0.0, -1e300, None]), [786, 501, 0, 490, 585]),
    "float": (pa.array([1.5, float("nan"), 0.0, None], pa.float32()), [451, 147, 0, 585]),
    "int": (pa.array([1, -2, None]), [452, 903, 585]),
    "decimal": (pa.array([decimal.Decimal("1.50"), None]), [58, 585]),
    "date": (pa.array([dt.date(2020, 1, 1), None]), [450, 585]),
    "boolean": (pa.array([True, False, None]), [452, 0, 585]),
}


@pytest.mark.parametrize("kind", BUCKETS)
def test_keys_stay_in_the_buckets_of_0_2_0(kind):
    """There partials had one NaN and one zero already, so no bucket of a state of that version changes."""
    values, expected = BUCKETS[kind]
    assert bucket_of([pa.chunked_array([values])], len(values), 1_000).tolist() == expected


HOSTILE = {
    "text": NO_TEXT,
    "wide text": pa.array([b"\xff", b"", None], pa.large_binary()).view(pa.large_string()),
    "long text": pa.array(["x" * 3_000_000, "y" * 3_000_000, None]),
    "bytes": pa.array([b"\xff\xfe", b"", None]),
    "date": pa.array([-719_530, 106_751_991, 2**31 - 1, -(2**31), None], pa.int32()).cast(pa.date32()),
    "instant": pa.array([2**63 - 1, -(2**63), None]).cast(pa.timestamp("us", "UTC")),
    "local time": pa.array([2**63 - 1, -(2**63), None]).cast(pa.timestamp("us")),
    "duration": pa.array([2**63 - 1, -(2**63), None]).cast(pa.duration("us")),
    "decimal": pa.array([decimal.Decimal("9" * 38), decimal.Decimal("-" + "9" * 38), None], pa.decimal128(38, 0)),
    "nothing": pa.nulls(3),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_key_that_python_cannot_hold_is_one_like_any_other(kind):
    values = HOSTILE[kind]
    table = pa.table({"k": values})
    buckets = bucket_of([table["k"]], len(values), 1_000)
    hashed(values.drop_null())
    content_sum(table)
    known = KeyDictionary([table.schema.field("k")])
    numbers = known.numbers(key_columns(["k"], table), len(values))
    assert len(set(numbers.tolist())) == len(values) or kind == "nothing"
    assert len(set(buckets.tolist())) == len(set(numbers.tolist()))
    again = known.numbers(key_columns(["k"], pa.table({"k": known.columns(numbers)[0]})), len(values))
    assert again.tolist() == numbers.tolist()


def test_texts_that_are_no_utf_8_are_read_as_java_shows_them():
    inner = pa.struct([("a", pa.string()), ("n", pa.int32())])
    structs = pa.StructArray.from_arrays([NO_TEXT, pa.array([1, 2, 3, None], pa.int32())], fields=list(inner))
    structs = pa.concat_arrays([structs, pa.nulls(1, inner)])
    lists = pa.ListArray.from_arrays(pa.array([0, 2, None, 4, 4, 5], pa.int32()), structs)
    maps = pa.MapArray.from_arrays(pa.array([0, 1, 3, 3, 3, 3], pa.int32()), NO_TEXT.slice(0, 3), structs.slice(0, 3))
    table = pa.table({
        "text": pa.concat_arrays([NO_TEXT, NO_TEXT.slice(0, 1)]), "struct": structs, "list": lists, "map": maps,
        "n": [1, 2, 3, 4, 5],
    })  # fmt: skip
    a, b, ok = "\ufffd", "caf\ufffd", "ok"
    structs_read = [{"a": a, "n": 1}, {"a": b, "n": 2}, {"a": ok, "n": 3}, {"a": None, "n": None}, None]
    lists_read = [structs_read[:2], structs_read[2:4], None, [], [None]]
    maps_read = [[(a, structs_read[0])], [(b, structs_read[1]), (ok, structs_read[2])], [], [], []]
    for rows, first in ((table, 0), (table.slice(1), 1), (pa.concat_tables([table.slice(2), table.slice(0, 2)]), 2)):
        valid_rows = valid_texts(rows)
        valid_rows.validate(full=True)
        assert valid_rows.schema == rows.schema
        texts = {"text": [a, b, ok, None, a], "struct": structs_read, "list": lists_read, "map": maps_read}
        for name, read in texts.items():
            expected_texts = read[first:] + (read[:first] if rows.num_rows == 5 else [])
            assert valid_rows[name].to_pylist() == expected_texts
    fine = pa.table({"text": ["a", None]})
    assert valid_texts(fine) is fine


def test_a_key_that_an_older_state_holds_in_other_bytes_goes_on_as_the_same_key():
    schema = pa.schema([("k", pa.string()), ("time", pa.int64())])
    plan = WindowPlan(
        schema=schema, by=("k",), window=SlidingWindow(10, 10), aggregates=(("n", agg.count()),), time="time"
    )
    new = combine_rows(plan, pa.table([NO_TEXT.slice(0, 1), pa.array([1])], schema=schema))
    old = new.set_column(0, new.schema.field("k"), NO_TEXT.slice(0, 1))
    store = MemoryStore()
    for partials in (old, new):
        operator = operator_of(plan, store)
        assert not list(operator.on_rows(0, partials, None))
        store.apply(operator.drain())
    (output,) = operator_of(plan, store).on_watermark(0, 0, 10)
    assert output.rows.select(["k", "n"]).to_pylist() == [{"k": "\ufffd", "n": 2}]


def test_an_approximate_count_takes_all_nans_for_one_value():
    values = pa.array(np.append(NANS, [0.0, -0.0]))
    sketches = ApproximateDistinct().gather(
        values, RowOrder(np.zeros(5, np.int64), ()), Groups(np.zeros(5, np.int64), 1)
    )
    assert ApproximateDistinct().finish(sketches, np.ones(1, np.int64)).to_pylist() == [2]


def test_the_content_of_rows_does_not_depend_on_how_a_nan_was_computed():
    sums = {content_sum(pa.table({"x": [value], "s": [{"x": value}]})) for value in NANS[:1]}
    for value in NANS[1:]:
        column = pa.array(np.array([value]))
        struct = pa.StructArray.from_arrays([column], ["x"])
        sums.add(content_sum(pa.table({"x": column, "s": struct})))
    assert len(sums) == 1
    assert content_sum(pa.table({"x": [0.0]})) != content_sum(pa.table({"x": [-0.0]}))


FAR = pa.array([0, 106_751_991], pa.int32()).cast(pa.date32())


def test_a_date_that_python_cannot_hold_is_named_where_an_aggregate_of_the_users_own_takes_it():
    schema = pa.schema([("d", pa.date32()), ("topic", pa.string()), ("offset", pa.int64()), ("time", pa.int64())])
    latest = agg.Aggregate(
        column="d",
        result=pa.int64(),
        create=list,
        accumulate=lambda values, one: [*values, one],
        combine=lambda a, b: a + b,
    )
    plan = WindowPlan(
        schema=schema, by=(), window=SlidingWindow(10, 10), aggregates=(("n", latest),), time="time",
        order=("topic", "offset"),
    )  # fmt: skip
    rows = pa.table([FAR, pa.array(["t", "t"]), pa.array([7, 8]), pa.array([1, 2])], schema=schema)
    with pytest.raises(InputError, match=r"date32.*one \(of the row t, 8\) lies beyond the years 1 to 9999"):
        combine_rows(plan, rows)


def test_an_event_time_that_no_result_can_hold_is_named_with_its_row():
    schema = pa.schema(
        [("topic", pa.string()), ("partition", pa.int32()), ("offset", pa.int64()), ("time", pa.int64())]
    )
    plan = WindowPlan(
        schema=schema, by=(), window=SlidingWindow(10, 10), aggregates=(("n", agg.count()),), time="time",
        order=("topic", "partition", "offset"),
    )  # fmt: skip
    rows = pa.table([["t", "t"], [0, 1], [7, 8], [1, -(2**60)]], schema=schema)
    with pytest.raises(InputError, match="of topic t, partition 1, offset 8, is farther from 1970 than"):
        combine_rows(plan, rows)


@pytest.mark.parametrize("in_struct", [False, True])
def test_rows_of_one_record_that_differ_in_a_date_beyond_pythons_are_refused_by_name(in_struct):
    days = pa.StructArray.from_arrays([FAR], ["d"]) if in_struct else FAR
    rows = pa.table({"topic": ["t", "t"], "partition": [0, 0], "offset": [5, 5], "d": days})
    channels = Channels(("topic", "partition", "offset"))
    with pytest.raises(InputError, match="several rows of one record differ in 'd'"):
        channels.fresh(rows, channels.numbers(rows))
