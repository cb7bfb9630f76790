"""Operators over columns that the source reads out of JSON: the results are those over Spark's own reading of it."""

from __future__ import annotations

import json
import random

import pytest
from pyspark.errors import StreamingQueryException

from keyedwm.core.errors import KeyedwmError
from keyedwm.spark import (
    Store,
    aggregate,
    count,
    join,
    kafka,
    median,
    sum,  # noqa: A004
    tumbling,
    window_join,
)
from tests.spark.random_records import shown
from tests.spark.started import BASE_MS
from tests.tools import Record, produce

pytestmark = pytest.mark.usefixtures("one_bucket")
TEN = tumbling("10 seconds")
FIELDS = "json:$.k, json:$.v::bigint, key:$.id::double AS id"
# What Spark makes of the same: get_json_object reads a single field, as the source does, and gives a null for it.
PARSED = (
    "get_json_object(cast(value as string), '$.k') k",
    "cast(get_json_object(cast(value as string), '$.v') as bigint) v",
    "cast(get_json_object(cast(key as string), '$.id') as double) id",
)
KEPT = ("topic", "partition", "offset", "event_time", "watermark", "control")


def records(chance: random.Random, partitions: int) -> list[Record]:
    """Events of 40 seconds, some of other shapes, and at last one for each partition that closes every window."""
    made = []
    for at in range(200):
        value = {"k": chance.choice(["a", "b", "é\n", None]), "v": chance.randrange(-9, 9), "more": ["}", 1]}
        text = chance.choice([json.dumps(value), json.dumps(value), "[]", json.dumps({"v": 3})]).encode()
        key = json.dumps({"id": chance.random()}).encode()
        made.append(Record(at % partitions, BASE_MS + chance.randrange(40_000), text, key))
    return made + [Record(partition, BASE_MS + 10_000_000, None, None) for partition in range(partitions)]


def of_spark(read):
    """The rows of a source, and the fields as Spark reads them."""
    return read.load().selectExpr(*KEPT, *PARSED)


def of_source(read):
    """The same, as the source reads them."""
    return read.option("columns", f"{', '.join(KEPT)}, {FIELDS}")


def test_rows_are_those_that_spark_reads(topic_of, described, run, seed, kafka):
    topic = topic_of(2)
    produce(kafka.bootstrap, topic, records(random.Random(f"{seed} rows"), 2))
    read = described(topic)
    frames = of_source(read).load(), of_spark(read)
    both = [run(frame.select("k", "v", "id", "event_time", "control")) for frame in frames]
    assert shown(both[0].rows) == shown(both[1].rows)
    assert len({row["id"] for row in both[0].rows}) == 201


def test_a_join_meets_on_them_before_and_after_the_rows_are_loaded(topic_of, described, run, seed, kafka):
    topics = [topic_of(2), topic_of(1)]
    chance = random.Random(f"{seed} join")
    for topic, partitions in zip(topics, (2, 1), strict=True):
        produce(kafka.bootstrap, topic, records(chance, partitions))
    reads = [described(topic, watermarkLag="1 minute") for topic in topics]
    sides = [of_source(read) for read in reads]
    how = {"within": ("-1 second", "1 second"), "how": "left"}
    expected = shown(run(join(*map(of_spark, reads), "k", **how)).rows)
    for both in (sides, [side.load() for side in sides]):
        made = run(join(*both, "k", **how))
        assert shown(made.rows) == expected
        assert len([row for row in made.rows if row["v_right"] is not None]) > 50


def test_windows_and_stores_name_them(topic_of, described, run, seed, kafka):
    topic = topic_of(2)
    produce(kafka.bootstrap, topic, records(random.Random(f"{seed} windows"), 2))
    read = described(topic, watermarkLag="1 minute")
    wanted = {"n": count(), "total": sum("v")}
    expected = shown(run(aggregate(of_spark(read), "k", TEN, wanted)).rows)
    for columns in (f"*, {FIELDS}", FIELDS):
        assert shown(run(aggregate(read.option("columns", columns), "k", TEN, wanted)).rows) == expected
    full = {"middle": median("v")}
    kept = [
        run(aggregate(one, "k", TEN, full, store=Store(retention="1 minute")))
        for one in (of_source(read), of_spark(read))
    ]
    assert shown(kept[0].rows) == shown(kept[1].rows)
    assert len([row for row in kept[0].rows if not row["control"]]) > 10


WITHIN = {"within": ("0 seconds", "1 second")}
# What keeps state by a key of the source, or of a field of it.
OPERATORS = {
    "a window": lambda read: aggregate(read, "k", TEN, {"n": count()}, name="o"),
    "its sums": lambda read: aggregate(read, (), TEN, {"n": sum("k")}, name="o"),
    "a store": lambda read: aggregate(read, "k", TEN, {"n": count()}, store=Store(retention="1 minute"), name="o"),
    "its messages": lambda read: aggregate(
        read, "partition", TEN, {"n": median("k")}, store=Store(retention="1 minute"), name="o"
    ),
    "a join": lambda read: join(read, read, "k", **WITHIN, name="o"),
    "a window join": lambda read: window_join(read, read, "k", TEN, store=Store(retention="1 minute"), name="o"),
}


@pytest.mark.parametrize("operator", OPERATORS)
def test_state_of_a_field_is_not_that_of_another_one_of_its_name(operator, topic_of, described, started):
    topic = topic_of(1)
    path = ["json:$.k::bigint"]

    def frame():
        read = described(topic, columns=f"topic, partition, offset, {path[0]} AS k, event_time, watermark, control")
        return OPERATORS[operator](read)

    record = Record(0, BASE_MS, b'{"k": 1, "j": 2}')
    query = started(frame)
    query.give(topic, [record])
    path[0] = "json:$.j::bigint"
    query.restart()
    with pytest.raises(StreamingQueryException, match="another plan"):
        query.give(topic, [record])


@pytest.mark.parametrize(
    ("said", "call"),
    [
        ("option columns: a list of texts is expected", {"columns": {"k": "json:$.k"}}),
        ("option columns: .*; did you mean bigint", {"columns": ["json:$.k::long"]}),
    ],
)  # fmt: skip
def test_wrong_columns_are_one_sentence_at_the_call(said, call, spark):
    with pytest.raises(KeyedwmError, match=said):
        kafka(spark, "host:1", subscribe="t", **call)


def test_a_list_of_columns_may_hold_paths_with_commas(spark):
    read = kafka(spark, "host:1", subscribe="t", columns=["*", "json:$['a,b'] AS x", "json:$.c"])
    assert read.load().columns[-5:] == ["x", "c", "event_time", "watermark", "control"]


def test_a_read_that_is_not_loaded_says_so_where_a_frame_is_meant(spark):
    read = kafka(spark, "host:1", subscribe="t")
    with pytest.raises(
        AttributeError, match=r"no attribute 'where': .* options columns and where .*; load\(\) returns"
    ):
        read.where("true")
    with pytest.raises(
        KeyedwmError, match=r"no column 'id' to join on; it has key.*columns names, such as json:\$\.id"
    ):
        join(read, read, "id", **WITHIN)


# As docs/reference/source.md says it: of `a` the text and the whole number, of the source and of from_json.
DIFFERENCES = {
    '{"a": 1, "a": 2}': (("1", 1), ("2", 2)),
    '{"a": null, "a": 2}': ((None, None), ("2", 2)),
    '{"a": "3"}': (("3", 3), ("3", None)),
    '{"a": 1, "b": ': (("1", 1), (None, None)),
    '{"a": "1"x, "b": 2}': (("1", 1), (None, None)),
    '{"a": foo}': (("foo", None), (None, None)),
    '{"a": [1,2}}': (("[1,2}", None), (None, None)),
    '{"a": 01}': (("01", 1), (None, None)),
    "{'a': 1}": ((None, None), ("1", 1)),
    '{"a": [1, 2]}': (("[1, 2]", None), ("[1,2]", None)),
    '{"\\u0061": 1}': (("1", 1), ("1", 1)),
    '{"a": 7, "b": 2}': (("7", 7), ("7", 7)),
    '{"a": 2.0}': (("2.0", None), ("2.0", None)),
    '{"a": 1e3}': (("1e3", None), ("1000.0", None)),
    '{"a": -0}': (("-0", 0), ("0", 0)),
    '{"a": +5}': (("+5", None), (None, None)),
    '{"a": 12a}': (("12a", None), (None, None)),
    '{"a": "x\ty"}': (("x\ty", None), (None, None)),
    '{"b": "x\ty", "a": 6}': (("6", 6), (None, None)),
    '{"a": true}': (("true", None), ("true", None)),
}


def test_differences_from_sparks_own_reading_are_those_on_the_page(topic_of, described, run, kafka):
    topic = topic_of(1)
    texts = ['{"a": 5', *DIFFERENCES, '{"a": "x\\ud83dy"}', '{"a": "NaN"}']
    produce(kafka.bootstrap, topic, [Record(0, BASE_MS, text.encode()) for text in texts])
    own = "json:$.a AS text, json:$.a::bigint AS whole, json:$.a::double AS d"
    read = described(topic, columns=f"value, offset, {own}").load()
    spark_reads = [
        f"from_json(cast(value as string), 'a {kind}').a AS {kind}" for kind in ("string", "bigint", "double")
    ]
    rows = sorted(run(read.selectExpr("offset", "text", "whole", "d", *spark_reads)).rows)
    found = {text: ((row.text, row.whole), (row.string, row.bigint)) for text, row in zip(texts, rows, strict=True)}
    assert found.pop('{"a": 5') == ((None, None), (None, None))
    assert (rows[-1].d, str(rows[-1].double)) == (None, "nan")
    assert found.pop('{"a": "NaN"}')[0] == ("NaN", None)
    assert found.pop('{"a": "x\\ud83dy"}') == ((None, None), ("x?y", None))
    assert found == DIFFERENCES
