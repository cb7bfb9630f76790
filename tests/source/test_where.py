"""The option where: records that the reading tasks leave out, as a filter behind the source would."""

from __future__ import annotations

import json
import random

import pytest

from keyedwm.core.errors import InputError, OptionError
from keyedwm.core.rows import REJECTED
from pyspark_wm_source.options.source_options import SourceOptions
from pyspark_wm_source.task.scan import wanted_columns
from tests.tools import Record, at, controls, events, produce

EARLIEST = {"startingOffsets": "earliest"}


def parse(**options: str) -> SourceOptions:
    return SourceOptions.parse({"kafka.bootstrap.servers": "host:1", "subscribe": "t", **options})


@pytest.mark.parametrize(
    ("text", "columns", "decoded"),
    [
        ("key = 'bid'", [("key",)], {"key"}),
        ("json:$.b::bigint>5 and json:$.a='bid'", [("json:$.a", "json:$.b::bigint")], {"value"}),
        ("kind IN ('a', 'b')", [("kind",)], {"key"}),
        ("JSON:$.A is not null OR KEY::STRING <> ''", [("JSON:$.A", "KEY::STRING")], {"key", "value"}),
        ("json:$['a-b']::bigint - 1 > offset", [("json:$['a-b']::bigint", "offset")], {"value", "offset"}),
        ("json:$['a`b'] = 'x'", [("json:$['a`b']",)], {"value"}),
        ("(key:$.list[0].x :: double)*2 > 1", [("key:$.list[0].x :: double",)], {"key"}),
        ("'json:$.a' = key::string", [("key::string",)], {"key"}),
        ("watermark <= event_time", [("event_time", "watermark")], {"event_time", "watermark"}),
        ("kind <> 'control'", [("kind",)], {"key"}),
        ("kind = 'a' AND offset > 3 AND n > 1 AND topic = 't'", [("kind", "offset"), ("n", "topic")],
         {"key", "offset", "topic", "value"}),
        ("1 < 2 AND json:$.a = 'x'", [("json:$.a",)], {"value"}),
        ("(key = 'a' AND json:$.a IS NULL) AND partition = 1", [("key",), ("json:$.a", "partition")],
         {"key", "partition", "value"}),
    ],
)  # fmt: skip
def test_a_condition_names_columns_and_fields_and_json_is_scanned_last(text, columns, decoded):
    filters = parse(where=text, columns="key::string AS kind, json:$.n::bigint").where
    assert [names for one in filters for names in one.condition.columns] == columns
    assert set().union(*(one.decoded for one in filters)) == decoded


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (" ", "option where: it is empty; a condition such as"),
        ("kind = 'x'", "column 'kind' that is not there; there are key, value.*; a field of the value's JSON is json"),
        ("Key = 'x'", "column 'Key' that is not there; did you mean 'key'"),
        ("json:$.a = 5", r"'json:\$.a = 5' cannot be evaluated: = does not take string and int32; values of one type"),
        ("json:$.a", r"'json:\$.a' is of type string, a comparison is expected"),
        ("json:$.a::int = 3", "option where: 'json:.*' is wrong; one of the types .* did you mean bigint?"),
        ("json:$.a like 'x%'", "cannot be read at 'like': comparisons of columns and literals"),
        ("json:$.a-b::bigint > 3", "cannot be read at '::bigint > 3'"),
        ("1 = 1", "names no column: leave it out"),
        ("control IS NULL", "names 'control': control rows always stay, leave it out"),
        ("key = 'a' OR Control IS NOT NULL", "control rows always stay"),
        ("headers IS NULL", "column 'headers' that is not there"),
    ],
)  # fmt: skip
def test_a_wrong_condition_is_refused_in_one_sentence(text, sentence):
    with pytest.raises(OptionError, match=sentence) as refused:
        parse(where=text)
    assert "\n" not in str(refused.value)


def test_only_what_the_filter_and_the_rows_need_is_decoded():
    options = parse(where="key = 'a'", columns="offset, json:$.a")
    wanted = [wanted_columns(read, options) for read in ({"offset"}, {"offset", "a"})]
    assert [(one.key, one.value) for one in wanted] == [(True, False), (True, True)]
    assert wanted_columns({"offset"}, parse(where="headers IS NULL", includeHeaders="true")).headers


def test_channel_states_do_not_depend_on_the_filter():
    assert parse().settings == parse(where="key = 'a'").settings


def _records(chance: random.Random) -> list[Record]:
    made = []
    for _ in range(120):
        value = chance.choice([b"{", None, json.dumps({"n": chance.randrange(9)}).encode()])
        key = chance.choice([b"bid", b"auction", b"\xff", None])
        made.append(Record(chance.randrange(3), chance.randrange(60_000), value, key))
    return made


# Of rows as they come out; null is not true.
FILTERS = {
    "key = 'bid'": lambda row: row["key"] == b"bid",
    "NOT key IN ('bid', 'person')": lambda row: row["key"] not in {b"bid", None},
    "n > 4": lambda row: row["n"] is not None and row["n"] > 4,
    "json:$.n < '5'": lambda row: row["n"] is not None and row["n"] < 5,
    "event_time > watermark AND partition = 1": lambda row: (
        row["partition"] == 1 and row["watermark"] is not None and row["event_time"] > row["watermark"]
    ),
    "key <> 'bid' AND n < 7 AND NOT partition = 2": lambda row: (
        row["key"] not in {b"bid", None} and row["n"] is not None and row["n"] < 7 and row["partition"] != 2
    ),
    "offset < 0": lambda _: False,
    "offset >= 0": lambda _: True,
}


@pytest.mark.parametrize("text", FILTERS)
@pytest.mark.parametrize("throttle", ["none", "batch"])
def test_rows_and_control_rows_are_those_of_a_filter_behind_the_source(
    text, throttle, seed, kafka, topic_of, open_stream
):
    chance = random.Random(f"{seed} {text}")
    topic = topic_of(3)
    options = EARLIEST | {"watermarkThrottle": throttle, "watermarkLag": "20 seconds", "maxOffsetsPerTrigger": "25"}
    options["columns"] = "*, json:$.n::bigint"
    streams = [open_stream(topic, options), open_stream(topic, options | {"where": text})]
    for _ in range(2):
        produce(kafka.bootstrap, topic, _records(chance))
        whole, kept = ([row for table in stream.drain() for row in table.to_pylist()] for stream in streams)
        expected = [row for row in whole if row["control"] is not None or FILTERS[text](row)]
        assert _without_source(kept) == _without_source(expected)
        for stream in streams:
            stream.restart()


def _without_source(rows: list[dict]) -> list[dict]:
    """Rows without the id that each stream has of its own."""
    return [row if row["control"] is None else row | {"control": {**row["control"], "source": None}} for row in rows]


def test_a_rejected_record_comes_back_even_if_the_filter_does_not_hold(kafka, topic_of, open_stream):
    topic = topic_of()
    texts = [{"t": 5_000, "a": 1}, {"t": "never", "a": 1}, {"t": 6_000, "a": 2}, {"t": "no", "a": 2}]
    produce(kafka.bootstrap, topic, [Record(0, 7, json.dumps(one).encode()) for one in texts])
    stream = open_stream(topic, EARLIEST, eventTime="json:$.t", onBadEventTime="reject", where="json:$.a::bigint = 2")
    first = stream.batch()
    assert [(row["event_time"], row[REJECTED] and row[REJECTED]["value"]) for row in events(first)] == [
        (None, json.dumps(texts[1]).encode()), (at(6_000), None), (None, json.dumps(texts[3]).encode()),
    ]  # fmt: skip
    assert [row["watermark"] for row in controls(first) if row["kind"] == "watermark"] == [at(6_000)]


def test_what_cannot_be_evaluated_says_where_it_lies(kafka, topic_of, open_stream):
    topic = topic_of()
    produce(kafka.bootstrap, topic, [Record(0, 5, b'{"n": %d}' % n) for n in (1, 2**62)])
    stream = open_stream(topic, EARLIEST, where="json:$.n::bigint * 2 > 0")
    with pytest.raises(InputError, match=rf"{topic}-0, offsets 0 to 1: option where: .*json:\$.n.* overflow in 1 rows"):
        stream.batch()


def test_a_batch_read_is_filtered(kafka, topic_of, spark):
    topic = topic_of(2)
    produce(kafka.bootstrap, topic, [Record(n % 2, 5, b'{"n": %d}' % n) for n in range(10)])
    reader = spark.read.format("keyedwm").option("kafka.bootstrap.servers", kafka.bootstrap)
    read = reader.options(subscribe=topic, columns="json:$.n::bigint", where="n > 6 OR json:$.n IN ('0', '3')").load()
    assert sorted(map(tuple, read.collect())) == [(0,), (3,), (7,), (8,), (9,)]
