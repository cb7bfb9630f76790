"""A query whose watermark stands in the future: told at its start, and reset without a new checkpoint."""

from __future__ import annotations

from dataclasses import replace

import pytest

from keyedwm.core.axis import AxisState, Counts, PropagatedState
from keyedwm.core.coalescer import CommonState
from keyedwm.core.rows import ControlKind
from keyedwm.core.watermark import Status
from keyedwm.kafka.client.values import TopicPartition
from keyedwm.savepoint_files import Files, Savepoint, write_savepoint
from pyspark_wm_source.driver.future_watermarks import FutureWatermarks, Limits
from pyspark_wm_source.driver.plan import BrokerAnswers, Rules, plan
from pyspark_wm_source.options.source_options import SourceOptions
from pyspark_wm_source.values.offsets import Channel, QueryOffset, RetiredChannel
from pyspark_wm_source.values.ranges import RangeResult
from tests.source.test_changed_policy import Chain
from tests.source.test_changed_policy import options as policy_options
from tests.source.test_replay import as_bytes
from tests.tools import Record, Stream, controls, events, produce

A, B, C = (TopicPartition("t", partition) for partition in range(3))
NOW_MS, DAY_MS = 1_760_000_000_000, 86_400_000
YEAR_3000_MS = 32_503_680_000_000
RIGHT_MS = NOW_MS - 5_000
BASE = {"kafka.bootstrap.servers": "h:1", "subscribe": "t"}
RESET = {**BASE, "onFutureWatermark": "reset"}


def channel(*watermarks_ms: int | None, read: int = 0, status: Status = Status.ACTIVE) -> Channel:
    """A channel whose axes 0, 1, ... have sent these watermarks."""
    axes = {key: AxisState((), None) if ms is None else AxisState((ms,), ms) for key, ms in enumerate(watermarks_ms)}
    return Channel(next_offset=10, read=read, status=status, since_ms=NOW_MS, counts=Counts(), axes=axes)


def offset(
    channels: dict[TopicPartition, Channel], emitted_ms: dict[int, int], top: dict[int, int], **more
) -> QueryOffset:
    common = CommonState(
        emitted=emitted_ms, top=top, idle_spell=more.pop("idle", False), history=more.pop("history", {})
    )
    return QueryOffset(batch=4, group="g", state_key="00", now_ms=NOW_MS, coalesced=common, channels=channels, **more)


def test_those_in_the_future_begin_anew_and_the_others_decide():
    start = offset(
        {A: channel(RIGHT_MS), B: channel(YEAR_3000_MS), C: channel(RIGHT_MS - 1, read=5, status=Status.IDLE)},
        emitted_ms={0: YEAR_3000_MS}, top={0: YEAR_3000_MS}, history={0: ((NOW_MS, YEAR_3000_MS),)}, idle=True,
        retired={TopicPartition("t", 7): RetiredChannel(
            missed_ms=0, next_offset=1, counts=Counts(), axes=channel(YEAR_3000_MS).axes)},
    )  # fmt: skip
    after = {C: RangeResult(next_offset=10, counts=Counts(late=3), axes=channel(YEAR_3000_MS).axes)}
    correction = FutureWatermarks(SourceOptions.parse(RESET)).corrected(start, after, NOW_MS)
    assert correction.is_changed
    assert {tp: one.axes for tp, one in correction.start.channels.items()} == {A: channel(RIGHT_MS).axes, B: {}, C: {}}
    assert (correction.start.coalesced, correction.start.told_ms) == (CommonState(top={0: RIGHT_MS}), {0: YEAR_3000_MS})
    assert [one.axes for one in correction.start.retired.values()] == [{}]
    answers = BrokerAnswers(ends=dict.fromkeys((A, B, C), 10), begins={}, requested_ms=NOW_MS, now_ms=NOW_MS)
    planned = plan(correction.start, correction.after, answers, Rules.of(SourceOptions.parse(RESET), None))
    assert {tp: one.resets for tp, one in planned.channels.items()} == {A: 0, B: 1, C: 1}
    assert planned.channels[C].counts == Counts(late=3)
    assert planned.watermark_ms(0) is None  # B is active and has none
    idle = {B: replace(planned.channels[B], status=Status.IDLE), C: planned.channels[C], A: planned.channels[A]}
    later = plan(replace(planned, channels=idle), {}, answers, Rules.of(SourceOptions.parse(RESET), None))
    assert later.watermark_ms(0) == RIGHT_MS


def test_a_coalesced_watermark_that_nobody_has_any_more_goes_too():
    start = offset({A: channel(None)}, emitted_ms={0: YEAR_3000_MS}, top={0: YEAR_3000_MS})
    correction = FutureWatermarks(SourceOptions.parse(RESET)).corrected(start, {}, NOW_MS)
    assert (correction.is_changed, correction.start.coalesced) == (True, CommonState())


@pytest.mark.parametrize(
    ("limit", "watermark_ms", "is_beyond"),
    [
        ({}, NOW_MS + DAY_MS, False), ({}, NOW_MS + DAY_MS + 1, True),
        # Append times are those of another clock: a day is the least.
        ({"maxEventTimeAhead": "1 second"}, NOW_MS + DAY_MS, False),
        ({"maxEventTimeAhead": "7 days"}, NOW_MS + 7 * DAY_MS, False),
        ({"maxEventTimeAhead": "7 days"}, NOW_MS + 7 * DAY_MS + 1, True), ({"maxEventTimeAhead": "none"}, 2**62, False),
    ],
)  # fmt: skip
def test_how_far_ahead_is_too_far(limit, watermark_ms, is_beyond):
    limits = Limits.of(SourceOptions.parse({**BASE, **limit}), NOW_MS)
    assert limits.keys_ahead(channel(watermark_ms).axes) == ({0: watermark_ms} if is_beyond else {})


def test_a_watermark_that_the_policy_has_not_sent_yet_counts_and_a_propagated_one_does_not():
    limits = Limits.of(SourceOptions.parse(BASE), NOW_MS)
    assert limits.keys_ahead({0: AxisState((YEAR_3000_MS,), RIGHT_MS)}) == {0: YEAR_3000_MS}
    assert limits.keys_ahead({0: AxisState(PropagatedState(1, 2), YEAR_3000_MS)}) == {}


def test_each_axis_has_its_own():
    options = SourceOptions.parse(RESET | {
        "watermarks": '{"a": {"key": 0, "eventTime": "json:$.a"}, "b": {"key": 1, "maxEventTimeAhead": "none"}}'
    })  # fmt: skip
    both = (YEAR_3000_MS, YEAR_3000_MS)
    start = offset({A: channel(*both)}, emitted_ms=dict(enumerate(both)), top=dict(enumerate(both)))
    correction = FutureWatermarks(options).corrected(start, {}, NOW_MS)
    assert (correction.start.coalesced.emitted, set(correction.start.channels[A].axes)) == ({1: YEAR_3000_MS}, {1})


def test_a_query_is_repaired_without_reading_again(kafka, topic_of, open_stream, caplog, tmp_path):
    topic = topic_of(1)
    settings = {"eventTime": "json:$.t", "watermarkLag": "0 seconds"}
    stream = open_stream(topic, settings, maxEventTimeAhead="none")

    def go_on(*times_ms: int, **more: str) -> list:
        stream.reader = open_stream(topic, settings, **more).reader
        produce(kafka.bootstrap, topic, [Record(0, 1, b'{"t":%d}' % ms) for ms in times_ms])
        return stream.drain()

    def told_together(batch) -> int:
        return sum(one["kind"] == "watermark" and one["channel"] is None for one in controls(batch))

    def control_rows(batches: list) -> list[tuple]:
        return [(one["kind"], one["watermark_ms"]) for batch in batches for one in kinds(batch)]

    def kinds(batch) -> list[dict]:
        return [
            {"kind": one["kind"], "watermark_ms": one["watermark"] and int(one["watermark"].timestamp() * 1000)}
            for one in controls(batch) if one["kind"] in ("reset", "watermark") and one["channel"]
        ]  # fmt: skip

    go_on(1_000, YEAR_3000_MS, maxEventTimeAhead="none")
    go_on(2_000)  # the default keeps others away, and this one stays
    assert stream.watermark_ms() == YEAR_3000_MS
    (message,) = (text for text in caplog.messages if "onFutureWatermark=reset lets" in text)
    assert message.startswith(
        f"{topic}-0: the watermark is up to 32503680000000 ms (3000-01-01T00:00:00.000Z), while the "
    )
    files = Files(str(tmp_path / "savepoint"))
    savepoint = Savepoint(
        place=files.place, checkpoint="c", batch=stream.log[-1]["batch"], sources=stream.log[-1:], operators={}
    )
    write_savepoint(files, savepoint)
    before = len(stream.log)
    repaired = go_on(3_000, YEAR_3000_MS, onFutureWatermark="reset")
    assert [row["offset"] for batch in repaired for row in events(batch)] == [3, 4]
    assert control_rows(repaired) == [("reset", None), ("watermark", 3_000)]
    assert stream.watermark_ms() == 3_000
    # Once: a later start with the option finds nothing, and each batch is read again as it was, whatever is set now.
    assert control_rows(go_on(4_000, onFutureWatermark="reset")) == [("watermark", 4_000)]
    for number, batch in enumerate(repaired, before):
        for more in ({}, {"maxEventTimeAhead": "none"}):
            stream.reader = open_stream(topic, settings, **more).reader
            assert as_bytes(stream.read(number)) == as_bytes(batch)
    # So is another query that goes on from a savepoint.
    where = {"kafka.bootstrap.servers": kafka.bootstrap, "subscribe": topic, "continueFrom": files.place}
    moved_stream = Stream(**settings, **where, onFutureWatermark="reset")
    batches = moved_stream.drain()
    assert [row["offset"] for batch in batches for row in events(batch)] == [3, 4, 5]
    assert (control_rows(batches)[0], moved_stream.watermark_ms()) == (("reset", None), 4_000)
    # Nobody has followed its rows, so they tell the coalesced watermark; those of the repaired one do not.
    assert [sum(map(told_together, some)) for some in (repaired, batches)] == [0, 1]


def test_who_follows_the_rows_goes_on_and_an_operator_keeps_its_watermark(monkeypatch):
    """They get reset rows, and no row with a lower coalesced watermark, which the sink would refuse."""
    chain = Chain(monkeypatch, policy_options("fixedLag", maxEventTimeAhead="none"))
    chain.batch(at={A: YEAR_3000_MS, B: YEAR_3000_MS})
    chain.batch()
    assert chain.told_ms == YEAR_3000_MS - 50
    chain.driver.options = policy_options("fixedLag", onFutureWatermark="reset")
    for step in range(4):
        chain.driver.clock += 3_000
        assert chain.batch(at={A: 5_000 + step, B: 6_000 + step} if step in (1, 2) else None)  # a reset needs no record
        reset = {row.channel for row in chain.rows if row.kind is ControlKind.RESET}
        assert reset == ({str(A), str(B)} if step == 0 else set())
    assert QueryOffset.from_json(chain.driver.offset).watermark_ms(0) == 5_002 - 50
    assert chain.told_ms == YEAR_3000_MS - 50
