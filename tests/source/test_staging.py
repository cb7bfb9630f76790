"""The option of stage one inside the source: what it asks to be read, and what is wrong with it."""

from __future__ import annotations

import json

import pytest

from keyedwm.core.errors import OptionError
from keyedwm.operators.aggregates import functions as agg
from pyspark_wm_source.options.source_options import SourceOptions
from pyspark_wm_source.options.stage import StageSpec
from pyspark_wm_source.task.scan import needed_columns
from tests.support.frame_stage import frame_stage

NEEDED_OPTIONS = {"kafka.bootstrap.servers": "host:1", "subscribe": "t"}


def parse(stage: StageSpec, **options: str) -> SourceOptions:
    return SourceOptions.parse({**NEEDED_OPTIONS, **stage.as_options(), **options})


SIDE = StageSpec(
    fields={"key": "key", "offset": "offset"}, times={"__time0": ""}, number=1, buckets=2,
    exchange={"kind": "join", "by": ["key"], "times": ["__time0"]},
)  # fmt: skip
STORE = StageSpec(
    fields={"k": "key::string", "event_time": "event_time", "offset": "offset"}, times={}, number=0, buckets=2,
    exchange={"kind": "messages", "by": ["k"], "time": "event_time"},
)  # fmt: skip
V, KEY_AND_VALUE = "json:$.v::bigint", {"k": "json:$.k", "l": "key:$.l"}
# What is asked for → whether keys and values are decoded, the columns that are read, and those of stage one.
READ = {
    "nothing": (frame_stage({}, {"n": agg.count()}), (False, False), [], ["__time"]),
    "the key": (frame_stage({"k": "key"}, {"n": agg.count()}), (True, False), ["key"], ["k", "__time"]),
    "the value": (frame_stage({}, {"n": agg.sum(V)}), (False, True), ["value"], [V, "__time"]),
    "both, once": (
        frame_stage(KEY_AND_VALUE, {"n": agg.count(V)}), (True, True), ["key", "value"], ["k", "l", V, "__time"],
    ),
    "no bytes": (
        frame_stage({"p": "partition"}, {"n": agg.max("offset")}), (False, False), ["partition", "offset"],
        ["p", "offset", "__time"],
    ),
    "what orders, beside a result of the same name": (
        frame_stage({"topic": "key"}, {"n": agg.last("offset")}), (True, False),
        ["key", "topic", "partition", "offset"],
        ["topic", "__topic", "__partition", "__offset", "offset", "__time"],
    ),
    "a side": (SIDE, (True, False), ["key", "offset"], ["key", "offset", "__time0"]),
    "a store": (STORE, (True, False), ["key", "offset", "event_time"], ["k", "event_time", "offset"]),
}  # fmt: skip


@pytest.mark.parametrize("case", READ)
def test_only_what_is_needed_is_decoded(case):
    spec, bytes_wanted, columns, rows = READ[case]
    options = parse(spec)
    columns_needed = needed_columns(set(options.stage.columns.names), options)
    assert (columns_needed.key, columns_needed.value, columns_needed.headers) == (*bytes_wanted, False)
    assert options.stage.columns.names == columns
    assert options.stage.shipped.schema.names == rows
    assert options.stage.shipped.description() == json.loads(json.dumps(spec.exchange))


FRAME = frame_stage({"k": "key"}, {"n": agg.count()})
WRITES = "what an operator over keyedwm.spark.source writes is expected"
WRONG = {
    "no object": "[]",
    "no JSON": "10 seconds",
    "more": {"more": 1},
    "another kind": {"exchange": {**FRAME.exchange, "kind": "more"}},
    "no kind": {"exchange": {}},
    "another window": {"exchange": {**FRAME.exchange, "window": {"kind": "sliding", "size": 1}}},
    "no keys": {"exchange": {**FRAME.exchange, "by": None}},
    "no fields": {"fields": ["k"]},
    "another late rule": {"exchange": {**FRAME.exchange, "late_rule": "windows"}},
}


@pytest.mark.parametrize("case", WRONG)
def test_what_no_operator_writes_is_refused(case):
    wrong = WRONG[case]
    text = wrong if isinstance(wrong, str) else json.dumps({**json.loads(FRAME.as_options()["stage"]), **wrong})
    with pytest.raises(OptionError, match=WRITES):
        SourceOptions.parse({**NEEDED_OPTIONS, "stage": text})


@pytest.mark.parametrize("spec", [FRAME, SIDE, STORE], ids=["frames", "side", "store"])
def test_options_that_contradict_an_operator_are_refused(spec):
    for name in ("emitControl", "barriers"):
        with pytest.raises(OptionError, match=f"{name}: false contradicts the operator over this read, which needs"):
            parse(spec, **{name: "false"})
    with pytest.raises(OptionError, match=r"an operator over a source that is not loaded .* is for streams"):
        parse(spec).for_batch()


def test_an_axis_and_a_field_that_the_source_does_not_have_are_named():
    with pytest.raises(OptionError, match="axis must be one of '', not 'made'"):
        parse(StageSpec(**{**vars(SIDE), "times": {"__time0": "made"}}))
    with pytest.raises(OptionError, match=r"option stage: the source has no column 'keys'; did you mean 'key'\?"):
        parse(StageSpec(**{**vars(STORE), "fields": {**STORE.fields, "k": "keys"}}))
