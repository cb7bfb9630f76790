"""Several time axes, other places of event time, and policies that move with the clock, on a real Kafka."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from keyedwm.core.axis import AxisConfig
from keyedwm.core.coalescer import CommonState
from keyedwm.core.errors import InputError
from keyedwm.core.idleness import Idleness
from keyedwm.core.policy import LagAndLull, RealTimeLag
from keyedwm.core.throttle import ThrottleByBatch
from keyedwm.core.watermark import Guarantee
from keyedwm.testing.broker import Broker
from pyspark_wm_source.driver.plan import BrokerAnswers, Rules, plan, worth_a_batch
from pyspark_wm_source.driver.splits import ControlSettings, splits
from pyspark_wm_source.values.offsets import NOT_STARTED, QueryOffset
from tests.source.plans import tp
from tests.tools import Record, Stream, at, controls, events, produce

WATERMARKS = {"made": {"key": 3, "eventTime": "json:$.made"}, "sent": {"key": 1, "watermarkLag": "2 seconds"}}


def test_each_axis_has_columns_and_watermarks_of_its_own(
    kafka: Broker, topic_of: Callable, open_stream: Callable[..., Stream]
) -> None:
    topic = topic_of(1)
    times_ms = [5_000, 9_000, None]
    produce(
        kafka.bootstrap,
        topic,
        [Record(0, value=json.dumps({"made": m}).encode(), timestamp_ms=100_000 + i) for i, m in enumerate(times_ms)],
    )
    stream = open_stream(topic, {"startingOffsets": "earliest", "watermarks": json.dumps(WATERMARKS)})
    first, second = stream.drain()
    assert [e["event_time_made"] for e in events(first)] == [at(5_000), at(9_000), None]
    assert [e["event_time_sent"] for e in events(first)] == [at(100_000), at(100_001), at(100_002)]
    watermarks = [(c["key"], c["watermark"]) for c in controls(first) if c["kind"] == "watermark"]
    assert watermarks == [(1, at(98_002)), (3, at(9_000))]
    assert {(r["watermark_made"], r["watermark_sent"]) for r in second.to_pylist()} == {(at(9_000), at(98_002))}
    coalesced = [(c["key"], c["watermark"]) for c in controls(second) if c["kind"] == "watermark"]
    assert coalesced == [(1, at(98_002)), (3, at(9_000))]


@pytest.mark.parametrize(
    ("where", "record"),
    [
        ("json:$.a[1]", Record(0, value=b'{"a": [0, "1970-01-01T00:00:07Z"]}', timestamp_ms=1)),
        ("key:$.a", Record(0, key=b'{"a":"1970-01-01T00:00:07.0009Z"}', timestamp_ms=1)),
        ("header:when", Record(0, headers=(("when", b"1970-01-01 00:00:07"),), timestamp_ms=1)),
    ],
)
def test_event_time_is_read_where_the_option_says(
    where: str, record: Record, kafka: Broker, topic_of: Callable, open_stream: Callable[..., Stream]
) -> None:
    topic = topic_of(1)
    produce(kafka.bootstrap, topic, [record])
    options = {
        "startingOffsets": "earliest",
        "eventTime": where,
        "eventTimeUnit": "iso",
        "columns": "event_time,control",
    }
    first = open_stream(topic, options).drain()[0]
    assert first.column_names == ["event_time", "control"]
    assert [row["event_time"] for row in first.to_pylist() if row["control"] is None] == [at(7_000)]


def test_a_bad_event_time_is_counted_or_fails_by_name(
    kafka: Broker, topic_of: Callable, open_stream: Callable[..., Stream]
) -> None:
    topic = topic_of(1)
    produce(kafka.bootstrap, topic, [Record(0, value=v, timestamp_ms=1) for v in (b'{"t":1}', b"x", None, b'{"t":9}')])
    options = {"startingOffsets": "earliest", "eventTime": "json:$.t"}
    stream = open_stream(topic, options)
    assert [e["event_time"] for e in events(stream.drain()[0])] == [at(1), None, None, at(9)]
    assert stream.offset is not None
    assert stream.offset["channels"][topic]["0"][3] == 1  # a tombstone is not wrong, it has no value
    failing = open_stream(topic, {**options, "onBadEventTime": "fail"})
    failing.plan()
    with pytest.raises(InputError, match=rf"{topic}-0: the record at offset 1 has no usable event time in json:\$\.t"):
        failing.read()


def test_in_band_watermarks_stand_before_the_event_that_made_them_true(
    kafka: Broker, topic_of: Callable, open_stream: Callable[..., Stream]
) -> None:
    topic = topic_of(1)
    produce(kafka.bootstrap, topic, [Record(0, value=b"", timestamp_ms=t) for t in (10, 30, 20, 40)])
    stream = open_stream(topic, {"startingOffsets": "earliest", "watermarkThrottle": "none"})
    offsets_and_watermarks = [
        (row["offset"], (row["control"] or {}).get("watermark")) for row in stream.drain()[0].to_pylist()
    ]
    expected = [(0, at(10)), (0, None), (1, at(30)), (1, None), (2, None), (3, at(40)), (3, None), (4, None)]
    assert offsets_and_watermarks == expected


def rules(config: AxisConfig, retention_ms: int | None = None) -> Rules:
    return Rules(
        guarantee=Guarantee.EXACTLY_ONCE,
        idleness=Idleness(None),
        max_offsets=None,
        retention_ms=retention_ms,
        axes=(config,),
        clocked=(config,),
    )


def new_offset(channels: int) -> QueryOffset:
    begins = {tp(p): 0 for p in range(channels)}
    return QueryOffset(
        batch=NOT_STARTED, group="g", state_key="00" * 32, now_ms=0, coalesced=CommonState(), begins=begins
    )


def test_a_real_time_watermark_moves_while_nothing_is_read() -> None:
    config = AxisConfig(key=0, policy=RealTimeLag(100), throttle=ThrottleByBatch())
    start = new_offset(2)
    watermarks_ms = []
    for now_ms in (1_000, 1_000, 2_000):
        answers = BrokerAnswers(ends={tp(0): 0, tp(1): 0}, begins=start.begins, requested_ms=now_ms, now_ms=now_ms)
        planned = plan(start, {}, answers, rules(config))
        watermarks_ms.append(planned.watermark_ms(0) if worth_a_batch(start, planned) else None)
        control_settings = ControlSettings(axes={"": 0}, control=True, barriers=False)
        own = [
            row.watermark_ms
            for split in splits(start, planned, control_settings)
            for row in split.control
            if row.channel
        ]
        assert own == ([] if watermarks_ms[-1] is None else [now_ms - 100] * 2)
        start = planned
    assert watermarks_ms == [900, None, 1_900]


def test_a_backlog_is_no_lull() -> None:
    config = AxisConfig(key=0, policy=LagAndLull(0, 10), throttle=ThrottleByBatch())
    start = new_offset(1)
    planned = plan(
        start, {}, BrokerAnswers(ends={tp(0): 5}, begins=start.begins, requested_ms=10**6, now_ms=10**6), rules(config)
    )
    assert planned.channels[tp(0)].announced == ()
