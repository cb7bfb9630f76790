"""The options of stage one inside the source: what they ask to be read, and what is wrong with them."""

from __future__ import annotations

import json

import pytest

from keyedwm.core.errors import OptionError
from pyspark_wm_source.options.source_options import SourceOptions
from pyspark_wm_source.task.scan import wanted_columns

FRAME = {"axis": "", "buckets": 2, "late_rule": "window", "size_ms": 1_000, "offset_ms": 0}


def staged(frame=FRAME, by=None, aggregates=None, **options: str) -> dict[str, str]:
    told = {"frame": frame, "by": by or {}, "aggregates": aggregates or {"n": "count()"}}
    texts = {name: json.dumps(value) for name, value in told.items()}
    return {"kafka.bootstrap.servers": "host:1", "subscribe": "t", **texts, **options}


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
    wanted = wanted_columns(set(options.stage.columns.names), options)
    assert (wanted.key, wanted.value, wanted.headers) == (*bytes_wanted, False)
    assert options.stage.columns.names == columns


def test_a_result_may_be_called_as_what_orders_the_rows():
    options = SourceOptions.parse(staged(by={"topic": "key::string"}, aggregates={"n": "last(value)"}))
    assert options.stage.plan.result_schema.field("topic").type == "string"
    assert options.stage.columns.names == ["key", "value", "topic", "partition", "offset"]


def without(name: str) -> dict[str, str]:
    return {key: value for key, value in staged().items() if key != name}


WRONG = {
    "option by is missing: frame, by, aggregates go together": without("by"),
    "option aggregates is missing": without("aggregates"),
    "option frame is missing": without("frame"),
    "'[]' is wrong; a JSON object is expected": {**staged(), "by": "[]"},
    "a JSON object is expected|option frame": {**staged(), "frame": "10 seconds"},
    "it must have axis, buckets, late_rule, size_ms, offset_ms and nothing else": staged(
        {name: value for name, value in FRAME.items() if name != "size_ms"}
    ),
    'option frame: \'{"axis"': staged({**FRAME, "size_ms": None}),
    "axis must be one of ''": staged({**FRAME, "axis": "made"}),
    "nothing else": staged({**FRAME, "slide_ms": 10}),
    'a whole number of buckets from 1 up|"buckets": 0': staged({**FRAME, "buckets": 0}),
    'a whole number of buckets from 1 up|"2"': staged({**FRAME, "buckets": "2"}),
    "and whole milliseconds|10.5": staged({**FRAME, "size_ms": 10.5}),
    "'windows' is wrong; one of window": staged({**FRAME, "late_rule": "windows"}),
    "option by: |a JSON object of texts is expected": staged(by={"k": 3}),
    "option aggregates: |a JSON object of texts is expected": staged(aggregates={"n": 3}),
    "'mode(offset)' is no aggregate": staged(aggregates={"n": "mode(offset)"}),
    "'sum()' is no aggregate": staged(aggregates={"n": "sum()"}),
}


def test_a_batch_read_has_no_frames():
    with pytest.raises(OptionError, match="frame, joinSide and messageStore are for streams"):
        SourceOptions.parse(staged()).for_batch()


SIDE = {"name": "left", "number": 0, "columns": ["key", "offset"], "on": ["key"], "axes": [""], "buckets": 2}


def side(spec: object = SIDE, **options: str) -> dict[str, str]:
    text = spec if isinstance(spec, str) else json.dumps(spec)
    return {"kafka.bootstrap.servers": "host:1", "subscribe": "t", "joinSide": text, **options}


def test_of_a_join_side_only_its_columns_are_decoded():
    options = SourceOptions.parse(side(columns="key,offset,event_time,watermark,control"))
    wanted = wanted_columns(set(options.stage.columns.names), options)
    assert (wanted.key, wanted.value, wanted.headers) == (True, False, False)
    assert options.stage.columns.names == ["key", "offset", "event_time"]


WRONG_SIDES = {
    "what keyedwm.spark.join over keyedwm.spark.source writes|'[]'": side("[]"),
    "what keyedwm.spark.join over keyedwm.spark.source writes|'left'": side("left"),
    "what keyedwm.spark.join over|buckets": side({**SIDE, "bucket": 2}),
    "a whole number of buckets": side({**SIDE, "buckets": "2"}),
    "side 0 or 1": side({**SIDE, "number": 2}),
    "texts, side": side({**SIDE, "on": [1]}),
    "texts, side 0": side({**SIDE, "columns": "key"}),
    "at least one bucket": side({**SIDE, "buckets": 0}),
    "one time axis": side({**SIDE, "axes": []}),
    "a time axis of the source is expected|'made'": side({**SIDE, "axes": ["made"]}),
    "a column of the source is expected|'headers'": side({**SIDE, "columns": ["key", "headers"]}),
    "a column of the source is expected|'event_time'": side(columns="key,offset"),
    "has no column 'value' to join on": side({**SIDE, "on": ["value"]}),
    "joinSide contradicts frame": {**staged(), **side()},
    "emitControl: false contradicts the operator over this read (joinSide)": side(emitControl="false"),
}


STORE = {
    "fields": {"k": "key::string", "event_time": "event_time", "offset": "offset"}, "by": ["k"], "axis": "",
    "number": 0, "buckets": 2,
}  # fmt: skip


def kept(change: dict[str, object] | None = None, **options: str) -> dict[str, str]:
    text = json.dumps({**STORE, **(change or {})})
    return {"kafka.bootstrap.servers": "host:1", "subscribe": "t", "messageStore": text, **options}


def test_of_messages_that_are_kept_only_what_their_fields_read_is_decoded():
    options = SourceOptions.parse(kept())
    wanted = wanted_columns(set(options.stage.columns.names), options)
    assert (wanted.key, wanted.value, wanted.headers) == (True, False, False)
    assert options.stage.columns.names == ["key", "offset", "event_time"]
    assert options.stage.messages.schema.names == ["k", "event_time", "offset"]
    assert options.stage.messages.schema.field("k").type == "string"


FIELDS = STORE["fields"]
WRONG_STORES = {
    "what a store over keyedwm.spark.source writes|more": kept({"more": 1}),
    "what a store over keyedwm.spark.source writes|'[]'": {**kept(), "messageStore": "[]"},
    "what a store over keyedwm.spark.source writes|'store'": {**kept(), "messageStore": "store"},
    "fields as a JSON object of texts": kept({"fields": ["k"]}),
    "and by as a list of them": kept({"by": "k"}),
    "fields as a JSON object of texts|5": kept({"fields": {**FIELDS, "k": 5}}),
    "input 0 or 1": kept({"number": 2}),
    "a whole number of buckets from 1 up|0}": kept({"buckets": 0}),
    'a whole number of buckets from 1 up|"2"': kept({"buckets": "2"}),
    "axis must be one of ''|made": kept({"axis": "made"}),
    "a field for the column 'l' is expected": kept({"by": ["l"]}),
    "a field for the column 'event_time' is expected": kept({"fields": {"k": "key"}}),
    "the column 'event_time' as it is has a message's event time|'timestamp'": kept(
        {"fields": {**FIELDS, "event_time": "timestamp"}}
    ),
    "option messageStore: the source has no column 'keys'; did you mean 'key'?": kept(
        {"fields": {**FIELDS, "k": "keys"}}
    ),
    "joinSide contradicts messageStore": {**kept(), **side()},
    "messageStore contradicts frame": {**kept(), **staged()},
    "emitControl: false contradicts the operator over this read (messageStore)": kept(emitControl="false"),
    "barriers: false contradicts the operator over this read (messageStore)": kept(barriers="false"),
}


@pytest.mark.parametrize(("words", "options"), [*WRONG.items(), *WRONG_SIDES.items(), *WRONG_STORES.items()])
def test_wrong_frames_join_sides_and_stores_are_refused(words, options):
    with pytest.raises(OptionError) as refused:
        SourceOptions.parse(options)
    assert all(part in str(refused.value) for part in words.split("|"))


@pytest.mark.parametrize("options", [side(), kept()])
def test_a_batch_read_has_no_operators(options):
    with pytest.raises(OptionError, match="frame, joinSide and messageStore are for streams"):
        SourceOptions.parse(options).for_batch()
