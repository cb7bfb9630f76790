"""The option of stage one inside the source: what it asks to be read, and what is wrong with it."""

from __future__ import annotations

import json

import pytest

from keyedwm.core.errors import OptionError
from pyspark_wm_source.options.source_options import SourceOptions
from pyspark_wm_source.task.scan import needed_columns

FRAME = {"axis": "", "buckets": 2, "late_rule": "window", "size_ms": 1_000, "offset_ms": 0}


def given(kind: str, told: object, **options: str) -> dict[str, str]:
    text = told if isinstance(told, str) else json.dumps({"kind": kind, **told})
    return {"kafka.bootstrap.servers": "host:1", "subscribe": "t", "stage": text, **options}


def staged(frame=FRAME, by=None, aggregates=None, **options: str) -> dict[str, str]:
    told = {**frame, "by": {} if by is None else by, "aggregates": aggregates or {"n": "count()"}}
    return given("frames", told, **options)


READ = {
    "nothing": ({}, {"n": "count()"}, (False, False), []),
    "the key": ({"k": "key"}, {"n": "count()"}, (True, False), ["key"]),
    "the value": ({}, {"n": "sum(json:$.v::bigint)"}, (False, True), ["value"]),
    "both, once": ({"k": "json:$.k", "l": "key:$.l"}, {"n": "count(json:$.v)"}, (True, True), ["key", "value"]),
    "no bytes": ({"p": "partition"}, {"n": "max(offset)"}, (False, False), ["partition", "offset"]),
    "what orders": ({}, {"n": "last(offset)"}, (False, False), ["topic", "partition", "offset"]),
}


@pytest.mark.parametrize("case", READ)
def test_only_what_is_needed_is_decoded(case):
    by, aggregates, bytes_wanted, columns = READ[case]
    options = SourceOptions.parse(staged(by=by, aggregates=aggregates))
    wanted = needed_columns(set(options.stage.columns.names), options)
    assert (wanted.key, wanted.value, wanted.headers) == (*bytes_wanted, False)
    assert options.stage.columns.names == columns


def test_a_result_may_be_called_as_what_orders_the_rows():
    options = SourceOptions.parse(staged(by={"topic": "key::string"}, aggregates={"n": "last(value)"}))
    assert options.stage.shipped.result_schema.field("topic").type == "string"
    assert options.stage.columns.names == ["key", "value", "topic", "partition", "offset"]


WRITES = "what an operator over keyedwm.spark.source writes is expected"
WRONG = {
    "'[]' is wrong; a JSON object is expected": given("frames", "[]"),
    "a JSON object is expected|option stage": given("frames", "10 seconds"),
    f"{WRITES}|more": given("more", FRAME),
    f"{WRITES}|[]": given("frames", json.dumps({"kind": [], **FRAME})),
    f"{WRITES}|axis": given("frames", json.dumps(FRAME)),
    "exactly the fields axis, buckets, late_rule, by, aggregates, size_ms, offset_ms are expected": staged(
        {name: value for name, value in FRAME.items() if name != "size_ms"}
    ),
    "whole milliseconds are expected|null": staged({**FRAME, "size_ms": None}),
    "axis must be one of '', not 'made'": staged({**FRAME, "axis": "made"}),
    "axis must be one of '', not []": staged({**FRAME, "axis": []}),
    "exactly the fields": staged({**FRAME, "slide_ms": 10}),
    'a whole number of buckets from 1 up|"buckets": 0': staged({**FRAME, "buckets": 0}),
    'a whole number of buckets from 1 up|"2"': staged({**FRAME, "buckets": "2"}),
    "whole milliseconds|10.5": staged({**FRAME, "size_ms": 10.5}),
    "'windows' is wrong; one of window": staged({**FRAME, "late_rule": "windows"}),
    "by and aggregates as JSON objects of texts are expected|3}": staged(by={"k": 3}),
    "by and aggregates as JSON objects of texts are expected|[]": staged(by=[]),
    "by and aggregates as JSON objects of texts are expected|n": staged(aggregates={"n": 3}),
    "'mode(offset)' is no aggregate": staged(aggregates={"n": "mode(offset)"}),
    "'sum()' is no aggregate": staged(aggregates={"n": "sum()"}),
    "option columns has no effect on windows over a source that is not loaded": staged(columns="key,event_time"),
    "emitControl: false contradicts the operator over this read": staged(emitControl="false"),
}


SIDE = {"name": "left", "number": 0, "columns": ["key", "offset"], "on": ["key"], "axes": [""], "buckets": 2}


def side(spec: object = SIDE, **options: str) -> dict[str, str]:
    return given("join", spec, **options)


def test_of_a_join_side_only_its_columns_are_decoded():
    options = SourceOptions.parse(side(columns="key,offset,event_time,watermark,control"))
    wanted = needed_columns(set(options.stage.columns.names), options)
    assert (wanted.key, wanted.value, wanted.headers) == (True, False, False)
    assert options.stage.columns.names == ["key", "offset", "event_time"]


WRONG_SIDES = {
    "exactly the fields|bucket": side({**SIDE, "bucket": 2}),
    "a whole number of buckets": side({**SIDE, "buckets": "2"}),
    "input 0 or 1": side({**SIDE, "number": 2}),
    "input 0 or 1|true": side({**SIDE, "number": True}),
    "as texts|[1]": side({**SIDE, "on": [1]}),
    "columns, keys and at least one time axis are expected, as texts": side({**SIDE, "columns": "key"}),
    "a name, columns": side({**SIDE, "name": 3}),
    "a whole number of buckets from 1": side({**SIDE, "buckets": 0}),
    "at least one time axis": side({**SIDE, "axes": []}),
    "axis must be one of '', not 'made'": side({**SIDE, "axes": ["made"]}),
    "a column of the source is expected|'headers'": side({**SIDE, "columns": ["key", "headers"]}),
    "a column of the source is expected|'event_time'": side(columns="key,offset"),
    "has no column 'value' to join on": side({**SIDE, "on": ["value"]}),
    "emitControl: false contradicts the operator over this read,": side(emitControl="false"),
    "barriers: false contradicts the operator": side(barriers="false"),
}


STORE = {
    "fields": {"k": "key::string", "event_time": "event_time", "offset": "offset"}, "by": ["k"], "axis": "",
    "number": 0, "buckets": 2,
}  # fmt: skip


def kept(change: dict[str, object] | None = None, **options: str) -> dict[str, str]:
    return given("messages", {**STORE, **(change or {})}, **options)


def test_of_messages_that_are_kept_only_what_their_fields_read_is_decoded():
    options = SourceOptions.parse(kept())
    wanted = needed_columns(set(options.stage.columns.names), options)
    assert (wanted.key, wanted.value, wanted.headers) == (True, False, False)
    assert options.stage.columns.names == ["key", "offset", "event_time"]
    assert options.stage.shipped.schema.names == ["k", "event_time", "offset"]
    assert options.stage.shipped.schema.field("k").type == "string"


FIELDS = STORE["fields"]
WRONG_STORES = {
    "fields, by, axis, number are expected": kept({"more": 1}),
    "fields as a JSON object of texts": kept({"fields": ["k"]}),
    "and by as a list of them": kept({"by": "k"}),
    "fields as a JSON object of texts|5": kept({"fields": {**FIELDS, "k": 5}}),
    "input 0 or 1 is": kept({"number": 2}),
    "a whole number of buckets from 1 up": kept({"buckets": 0}),
    "a whole number of buckets from 1 up is expected": kept({"buckets": "2"}),
    "axis must be one of ''|made": kept({"axis": "made"}),
    "'l' is wrong; a field for this column is expected": kept({"by": ["l"]}),
    "'event_time' is wrong; a field for this column is expected": kept({"fields": {"k": "key"}}),
    "the column 'event_time' itself is expected, which has a message's event time|'timestamp'": kept(
        {"fields": {**FIELDS, "event_time": "timestamp"}}
    ),
    "option stage: the source has no column 'keys'; did you mean 'key'?": kept({"fields": {**FIELDS, "k": "keys"}}),
    "emitControl: false contradicts the operator over this read, which": kept(emitControl="false"),
    "barriers: false contradicts the operator over this read": kept(barriers="false"),
}


@pytest.mark.parametrize(("words", "options"), [*WRONG.items(), *WRONG_SIDES.items(), *WRONG_STORES.items()])
def test_wrong_frames_join_sides_and_stores_are_refused(words, options):
    with pytest.raises(OptionError) as refused:
        SourceOptions.parse(options)
    assert all(part in str(refused.value) for part in words.split("|"))


@pytest.mark.parametrize("options", [staged(), side(), kept()])
def test_a_batch_read_has_no_operators(options):
    with pytest.raises(OptionError, match=r"an operator over a source that is not loaded .* is for streams"):
        SourceOptions.parse(options).for_batch()
