"""The option where: records that the reading tasks leave out, as a filter behind the source would."""

from __future__ import annotations

import json
import random

import pytest

from keyedwm.core.errors import InputError, OptionError
from keyedwm.core.rows import REJECTED
from pyspark_wm_source.options.source_options import SourceOptions
from pyspark_wm_source.task.scan import needed_columns
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
        ("kind = 'x'", r"column 'kind' that is not there; there are key, .*; .* json:\$.kind, .*::bigint"),
        ("Key = 'x'", "column 'Key' that is not there; did you mean 'key'"),
        ("json:$.a = 5", r"'json:\$.a = 5' cannot be evaluated: = does not take string and int32; values of one type"),
        ("json:$.a = true", "= does not take string and boolean; .* text, also of true and false"),
        ("NOT json:$.a", "NOT does not take string"),
        ("event_time > '2026-01-01'", "> does not take timestamp and string; .* TIMESTAMP '"),
        ("event_time > TIMESTAMP '2026-01-01'", "has the time '2026-01-01': one such as '2026-01-31T12:00:00Z'"),
        ("event_time > TIMESTAMP 'now'", "has the time 'now': one such as"),
        ("event_time > DATE '2026-01-01'", "at 'DATE': DATE is not known to conditions; filter the rows behind"),
        ("json:$.a", r"'json:\$.a' is of type string, a comparison is expected"),
        ("json:$.a::int = 3", "option where: 'json:.*' is wrong; one of the types .* did you mean bigint?"),
        ("json:$.a like 'x%'", "at 'like': LIKE is not known to conditions; filter the rows behind the source by it"),
        ("lower(key) = 'a'", "calls 'lower': functions and casts are not known to conditions; .* json:\\$.a::bigint"),
        ("CAST(key AS string) = 'a'", "calls 'CAST': functions and casts are not known"),
        ("json:$.a-b::bigint > 3", r"at '::bigint > 3': fields are json:\$.NAME, json:\$\['a-b'\]"),
        ("json:price > 3", r"at ':price > 3': fields are json:\$.NAME"), ("$.price > 3", "at '.*: fields are json"),
        ('key = "a"', "texts stand in single quotes"), ("key = null", "at 'null': ask for it with IS NULL"),
        ("key = 'a' && json:$.b = 'c'", r"at '&& json:\$.b = 'c''|at \"&& json:\$.b = 'c'\": write AND"),
        ("key = 'a' || key = 'b'", "write OR"), ("! key = 'a'", "write NOT"), ("key = 'a';", "leave it out"),
        ("offset > 1 --1", "at '--1': comments are not read"), ("key = 'a' /* x */", "comments are not read"),
        ("key IN ('a', NULL)", "at 'null': IN takes literals in brackets"), ("json:$.@type = 'a'", "fields are json"),
        ("json : $.a = 'x'", "fields are json"), ("offset > " + "9" * 5000, "has 5000 digits, a decimal has 38"),
        ("key = '\ud800'", "half a surrogate pair"), (r"key = 'a\012'", "a backslash is written as two"),
        ("offset > ٣", "cannot be read at"),
        ("key IN 'a'", "IN takes literals in brackets"), ("key IN ()", "at '\\)': IN takes literals"),
        ("1 = 1", "names no column: leave it out"),
        ("control IS NULL", "names 'control': control rows are never dropped; remove the column"),
        ("key = 'a' OR Control IS NOT NULL", "control rows are never dropped"),
        ("rejected IS NOT NULL OR key = 'a'", "rejected records stay unless other columns make it false; remove"),
        ("headers IS NULL", "column 'headers' that is not there"),
    ],
)  # fmt: skip
def test_a_wrong_condition_is_refused_in_one_sentence(text, sentence):
    with pytest.raises(OptionError, match=sentence) as error:
        parse(where=text)
    assert "\n" not in str(error.value)


def test_only_what_the_filter_and_the_rows_need_is_decoded():
    options = parse(where="key = 'a'", columns="offset, json:$.a")
    columns_needed = [needed_columns(read, options) for read in ({"offset"}, {"offset", "a"})]
    assert [(one.key, one.value) for one in columns_needed] == [(True, False), (True, True)]
    assert needed_columns({"offset"}, parse(where="headers IS NULL", includeHeaders="true")).headers


def test_channel_states_do_not_depend_on_the_filter():
    assert parse().settings == parse(where="key = 'a'").settings


def _records(chance: random.Random) -> list[Record]:
    records = []
    for _ in range(120):
        value = chance.choice([b"{", None, json.dumps({"n": chance.randrange(9)}).encode()])
        key = chance.choice([b"bid", b"auction", b"\xff", None])
        records.append(Record(chance.randrange(3), chance.randrange(60_000), value, key))
    return records


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
        whole, filtered_rows = ([row for table in stream.drain() for row in table.to_pylist()] for stream in streams)
        expected = [row for row in whole if row["control"] is not None or FILTERS[text](row)]
        assert _without_source(filtered_rows) == _without_source(expected)
        for stream in streams:
            stream.restart()


def _without_source(rows: list[dict]) -> list[dict]:
    """Rows without the id that each stream has of its own."""
    return [row if row["control"] is None else row | {"control": {**row["control"], "source": None}} for row in rows]


def test_a_rejected_record_comes_back_unless_the_condition_is_false_of_it(kafka, topic_of, open_stream):
    topic = topic_of()
    texts = [
        {"t": 5_000, "a": 1}, {"t": "never", "a": 1}, {"t": 6_000, "a": 2}, {"t": "no", "a": 2}, {"t": "no"},
    ]  # fmt: skip
    produce(kafka.bootstrap, topic, [Record(0, 7, json.dumps(one).encode()) for one in texts])
    stream = open_stream(topic, EARLIEST, eventTime="json:$.t", onBadEventTime="reject", where="json:$.a::bigint = 2")
    first = stream.batch()
    assert [(row["event_time"], row[REJECTED] and row[REJECTED]["value"]) for row in events(first)] == [
        (at(6_000), None), (None, json.dumps(texts[3]).encode()), (None, json.dumps(texts[4]).encode()),
    ]  # fmt: skip
    assert [row[REJECTED]["offset"] for row in events(first)[1:]] == [3, 4]
    assert [row["watermark"] for row in controls(first) if row["kind"] == "watermark"] == [at(6_000)]


def test_a_field_that_is_in_no_record_is_told_once(kafka, topic_of, open_stream, caplog):
    topic = topic_of()
    produce(kafka.bootstrap, topic, [Record(0, 5, b'{"kind": "bid"}', b"a") for _ in range(10)])
    stream = open_stream(topic, EARLIEST, where="key = 'a' AND json:$.kind = 'bid' AND json:$.knid::bigint > 1")
    assert events(stream.batch()) == []
    produce(kafka.bootstrap, topic, [Record(0, 5, b"{}", b"a") for _ in range(10)])
    assert events(stream.batch()) == []
    (warning,) = (text for text in caplog.messages if "option where" in text)
    assert warning == (
        f"{topic}-0: json:$.knid::bigint is null in all of the 10 records in which option where looked for it first, "
        "which is right if it asks for IS NULL; the path is in none of them: did you mean json:$.kind?"
    )


def test_times_compare_with_instants(kafka, topic_of, open_stream):
    topic = topic_of()
    produce(kafka.bootstrap, topic, [Record(0, 1_000 * n) for n in range(5)])
    text = "event_time >= TIMESTAMP '1970-01-01T00:00:02Z' AND timestamp < timestamp '1970-01-01 01:00:04+01:00'"
    assert [row["offset"] for row in events(open_stream(topic, EARLIEST, where=text).batch())] == [2, 3]


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
