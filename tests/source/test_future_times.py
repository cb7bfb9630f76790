"""An event time from the far future: its row may stay, but it does not take the watermark with it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from keyedwm.core.axis import Counts
from keyedwm.core.errors import InputError, OptionError
from keyedwm.kafka.client.values import TopicPartition
from keyedwm.kafka.records.read import Records
from pyspark_wm_source.options.axes import ahead_of, axes_of, guards_of
from pyspark_wm_source.options.source_options import SourceOptions
from pyspark_wm_source.task import future
from pyspark_wm_source.task.scan import policy_run
from pyspark_wm_source.values.ranges import ChannelRange
from tests.tools import Record, produce

PLACE = TopicPartition("t", 0)
NOW_MS = 1_000_000
YEAR_3000_MS = 32_503_680_000_000
BASE = {"kafka.bootstrap.servers": "h:1", "subscribe": "t", "eventTime": "json:$.t", "maxEventTimeAhead": "10 seconds"}


DAY_MS = 86_400_000
DEFAULT = {name: value for name, value in BASE.items() if name != "maxEventTimeAhead"}


def records(*times_ms: int, appended_ms: int | None = None) -> Records:
    """Records with event times in their values; appended_ms: the append time that a broker gave all of them."""
    count = len(times_ms)
    return Records(
        count=count, key=None, value=pa.array([b'{"t":%d}' % ms for ms in times_ms], pa.binary()), headers=None,
        offset=np.arange(count), timestamp_ms=np.full(count, appended_ms or 0),
        timestamp_type=np.full(count, int(appended_ms is not None), np.int32), next_offset=count,
    )  # fmt: skip


def run_of(**settings: str):
    options = SourceOptions.parse({**BASE, **settings})
    task = ChannelRange(channel=PLACE, start=0, end=99, counts=Counts(), axes={})
    return policy_run(task, options, dict.fromkeys(options.axes), NOW_MS, ahead_of(options.axes))


def times_of(observed) -> list[int | None]:
    ms, valid = observed.event_ms[""]
    return [int(one) if valid is None or valid[row] else None for row, one in enumerate(ms)]


def test_its_row_stays_and_its_time_does_not_move_the_watermark():
    run = run_of()
    assert times_of(run.observe(records(5, YEAR_3000_MS, 7))) == [5, YEAR_3000_MS, 7]
    assert run.end() == ((0, 7),)
    assert run.result().counts == Counts(future=1)


def test_off_it_takes_the_watermark_with_it():
    run = run_of(maxEventTimeAhead="none")
    run.observe(records(5, YEAR_3000_MS, 7))
    assert (run.end(), run.result().counts) == (((0, YEAR_3000_MS),), Counts())


@pytest.mark.parametrize(("ms", "ahead"), [(NOW_MS + DAY_MS, 0), (NOW_MS + DAY_MS + 1, 1)])
def test_by_default_a_day_ahead_is_the_most(ms, ahead):
    options = SourceOptions.parse(DEFAULT)
    task = ChannelRange(channel=PLACE, start=0, end=99, counts=Counts(), axes={})
    run = policy_run(task, options, dict.fromkeys(options.axes), NOW_MS, ahead_of(options.axes))
    run.observe(records(5, ms))
    assert (run.end(), run.result().counts.future) == (((0, 5 if ahead else ms),), ahead)


@pytest.mark.parametrize(
    ("limit", "in_the_offset", "judged_ms"),
    [
        (None, {0: DAY_MS}, DAY_MS), ("none", {0: DAY_MS}, DAY_MS), ("1 hour", {0: DAY_MS}, DAY_MS),
        (None, {}, None), ("none", {}, None), ("1 hour", {}, 3_600_000), (None, {1: 5}, None),
    ],
)  # fmt: skip
def test_a_batch_that_is_run_again_is_judged_by_its_offset(limit, in_the_offset, judged_ms):
    """An offset of an earlier version has no limit: its batch was read without the default of today."""
    axes = SourceOptions.parse(DEFAULT | ({} if limit is None else {"maxEventTimeAhead": limit})).axes
    guards = guards_of(axes, in_the_offset)
    assert (guards[""].ahead_ms if guards else None) == judged_ms


def test_the_first_of_them_is_told_with_the_option(caplog, monkeypatch):
    monkeypatch.setattr(future, "_warned", set())
    options = SourceOptions.parse(DEFAULT)
    for _ in range(2):
        task = ChannelRange(channel=PLACE, start=0, end=99, counts=Counts(), axes={})
        run = policy_run(task, options, dict.fromkeys(options.axes), NOW_MS, ahead_of(options.axes))
        run.observe(records(5, YEAR_3000_MS, 7))
    assert caplog.messages[0] == (
        "t-0: the record at offset 1 has the event time 32503680000000 ms (3000-01-01T00:00:00.000Z) in json:$.t, more "
        "than the default of maxEventTimeAhead (1 day) ahead of the clock, 1000000 ms (1970-01-01T00:16:40.000Z); such "
        "event times do not move the watermark and are counted as future_event_times; set maxEventTimeAhead to what is "
        "right for this topic, or to none"
    )
    assert len(caplog.messages) == 1


def test_null_takes_the_time_from_the_row():
    run = run_of(onFutureTime="null")
    assert times_of(run.observe(records(5, YEAR_3000_MS, 7))) == [5, None, 7]
    assert (run.end(), run.result().counts) == (((0, 7),), Counts(future=1))


def test_fail_names_the_record_and_both_times():
    sentence = (
        r"t-0: the record at offset 1 has the event time 32503680000000 ms \(3000-01-01T00:00:00.000Z\) in json:\$.t, "
        r"more than maxEventTimeAhead \(10 seconds\) ahead of the clock, 1000000 ms \(1970-01-01T00:16:40.000Z\); "
        r"onFutureTime=ignore would keep the row"
    )
    with pytest.raises(InputError, match=sentence):
        run_of(onFutureTime="fail").observe(records(5, YEAR_3000_MS))


@pytest.mark.parametrize(("ms", "ahead"), [(NOW_MS + 10_000, 0), (NOW_MS + 10_001, 1)])
def test_exactly_so_far_ahead_is_still_taken(ms, ahead):
    run = run_of()
    run.observe(records(ms))
    assert run.result().counts.future == ahead


def test_the_append_time_that_a_broker_gave_decides_where_there_is_one():
    run = run_of()
    run.observe(records(NOW_MS, appended_ms=NOW_MS - 10_001))
    assert run.result().counts.future == 1
    run.observe(records(NOW_MS + 20_000, appended_ms=NOW_MS + 10_000))
    assert (run.result().counts.future, run.end()) == (1, ((0, NOW_MS + 20_000),))
    with pytest.raises(InputError, match="ahead of its append time"):
        run_of(onFutureTime="fail").observe(records(YEAR_3000_MS, appended_ms=NOW_MS))


def test_a_row_without_a_readable_time_is_no_time_ahead():
    run = run_of()
    bad = replace(records(1), value=pa.array([b"x"], pa.binary()))
    run.observe(bad)
    assert run.result().counts == Counts(bad=1)


def test_each_axis_has_its_own_limit():
    axes = axes_of({
        "watermarks": '{"a": {"key": 0, "maxEventTimeAhead": "1 day"}, "b": {"key": 1, "onFutureTime": "null"}}',
        "maxeventtimeahead": "1 second",
    })  # fmt: skip
    assert [(axis.future.ahead_ms, axis.future.on.value) for axis in axes.values()] == [
        (86_400_000, "ignore"),
        (1_000, "null"),
    ]


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"maxEventTimeAhead": "soon"}, "option maxEventTimeAhead: 'soon' is wrong; a duration"),
        ({"onFutureTime": "drop"}, "option onFutureTime"),
        ({"propagate": "true"}, "option maxEventTimeAhead has no effect with propagate=true"),
        (
            {"maxEventTimeAhead": "none", "onFutureTime": "null"},
            "onFutureTime has no effect with maxEventTimeAhead=none",
        ),
        ({"maxEventTimeAhead": "none", "onFutureWatermark": "reset"}, "onFutureWatermark has no effect with max"),
        ({"onFutureWatermark": "lower"}, "option onFutureWatermark: 'lower' is wrong; one of keep, reset is expected"),
    ],
)
def test_what_does_not_fit_is_refused(settings, sentence):
    with pytest.raises(OptionError, match=sentence):
        SourceOptions.parse({**BASE, **settings})


def test_streams_alone_have_them():
    with pytest.raises(OptionError, match="option maxEventTimeAhead is for streams"):
        SourceOptions.parse(BASE).for_batch()
    with pytest.raises(OptionError, match="option onFutureWatermark is for streams"):
        SourceOptions.parse({**DEFAULT, "onFutureWatermark": "reset"}).for_batch()
    SourceOptions.parse(DEFAULT).for_batch()
    assert axes_of({"propagate": "true"})[""].future is None


def test_a_state_depends_on_the_option_and_not_on_its_default():
    # As versions to 0.3 have it, without the option: their checkpoints go on.
    assert SourceOptions.parse(DEFAULT).settings == "85ef4fbfc9732abe"
    assert (
        SourceOptions.parse({**DEFAULT, "maxEventTimeAhead": "none"}).settings == SourceOptions.parse(DEFAULT).settings
    )
    assert SourceOptions.parse(DEFAULT).settings != SourceOptions.parse(BASE).settings
    assert SourceOptions.parse({**BASE, "onFutureTime": "null"}).settings == SourceOptions.parse(BASE).settings


def test_it_is_counted_over_batches_restarts_parts_and_recovery_reads(kafka, topic_of, open_stream):
    topic = topic_of(1)
    settings = {"eventTime": "json:$.t", "maxEventTimeAhead": "1 hour", "watermarkLag": "0 seconds"}
    streams = [open_stream(topic, settings), open_stream(topic, {**settings, "maxRecordsPerPartition": "1"})]
    for batch in (1, 2):
        values = [b'{"t":%d}' % ms for ms in (1_000 * batch, YEAR_3000_MS, 500)]
        produce(kafka.bootstrap, topic, [Record(0, 1, value) for value in values])
        for stream in streams:
            stream.restart()
            stream.drain()
            assert stream.reader.reportLatestOffset()["future_event_times"] == {topic: {"0": batch}}
            assert stream.watermark_ms() == 1_000 * batch
