"""A store over a source that is not loaded: panes and messages given back are those of the plan over loaded rows."""

from __future__ import annotations

import json
import random
from collections import Counter

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException

from keyedwm.core.errors import KeyedwmError
from keyedwm.operators.exchange_input import ExchangeMessages
from keyedwm.spark import (
    Store,
    aggregate,
    collect,
    count,
    early,
    held_messages,
    max,  # noqa: A004
    median,
    oldest_offsets,
    on_demand,
    tumbling,
    tumbling_rows,
    window_function,
    window_join,
)
from keyedwm.spark.hosting.read_messages import message_fields
from keyedwm.spark.hosting.staged_rows import message_columns
from pyspark_wm_source.options.source_options import SourceOptions
from pyspark_wm_source.options.stage import StageSpec
from tests.spark.random_records import bits, random_record
from tests.spark.started import AHEAD, BASE_MS, FAR_MS, event, in_one_batch, steer
from tests.tools import Record

pytestmark = pytest.mark.usefixtures("bucket_conf")
KEY, V, S = {"k": "key::string"}, "json:$.v::bigint", "json:$['s']"
TEN = tumbling("10 seconds")
N = {"n": count()}
WITHIN = Store(retention="10 seconds")


def loaded(read):
    """The rows of a description, with the columns that its fields stand for."""
    text = "get_json_object(cast(value as string), '$.{}')"
    return read.load().selectExpr(
        "*", "cast(key as string) k", f"cast({text.format('v')} as bigint) v", f"{text.format('s')} s"
    )


def told(rows) -> Counter:
    """Results but for their watermark; of a message that is given back, what both plans call by one name."""
    made = Counter()
    for row in (row.asDict() for row in rows if row["control"] is None):
        back = row.pop("rejected")
        named = [back[name] for name in ("topic", "partition", "offset", "key", "value", "reason")] if back else None
        made[repr([*(bits(value) for name, value in row.items() if name != "watermark"), named])] += 1
    return made


def far() -> Record:
    """A record so far ahead that its partition holds nobody."""
    return AHEAD._replace(value=json.dumps({"at": FAR_MS}).encode())


def records(chance: random.Random, now_ms: int, count: int) -> list[Record]:
    """Events around this time, many of them late, and the record that moves the watermark there."""
    events = [random_record(chance, now_ms + chance.randrange(-30_000, 9_000)) for _ in range(count)]
    return [far(), *events, steer(now_ms)._replace(value=json.dumps({"at": BASE_MS + now_ms}).encode())]


WINDOWS = {
    "tumbling": (TEN, WITHIN, {"early": early(rows=5)}),
    "the rows of a partition": (tumbling_rows(7), Store(max_windows=3), {}),
    "on demand": (on_demand("3 seconds", "offset > 40"), WITHIN, {}),
}


@pytest.mark.parametrize("case", WINDOWS)
def test_panes_and_what_is_given_back_are_what_they_are_over_loaded_rows(case, topic_of, described, started, seed):
    topic = topic_of(2)
    window, store, how = WINDOWS[case]
    chance = random.Random(f"{seed} {case}")
    of_value = window_function(lambda rows: sum(len(one or b"") for one in rows["value"].to_pylist()), pa.int64())
    read = described(topic, eventTime="json:$.at", watermarkLag="0 seconds", watermarkThrottle="none")
    how = {"store": store, "late": "emit", "name": "w", "buckets": 2, **how}

    def aggregates(v: str, s: str):
        return {"n": count(), "median": median(v), "texts": collect(s), "bytes": of_value, "last": max("offset")}

    pushed = started(aggregate(read, KEY, window, aggregates(V, S), **how), later=True)
    plain = started(aggregate(loaded(read), "k", window, aggregates("v", "s"), **how), later=True)
    made = 0
    for step in range(3):
        steps = [(topic, records(chance, step * 9_000, 50))]
        both = [told(rows) for rows in in_one_batch([pushed, plain], steps)]
        if step == 1:
            pushed.stop()
        assert both[0] == both[1]
        made += both[0].total()
    assert made > 20
    counted = [{name: made for name, made in one.metrics().items() if "bucket" not in name} for one in (pushed, plain)]
    assert {**counted[0], "state_bytes": 0} == {**counted[1], "state_bytes": 0}


def test_an_option_says_which_columns_of_the_source_messages_hold(spark, topic_of, described, started):
    topic = topic_of(2)
    read = described(topic, watermarkLag="0 seconds", columns="topic,partition,offset,event_time,watermark,control")
    frame = aggregate(read, KEY, TEN, {"n": median("value::bigint")}, store=WITHIN, name="w", late="emit")
    query = started(frame)
    query.give(topic, [AHEAD, event(1_000, "a", 5), event(2_000, "a", 7), steer(5_000)])
    kept = held_messages(spark, query._checkpoint).where("k = 'a'").orderBy("offset")
    assert {"k", "value::bigint", "topic", "partition", "offset", "event_time"} <= set(kept.columns)
    assert not {"key", "value", "timestamp"} & set(kept.columns)
    assert [(row["value::bigint"], row["offset"]) for row in kept.collect()] == [(5, 1), (7, 2)]
    begin = json.loads(oldest_offsets(spark, query._checkpoint))
    assert begin[topic]["0"] <= 1


def test_a_join_of_windows_over_sources_is_that_of_loaded_rows(topic_of, described, started, seed):
    topics = topic_of(2), topic_of(2)
    chance = random.Random(f"{seed} join")
    given = {"eventTime": "json:$.at", "watermarkLag": "0 seconds", "watermarkThrottle": "none"}
    reads = [described(topic, includeHeaders=True, **given) for topic in topics]
    how = {"on": "key", "window": TEN, "store": WITHIN, "how": "full", "late": "emit", "buckets": 2}
    joined = (
        window_join(*reads, name="both", **how),
        window_join(reads[0], reads[1].load(), name="one", **how),
        window_join(*(read.load() for read in reads), name="none", **how),
    )
    queries = [started(frame, later=True) for frame in joined]
    made = 0
    for step in range(3):
        steps = [(topic, records(chance, step * 9_000, 30)) for topic in topics]
        both, one, none = (told(rows) for rows in in_one_batch(queries, steps))
        if step == 1:
            queries[0].stop()
        assert both == none
        assert one == none
        made += none.total()
    assert made > 20


CALLS = {
    "a key cannot be called 'key', which is a column of the source that messages hold: give it another name, "
    "by={'NAME': 'key::string'}, or leave the column out": lambda r: aggregate(r, "key::string", TEN, N, store=WITHIN),
    "option by: the source has no column 'kee'; did you mean 'key'": lambda r: aggregate(
        r, "kee", TEN, N, store=WITHIN
    ),
    "option aggregates: the source has no column 'amount'": lambda r: aggregate(
        r, "key", TEN, {"n": median("amount")}, store=WITHIN
    ),
    "median(json:$.v) needs numbers, not string": lambda r: aggregate(
        r, "key", TEN, {"n": median("json:$.v")}, store=WITHIN
    ),
    "the frame has no column 'offset': a store knows a message by its topic": lambda r: aggregate(
        r.option("columns", "key,topic,partition,event_time,watermark,control"), "key", TEN, N, store=WITHIN
    ),
    "the frame has no control rows": lambda r: aggregate(
        r.option("columns", "key,topic,partition,offset,event_time,watermark"), "key", TEN, N, store=WITHIN
    ),
    "option barriers: false contradicts the operator over this read": lambda r: aggregate(
        r.option("barriers", "false"), "key", TEN, N, store=WITHIN
    ),
    "option watermarkLagg is unknown to the keyedwm source: did you mean watermarkLag?": lambda r: aggregate(
        r.option("watermarkLagg", "1 second"), KEY, TEN, N, store=WITHIN
    ),
    "option columns: 'keyy' is not a column of the source": lambda r: aggregate(
        r.option("columns", "keyy,offset"), KEY, TEN, N, store=WITHIN
    ),
    "option colums is unknown to the keyedwm source: did you mean columns?": lambda r: window_join(
        r.option("colums", "key"), r, "key", TEN, store=WITHIN
    ),
    "cannot be called 'value', which is a field of the source that the aggregates read": lambda r: aggregate(
        r.option("columns", "topic,partition,offset,event_time,watermark,control"),
        {"value": "key::string"},
        TEN,
        {"all": collect("value")},
        store=WITHIN,
    ),
    f"cannot be called {V!r}, which is a field of the source": lambda r: aggregate(
        r, {V: "key::string"}, TEN, {"n": max(V)}, store=WITHIN
    ),
    "messages would have the columns 'KEY' and 'key', whose names are equal to Spark": lambda r: aggregate(
        r, {"KEY": "key::string"}, TEN, N, store=WITHIN
    ),
    "cannot be called 'reason': rejected messages have a column of that name": lambda r: aggregate(
        r, {"Reason": "key::string"}, TEN, N, store=WITHIN
    ),
    "the columns 'json:$.v::bigint' and 'json:$.V::bigint', whose names are equal to Spark": lambda r: aggregate(
        r, KEY, TEN, {"n": max(V), "m": max("json:$.V::bigint")}, store=WITHIN
    ),
    "option aggregates: the source has no column 'watermark'": lambda r: aggregate(
        r, KEY, TEN, {"n": max("watermark")}, store=WITHIN
    ),
    "a stream has no end": lambda r: aggregate(r.option("endingOffsets", "latest"), "key", TEN, N, store=WITHIN),
    "the frame has no column 'kee'; did you mean 'key'": lambda r: window_join(r, r, "kee", TEN, store=WITHIN),
}


@pytest.mark.parametrize("words", CALLS)
def test_a_wrong_call_is_refused(words, described):
    with pytest.raises(KeyedwmError) as refused:
        CALLS[words](described("orders"))
    assert words in str(refused.value)


def test_a_stage_in_the_source_and_a_plan_agree_on_what_a_message_is(described):
    read = described("orders", includeHeaders=True, watermarks='{"made": {"key": 3, "eventTime": "json:$.made"}}')
    loaded_schema = message_columns(read.load(), "aggregate")
    told = message_fields(read, KEY, [("n", median(V))], loaded_schema.names)
    assert (told.schema.names, told.keys) == (["k", *loaded_schema.names, V], ("k",))
    assert [told.schema.field(name) for name in loaded_schema.names] == list(loaded_schema)
    exchange = ExchangeMessages(schema=told.schema, by=told.keys, time="event_time_made")
    spec = StageSpec(fields=told.fields, times={}, exchange=exchange.description(), number=0, buckets=2)
    assert SourceOptions.parse({**read.set_options, **spec.as_options()}).stage.shipped == exchange


CONDITION = f"`{V}` > 3"


@pytest.mark.parametrize(
    "aggregates",
    [
        {"x": max(V), "m": count(where=CONDITION)},
        {"m": count(where=CONDITION), "x": max(V)},
        {"x": max(V, where=CONDITION)},
    ],
)
def test_a_condition_names_a_field_that_an_aggregate_reads_in_any_order(aggregates, described):
    made = aggregate(described("orders"), KEY, TEN, aggregates, store=WITHIN)
    assert made.columns == ["k", "window", *aggregates, "pane", "event_time", "watermark", "control"]


def test_a_key_may_give_a_field_a_short_name(described):
    made = aggregate(described("orders"), {"paid": V, **KEY}, TEN, {"most": max("paid")}, store=WITHIN)
    assert made.columns[:2] == ["paid", "k"]


def test_names_in_another_case_are_two_columns_where_spark_tells_them_apart(spark, described):
    spark.conf.set("spark.sql.caseSensitive", "true")
    try:
        assert aggregate(described("orders"), {"KEY": "key::string"}, TEN, N, store=WITHIN).columns[0] == "KEY"
    finally:
        spark.conf.unset("spark.sql.caseSensitive")


def test_a_restart_with_another_field_behind_a_key_is_refused(topic_of, described, started):
    topic, fields = topic_of(2), {"k": "key::string"}
    query = started(lambda: aggregate(described(topic), dict(fields), TEN, N, store=WITHIN, buckets=1, name="w"))
    query.give(topic, [AHEAD, event(1_000, "a"), steer(2_000)])
    fields["k"] = "json:$.s"
    query.restart()
    with pytest.raises(
        StreamingQueryException,
        match=r"\(.* differ; it has .read_from=read from k Field\(column='key'.* where this plan has .read_from=",
    ):
        query.give(topic, [steer(3_000)])
