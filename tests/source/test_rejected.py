"""Records whose event time cannot be read come back whole (`onBadEventTime=reject`), and no watermark knows them."""

from __future__ import annotations

import json
import random

import pyarrow as pa
import pytest

from keyedwm.core.errors import OptionError
from keyedwm.core.rows import REJECTED
from pyspark_wm_source.options.source_options import SourceOptions
from tests.tools import Record, at, controls, events, produce

GOOD, BAD, NOT_TEXT = b'{"t": 5000}', b'{"t": "never"}', b"\xff\x00\xfe"
TIMED = {"eventTime": "json:$.t", "onBadEventTime": "reject", "startingOffsets": "earliest"}
AXES = {
    "made": {"key": 0, "eventTime": "json:$.made"},
    "sent": {"key": 1, "eventTime": "json:$.sent", "watermarkLag": "1 second"},
}
KAFKA = {"kafka.bootstrap.servers": "x:1", "subscribe": "t"}


def test_an_unreadable_record_comes_back_whole_with_its_reason_and_its_row_has_nothing_else(
    kafka, topic_of, open_stream
):
    topic = topic_of()
    produce(
        kafka.bootstrap,
        topic,
        [
            Record(0, 7, GOOD, b"k"),
            Record(0, 8, NOT_TEXT, b"\x00\xff", (("h", b"\xfe"), ("h", None))),
            Record(0, 9, BAD, None),
        ],
    )
    stream = open_stream(topic, TIMED)
    first, *_ = stream.drain()
    good, one, other = (row for row in first.to_pylist() if row["control"] is None)
    assert (good["value"], good["event_time"], good[REJECTED]) == (GOOD, at(5_000), None)
    whole = {
        "key": b"\x00\xff", "value": NOT_TEXT, "topic": topic, "partition": 0, "offset": 1, "timestamp": at(8),
        "timestampType": 0, "headers": [{"key": "h", "value": b"\xfe"}, {"key": "h", "value": None}],
        "reason": "no usable event time in json:$.t (unit ms)",
    }  # fmt: skip
    assert one[REJECTED] == whole
    assert other[REJECTED] == {**whole, "key": None, "value": BAD, "offset": 2, "timestamp": at(9), "headers": None}
    empty = ("key", "value", "timestamp", "timestampType", "event_time")
    assert [one[name] for name in empty] == [None] * len(empty)
    assert (one["topic"], one["partition"], one["offset"]) == (topic, 0, 1)
    assert (stream.offset["channels"][topic]["0"][3], stream.watermark_ms()) == (2, 5_000)


def test_a_tombstone_is_an_event_without_a_time(kafka, topic_of, open_stream):
    topic = topic_of()
    produce(kafka.bootstrap, topic, [Record(0, 7, None, b"k"), Record(0, 7, GOOD)])
    stream = open_stream(topic, TIMED)
    assert [(row["key"], row[REJECTED]) for row in events(stream.drain()[0])] == [(b"k", None), (None, None)]
    assert stream.offset["channels"][topic]["0"][3] == 0


def test_a_record_that_one_axis_cannot_read_moves_no_other_one_and_counts_once(kafka, topic_of, open_stream):
    topic = topic_of()
    records = [{"made": 1_000, "sent": 3_000}, {"made": 9_000}, {"sent": 9_000}, {}, {"made": 2_000, "sent": 4_000}]
    produce(kafka.bootstrap, topic, [Record(0, 1, json.dumps(one).encode()) for one in records])
    options = {"startingOffsets": "earliest", "watermarks": json.dumps(AXES), "onBadEventTime": "reject"}
    stream = open_stream(topic, options)
    first, *_ = stream.drain()
    why = {row["offset"]: row[REJECTED]["reason"] for row in events(first) if row[REJECTED]}
    assert {offset: text.split("$.")[1][:4] for offset, text in why.items()} == {1: "sent", 2: "made", 3: "made"}
    assert [row["event_time_made"] for row in events(first)] == [at(1_000), None, None, None, at(2_000)]
    watermarks = [(one["key"], one["watermark"]) for one in controls(first) if one["kind"] == "watermark"]
    assert watermarks == [(0, at(2_000)), (1, at(3_000))]
    assert stream.offset["channels"][topic]["0"][3] == 3


def test_any_cut_and_restart_gives_the_same_rows_and_the_log_gives_them_again(kafka, topic_of, open_stream, seed):
    rng = random.Random(f"{seed} rejected")
    topic = topic_of(2)
    results_of_cuts = []
    records = [
        Record(rng.randrange(2), 5, rng.choice([b'{"made": %d, "sent": %d}' % (t, 50 * t), b'{"made": %d}' % t, BAD]))
        for t in range(60)
    ]
    produce(kafka.bootstrap, topic, records)
    for most in ("1000", "7", "2"):
        options = {
            "watermarks": json.dumps(AXES), "onBadEventTime": "reject", "maxOffsetsPerTrigger": most,
            "startingOffsets": "earliest", "idleTimeout": "none",
        }  # fmt: skip
        stream = open_stream(topic, options)
        rows: list[dict] = []
        while (batch := stream.batch()) is not None:
            assert batch.equals(stream.read(len(stream.log) - 1))
            rows += events(batch)
            stream.restart()
        stamps = ("watermark_made", "watermark_sent")
        plain_rows = [{name: value for name, value in row.items() if name not in stamps} for row in rows]
        results_of_cuts.append(
            (sorted(plain_rows, key=lambda row: (row["partition"], row["offset"])), stream.watermark_ms())
        )
    assert results_of_cuts[1:] == results_of_cuts[:1] * 2
    given_back = [row[REJECTED]["value"] for row in results_of_cuts[0][0] if row[REJECTED]]
    assert sorted(given_back) == sorted(one.value for one in records if b"sent" not in one.value)


def test_records_that_come_back_are_laid_out_among_control_rows(kafka, topic_of, open_stream):
    topic = topic_of()
    values = [b'{"t": 1}', BAD, b'{"t": 2}', BAD, b'{"t": 4}']
    produce(kafka.bootstrap, topic, [Record(0, 1, value) for value in values])
    stream = open_stream(topic, {**TIMED, "watermarkThrottle": "none"})
    table = stream.drain()[0]
    offsets_and_kinds = [(row["offset"], row["control"] and row["control"]["kind"]) for row in table.to_pylist()]
    watermark = "watermark"
    assert offsets_and_kinds[:8] == [
        (0, watermark), (0, None), (1, None), (2, watermark), (2, None), (3, None), (4, watermark), (4, None),
    ]  # fmt: skip
    assert pa.types.is_struct(table.schema.field(REJECTED).type)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (
            {"columns": "value,control"},
            "column 'rejected' is missing, in which onBadEventTime=reject or onBadValue=reject returns records",
        ),
        (
            {"onBadEventTime": "null", "columns": "rejected"},
            "'rejected' does not exist with onBadEventTime and onBadValue, neither of",
        ),
    ],
)
def test_columns_and_rejected_records_must_agree(options, why):
    with pytest.raises(OptionError, match=why):
        SourceOptions.parse({**KAFKA, **TIMED, **options})


def test_settings_change_with_rejection_only_where_states_depend_on_it():
    def settings(on_bad: str, **options: str) -> str:
        return SourceOptions.parse({**KAFKA, **options, "onBadEventTime": on_bad}).settings

    assert settings("reject") == settings("null")
    axes = {"watermarks": json.dumps(AXES)}
    assert settings("reject", **axes) != settings("null", **axes) == settings("fail", **axes)
