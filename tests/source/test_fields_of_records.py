"""Columns that the source reads out of keys and values (`columns=json:$.amount::double AS amount`)."""

from __future__ import annotations

import json

import pytest

from keyedwm.core.errors import OptionError
from keyedwm.core.places import TEXT_TYPES, Field
from pyspark_wm_source.options.selected_columns import selected_columns
from pyspark_wm_source.options.source_options import SourceOptions
from pyspark_wm_source.task.scan import needed_columns
from tests.tools import Record, at, events, produce

KNOWN = ("key", "value", "topic", "partition", "offset", "timestamp", "event_time", "watermark", "control")
STRING, BIGINT, DOUBLE = TEXT_TYPES
EXPECTED = "json:PATH::TYPE AS NAME is expected"


@pytest.mark.parametrize(
    ("text", "names", "fields"),
    [
        ("Key, OFFSET,key", ("key", "offset"), {}),
        ("json:$.amount::double", (), {"amount": Field("value", ("amount",), DOUBLE)}),
        ("json:$.a.b", (), {"b": Field("value", ("a", "b"), STRING)}),
        ("offset, key::string AS device", ("offset",), {"device": Field("key", (), STRING)}),
        ("value :: bigint as n", (), {"n": Field("value", (), BIGINT)}),
        ("key:$.id::bigint As `the id`", (), {"the id": Field("key", ("id",), BIGINT)}),
        ("json:$['a, b']::double AS c , topic", ("topic",), {"c": Field("value", ("a, b",), DOUBLE)}),
        ("json:$['x as y']", (), {"x as y": Field("value", ("x as y",), STRING)}),
        ("json:$.list[0]::bigint AS first", (), {"first": Field("value", ("list", 0), BIGINT)}),
        ("*, json:$.a AS A2", None, {"A2": Field("value", ("a",), STRING)}),
        ("json:$.as::bigint", (), {"as": Field("value", ("as",), BIGINT)}),
        ("JSON:$.a, KEY::string AS k", (), {"a": Field("value", ("a",), STRING), "k": Field("key", (), STRING)}),
        ("json:$.event_timezone", (), {"event_timezone": Field("value", ("event_timezone",), STRING)}),
    ],
)  # fmt: skip
def test_columns_are_the_sources_own_and_fields_in_the_order_given(text, names, fields):
    selection = selected_columns(text, KNOWN)
    assert (selection.names, [*selection.fields.items()]) == (names, [*fields.items()])


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("json:$.a::int", r"'json:\$.a::int' is wrong; one of the types string, bigint, double is .*mean bigint\?"),
        ("json:$.a::decimal(10,2) AS d", r"'json:\$.a::decimal\(10,2\)' is wrong; .*CAST"),
        ("json:a AS b", f"option columns: 'json:a AS b' is wrong; {EXPECTED}"),
        ("jsn:$.a AS b", EXPECTED), ("json:$.a::bigint b", EXPECTED), ("json:$.a AS", EXPECTED),
        ("json:$.a AS b c", EXPECTED), ("json:$.a:bigint", EXPECTED), ('json:$.a AS "b"', EXPECTED),
        ("json:$.a[9999999999] AS b", "a path such as"), ("json:$", EXPECTED),
        ("a::bigint", r"a field of the value's JSON is json:\$.a::bigint"),
        ("$.a", r"a field of the value's JSON is json:\$.a"), ("value:$.a.b", r"is json:\$.a.b"),
        ("customer.city", r"not a column of the source .*; a field of the value's JSON is json:\$.customer.city"),
        ("key AS device", "a column of the source keeps its name: key alone is expected, or key::string AS NAME"),
        ("offset AS o", "a column of the source keeps its name and type: offset alone is expected"),
        ("partition::string AS o", "keeps its name and type: partition alone is expected"),
        ("key::string", "'key::string' is wrong; a name for the column is expected: key::string AS NAME"),
        ("json:$.a[0]", r"a name for the column is expected: json:\$.a\[0\] AS NAME"),
        ("json:$.key", "'key' is a name of the source's own columns: give this one another with AS"),
        ("json:$.a AS Offset", "'Offset' is a name of the source's own"),
        ("json:$.a AS rejected", "'rejected' is a name of the source's own"),
        ("json:$.a AS event_time_made", "'event_time_made' is a name of the source's own"),
        ("json:$.a AS `json:$.b`", "is itself the place of a field"),
        ("json:$.a, json:$.b AS A", "'json:.*b AS A' is wrong; there is a column 'a' already"),
        ("json:$.a, json:$.a", "there is a column 'a' already"),
        ("amuont", "'amuont' is not a column of the source"),
        (" , ", "option columns: it is empty"),
    ],
)  # fmt: skip
def test_a_wrong_column_is_refused_in_one_sentence(text, sentence):
    with pytest.raises(OptionError, match=sentence) as error:
        selected_columns(text, KNOWN)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("text", ["json:$.a.b[1]::bigint", "json:$['a b']::string", "key:$.a::double", "key::string"])
def test_a_field_is_written_as_options_name_it(text):
    (field,) = selected_columns(f"{text} AS x", KNOWN).fields.values()
    assert field.text == text


def parse(**options: str) -> SourceOptions:
    return SourceOptions.parse({"kafka.bootstrap.servers": "host:1", "subscribe": "t", **options})


def test_fields_alone_leave_out_control_rows_and_all_columns_keep_them():
    assert not parse(columns="json:$.a").emit_control
    assert parse(columns="*, json:$.a").emit_control
    assert parse(columns="*, json:$.a", onBadEventTime="reject").selection.names is None


@pytest.mark.parametrize(
    ("columns", "read", "decoded"),
    [
        ("json:$.a", {"a"}, (False, True)), ("key::string AS k, json:$.a", {"k", "a"}, (True, True)),
        ("key::string AS k, json:$.a", {"k"}, (True, False)), ("json:$.a, offset", {"offset"}, (False, False)),
    ],
)  # fmt: skip
def test_only_what_fields_lie_in_is_decoded(columns, read, decoded):
    columns_needed = needed_columns(read, parse(columns=columns))
    assert (columns_needed.key, columns_needed.value) == decoded


def test_channel_states_do_not_depend_on_fields():
    assert parse().settings == parse(columns="*, json:$.a").settings


def test_fields_are_columns_of_event_rows_and_null_in_control_rows(kafka, topic_of, open_stream):
    topic = topic_of()
    texts = [b'{"a": 7, "s": "\\u00e9", "deep": {"x": [1.5]}}', b'{"a": "no", "s": null}', b"{", b"[]"]
    produce(
        kafka.bootstrap, topic, [*(Record(0, 5 + n, text, b"4%d" % n) for n, text in enumerate(texts)), Record(0, 9)]
    )
    columns_asked = "control, offset, json:$.a::bigint, json:$.s, json:$.deep.x[0]::double AS x, key::bigint AS id"
    stream = open_stream(topic, columns=columns_asked)
    assert stream.schema.names == ["offset", "a", "s", "x", "id", "control"]
    first = stream.batch()
    assert [tuple(row.values())[:5] for row in events(first)] == [
        (0, 7, "é", 1.5, 40), (1, None, None, None, 41), (2, None, None, None, 42), (3, None, None, None, 43),
        (4, None, None, None, None),
    ]  # fmt: skip
    control = [row for row in first.to_pylist() if row["control"]]
    assert control
    assert {row[name] for row in control for name in ("a", "s", "x", "id")} == {None}


def test_a_rejected_record_has_no_fields(kafka, topic_of, open_stream):
    topic = topic_of()
    good, bad = {"t": 5_000, "a": 1}, {"t": "never", "a": 2}
    produce(kafka.bootstrap, topic, [Record(0, 7, json.dumps(one).encode()) for one in (good, bad)])
    stream = open_stream(topic, columns="*, json:$.a::bigint", eventTime="json:$.t", onBadEventTime="reject")
    assert [(row["a"], row["event_time"], row["rejected"] is None) for row in events(stream.batch())] == [
        (1, at(5_000), True), (None, None, False),
    ]  # fmt: skip


def test_a_batch_read_has_fields(kafka, topic_of, spark):
    topic = topic_of(2)
    produce(kafka.bootstrap, topic, [Record(n % 2, 5, b'{"n": %d}' % n) for n in range(10)])
    reader = spark.read.format("keyedwm").option("kafka.bootstrap.servers", kafka.bootstrap)
    read = reader.options(subscribe=topic, columns="json:$.n::bigint, json:$.n AS text").load()
    assert read.dtypes == [("n", "bigint"), ("text", "string")]
    assert sorted(map(tuple, read.collect())) == [(n, str(n)) for n in range(10)]
