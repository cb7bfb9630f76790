"""All event times of a topic unreadable: one warning with an example and the option that would read it."""

from __future__ import annotations

import logging

import numpy as np
import pyarrow as pa
import pytest

from keyedwm.config.places import event_time_of
from keyedwm.core.axis import Counts
from keyedwm.core.errors import InputError
from keyedwm.core.places import OnBadTime, Unit
from keyedwm.kafka.client.values import TopicPartition
from keyedwm.kafka.records.read import Records
from pyspark_wm_source.options.axes import axes_of
from pyspark_wm_source.task import unreadable
from pyspark_wm_source.task.channel import EventTimeRun
from pyspark_wm_source.task.unreadable import refusal, sentence
from pyspark_wm_source.values.ranges import ChannelRange

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def records(
    *values: bytes | None, key: bytes | None = None, headers: list | None = None, timestamp_ms: int = -1
) -> Records:
    count = len(values)
    return Records(
        count=count, key=pa.array([key] * count, pa.binary()), value=pa.array(values, pa.binary()),
        headers=pa.array([headers] * count, HEADERS), offset=np.arange(7, 7 + count),
        timestamp_ms=np.full(count, timestamp_ms), timestamp_type=np.zeros(count, np.int32), next_offset=7 + count,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("text", "value", "found", "advice"),
    [
        ("json:$.t", b'{"t":"2026-01-01T00:00:00Z"}', "the text '2026-01-01T00:00:00Z' there",
         "eventTimeUnit=iso would read it"),
        ("json:$.t", b'{"t":"2026-99-01' + b"x" * 99 + b'"}', "the text '2026-99-01" + "x" * 30 + "...' there",
         "set eventTime to the path or header of the event time"),
        ("json:$.tme", b'{"time":1,"password":"x"}', "nothing there: did you mean json:$.time?",
         "set eventTime to the path or header of the event time"),
        ("json:$.t", None, "no value", "set eventTime to the path or header of the event time"),
        ("json:$.t", b"x" * 500, "nothing there: check that the records are JSON", "set eventTime to the path"),
        ("header:time", b"", "the headers 'at, id'", "set eventTime to the path or header of the event time"),
        ("timestamp", b"", "the timestamp -1", "set eventTime to where the event time is"),
    ],
)  # fmt: skip
def test_the_sentence_shows_an_example_and_the_option_that_would_read_it(text, value, found, advice):
    headers = [{"key": "id", "value": b"1"}, {"key": "at", "value": b"2"}]
    told = sentence("t-3", event_time_of(text, Unit.MILLISECONDS), records(value, value, headers=headers))
    assert told.startswith(f"t-3: none of the first 2 event times could be read from {text} (unit ms)")
    assert "the record at offset 7 has " in told
    assert found in told
    assert advice in told


def run(topic: str, *values: bytes | None, bad: int = 0) -> None:
    task = ChannelRange(channel=TopicPartition(topic, 0), start=7, end=9, counts=Counts(bad, 0), axes={})
    axes = axes_of({"eventtime": "json:$.t"})
    EventTimeRun(task, axes, dict.fromkeys(axes), on_bad=OnBadTime.NULL).read(records(*values))


def test_a_task_warns_once_for_a_topic_and_only_if_none_could_be_read(caplog, monkeypatch):
    monkeypatch.setattr(unreadable, "_warned", set())
    with caplog.at_level(logging.WARNING, "keyedwm.source"):
        run("some", b'{"t":1}', b"no json")
        run("later", b"no json", bad=3)
        assert caplog.records == []
        run("all", b"no json", b"no json")
        run("all", b"no json", b"no json")
    (told,) = caplog.records
    assert told.getMessage().startswith("all-0: none of the first 2 event times could be read from json:$.t (unit ms)")


def test_a_tombstone_is_no_bad_event_time_and_fails_no_query(caplog, monkeypatch):
    monkeypatch.setattr(unreadable, "_warned", set())
    task = ChannelRange(channel=TopicPartition("u", 0), start=7, end=9, counts=Counts(), axes={})

    def read(event_time: str, *values: bytes | None) -> Counts:
        axes = axes_of({"eventtime": event_time})
        it = EventTimeRun(task, axes, dict.fromkeys(axes), on_bad=OnBadTime.FAIL)
        _, valid = it.read(records(*values)).by_axis[""]
        assert valid.tolist() == [value is not None for value in values]
        return it.counts

    assert read("json:$.t", None, b'{"t":5}', None) == read("json:$.t", None) == Counts()
    assert caplog.text == ""
    with pytest.raises(InputError, match=r"u-0: the record at offset 8 has no usable event time in json:\$\.t"):
        read("json:$.t", None, b"x")
    with pytest.raises(InputError, match="the record at offset 7 has no usable event time in header:h"):
        read("header:h", None)  # a tombstone has headers as any record


def test_the_example_is_no_tombstone(caplog, monkeypatch):
    monkeypatch.setattr(unreadable, "_warned", set())
    run("w", None, b'{"t":"2026-01-01T00:00:00Z"}')
    assert "none of the first 1 event times could be read from json:$.t" in caplog.text
    assert "the record at offset 8 has the text" in caplog.text
    assert "eventTimeUnit=iso would read it" in caplog.text


_WRITTEN = {"s": "1772323200", "ms": "1772323200000", "us": "1772323200000000", "iso": '"2026-03-01T00:00:00Z"'}


@pytest.mark.parametrize(
    ("unit", "right"),
    [("s", "ms"), ("s", "us"), ("ms", "us"), ("iso", "s"), ("iso", "ms"), ("s", "iso"), ("ns", "iso")],
)
def test_times_that_are_too_large_or_no_numbers_are_told_with_the_unit_that_reads_them(unit, right):
    value = f'{{"t":{_WRITTEN[right]}}}'.encode()
    told = sentence("t-3", event_time_of("json:$.t", Unit(unit)), records(value, value))
    assert told.endswith(f"the text {_WRITTEN[right]!r} there; eventTimeUnit={right} would read it".replace('"', ""))


@pytest.mark.parametrize(
    ("text", "unit", "value", "said"),
    [
        ("json:$.t", "iso", b'{"t":"2024-1-2"}', "it has the text '2024-1-2' there, where ISO 8601 is expected, "),
        ("json:$.t", "s", b'{"t":1772323200000}', "a number of seconds since 1970 is expected, and eventTimeUnit=ms w"),
        ("json:$.a.t", "ms", b'{"a":{"tt":5},"b":"secret"}', "it has nothing there: did you mean json:$.a.tt?, where"),
        ("header:t", "ms", None, "it has the text 'x' there, where a number of milliseconds since 1970 is expected;"),
        ("timestamp", "ms", b"", "it has the timestamp -1, where a time from 1970 to 9999 is expected; onBad"),
    ],
)  # fmt: skip
def test_a_failure_shows_what_was_there_and_what_is_expected(text, unit, value, said):
    told = refusal("t-3", event_time_of(text, Unit(unit)), records(value, headers=[{"key": "t", "value": b"x"}]))
    assert said in told
    assert "secret" not in told


_MARCH_2026_MS = 1_772_323_200_000


def read_as(monkeypatch, text: str, unit: Unit, *values: bytes, timestamp_ms: int = _MARCH_2026_MS) -> None:
    monkeypatch.setattr(unreadable, "_long_ago", set())
    task = ChannelRange(channel=TopicPartition("l", 0), start=7, end=9, counts=Counts(), axes={})
    axes = axes_of({"eventtime": text, "eventtimeunit": unit.value})
    it = EventTimeRun(task, axes, dict.fromkeys(axes), on_bad=OnBadTime.NULL)
    for _ in range(2):
        it.read(records(*values, timestamp_ms=timestamp_ms))


@pytest.mark.parametrize(
    ("unit", "value", "right"),
    [
        (unit, f"17723232{'01'.ljust(2 + digits, '0')}", right)
        for unit, least in ((Unit.MILLISECONDS, 3), (Unit.MICROSECONDS, 6), (Unit.NANOSECONDS, 9))
        for right, digits in (("s", 0), ("ms", 3), ("us", 6))
        if digits < least
    ],
)
def test_event_times_of_1970_in_records_of_today_are_told_with_the_unit_that_reads_them(
    caplog, monkeypatch, unit, value, right
):
    read_as(monkeypatch, "json:$.t", unit, b"no json", f'{{"t":{value}}}'.encode())
    (told,) = caplog.messages
    assert told.startswith(
        f"l-0: all 1 event times that were read first from json:$.t (unit {unit.value}) are of 1970-01-"
    )
    assert "the records' own timestamps begin at 2026-03-01T00:00:00.000Z" in told
    assert f"the record at offset 8 has the text '{value}' there" in told
    assert told.endswith(f"eventTimeUnit={right} would read it as 2026-03-01T00:00:01.000Z")


@pytest.mark.parametrize(
    ("value", "timestamp_ms"),
    [
        (1_772_323_201_000, _MARCH_2026_MS),  # right as it is
        (1_000, _MARCH_2026_MS),  # of 1970 in every unit
        (1_772_323_201, 1_772_323_201),  # the records say 1970, too
        (1_772_323_201, -1),  # and these say nothing
    ],
)
def test_nothing_is_said_of_times_that_may_be_right(caplog, monkeypatch, value, timestamp_ms):
    read_as(monkeypatch, "json:$.t", Unit.MILLISECONDS, b'{"t":%d}' % value, timestamp_ms=timestamp_ms)
    assert caplog.messages == []
