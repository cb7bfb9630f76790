"""Watermarks and snapshots from upstream: barriers in the topic decide, and a batch holds whole snapshots."""

from __future__ import annotations

import logging
from collections.abc import Mapping

import pytest

from keyedwm.core.errors import FormatError, InputError, OptionError, RegressionError
from keyedwm.core.inline import HEADER, VERSION, Upstream, UpstreamBarrier, encode_change, encode_cut
from keyedwm.core.rows import ControlKind
from keyedwm.core.watermark import Status
from keyedwm.kafka.requests.transactions import end
from pyspark_wm_source.options.source_options import SourceOptions
from tests.sink.kafka_sink import Sink
from tests.source.test_recovery import DAMAGES, run
from tests.tools import Record, at, cluster_at, controls, events, produce, wait_for_markers

MARK = ((HEADER, VERSION),)


def row(partition: int, value: str, ms: int = 0) -> Record:
    return Record(partition, ms, value.encode())


def barrier(
    partition: int,
    snapshot: int,
    watermarks: Mapping[str, int | None],
    *,
    idle: tuple[str, ...] = (),
    query: str = "upstream",
    version: bytes = VERSION,
) -> Record:
    """The end of a snapshot; watermarks: upstream channel → ms, None for a channel that has none."""
    channels = {
        name: Upstream(idle=name in idle, watermarks={} if ms is None else {0: ms}) for name, ms in watermarks.items()
    }
    upstream_barrier = UpstreamBarrier(query=query, snapshot=snapshot, channels=channels)
    return Record(partition, 0, encode_cut(upstream_barrier), b"barrier", ((HEADER, version),))


def watermark(partition: int, channel: str, ms: int) -> Record:
    value = encode_change(ControlKind.WATERMARK, "upstream", 0, channel, key=0, watermark_ms=ms)
    return Record(partition, 0, value, b"watermark", MARK)


@pytest.fixture
def propagated(open_stream):
    return lambda topic, **options: open_stream(topic, propagate="true", **options)


def values(batch) -> list[str]:
    return [event["value"].decode() for event in events(batch)]


def marks(batch) -> list[tuple]:
    return [(c["channel"], c["watermark"]) for c in controls(batch) if c["kind"] == "watermark"]


def test_a_reader_without_propagate_sees_rows_and_holes_but_no_control_record(kafka, topic_of, open_stream):
    topic = topic_of(1)
    for codec_header in ((), (("x", b"1"),), ((HEADER + "s", b"1"),)):
        records = [
            row(0, "a")._replace(headers=codec_header),
            watermark(0, "in-0", 5),
            barrier(0, 0, {"in-0": 5}),
            row(0, "b"),
        ]
        produce(kafka.bootstrap, topic, records)
    (batch, *_) = open_stream(topic, includeHeaders="true").drain()
    assert values(batch) == ["a", "b"] * 3
    assert [event["offset"] for event in events(batch)] == [0, 3, 4, 7, 8, 11]
    assert [event["headers"] for event in events(batch)][2:5:2] == [
        [{"key": "x", "value": b"1"}],
        [{"key": HEADER + "s", "value": b"1"}],
    ]


def test_a_partition_promises_what_all_its_upstream_channels_promise(kafka, topic_of, propagated):
    topic = topic_of(1)
    stream = propagated(topic)
    produce(kafka.bootstrap, topic, [row(0, "a", 9_000), barrier(0, 0, {"in-0": 70, "in-1": None})])
    read, durable = stream.drain()
    assert (marks(read), marks(durable), values(durable)) == ([], [], [])
    assert stream.watermark_ms() is None
    produce(kafka.bootstrap, topic, [row(0, "b", 9_000), barrier(0, 1, {"in-0": 70, "in-1": 50})])
    first, second = stream.drain()
    assert marks(first) == [(f"{topic}-0", at(50))]
    assert marks(second) == [(None, at(50))]
    assert stream.watermark_ms() == 50


def test_the_slowest_partition_holds_the_watermark_and_every_batch_has_its_barriers(kafka, topic_of, propagated):
    topic = topic_of(2)
    stream = propagated(topic)
    for snapshot, ms in enumerate((100, 200, 300)):
        produce(kafka.bootstrap, topic, [row(p, f"{snapshot}", ms) for p in (0, 1)])
        produce(kafka.bootstrap, topic, [barrier(p, snapshot, {"in-0": ms}) for p in (0, 1)])
    batches = stream.drain()
    assert stream.watermark_ms() == 300
    for number, batch in enumerate(batches):
        barriers = [(c["snapshot"], c["channels"]) for c in controls(batch) if c["kind"] == "barrier"]
        assert barriers == [(number, 2)] * 2


def one_partition_ahead() -> list[Record]:
    """Partition 0 is in its third snapshot, partition 1 in its second."""
    ahead = [row(0, "a0"), barrier(0, 0, {"in-0": 1}), row(0, "b0"), barrier(0, 1, {"in-0": 2}), row(0, "c0")]
    return [*ahead, row(1, "a1"), barrier(1, 0, {"in-0": 1}), row(1, "b1")]


def test_rows_behind_a_barrier_wait_until_every_partition_shows_it(kafka, topic_of, propagated):
    topic = topic_of(2)
    stream = propagated(topic)
    produce(kafka.bootstrap, topic, one_partition_ahead())
    (first, *rest) = stream.drain()
    assert sorted(values(first)) == ["a0", "a1"]
    assert not [value for batch in rest for value in values(batch)]
    produce(kafka.bootstrap, topic, [barrier(1, 1, {"in-0": 2})])
    (second, *rest) = stream.drain()
    assert sorted(values(second)) == ["b0", "b1"]
    assert not [value for batch in rest for value in values(batch)]


def test_a_partition_of_which_nothing_is_committed_yet_holds_the_first_snapshot(kafka, topic_of, propagated, tmp_path):
    """Its log ends where it begins for a reader of committed records, but it is not empty."""
    topic = topic_of(2)
    sink = Sink(kafka.bootstrap, topic, tmp_path / "ledger", "upstream")
    uncommitted = sink.placed(0, [("b", 1)])
    produce(kafka.bootstrap, topic, [row(0, "a"), barrier(0, 0, {"in-0": 5}), barrier(1, 0, {"in-0": 5})])
    stream = propagated(topic)
    assert [values(batch) for batch in stream.drain() if values(batch)] == []
    end(sink.cluster, [uncommitted.transaction], commit=True)
    wait_for_markers(kafka.bootstrap, topic)
    assert [sorted(values(batch)) for batch in stream.drain() if values(batch)] == [["a", "b"]]


def test_at_least_once_lets_rows_of_the_next_snapshot_overtake_the_barrier(kafka, topic_of, propagated):
    """The seed design's pitfall: the same topic as above, and rows of three snapshots come together."""
    topic = topic_of(2)
    stream = propagated(topic, guarantee="at-least-once")
    produce(kafka.bootstrap, topic, one_partition_ahead())
    (first, *_) = stream.drain()
    assert sorted(values(first)) == ["a0", "a1", "b0", "b1", "c0"]
    assert stream.watermark_ms() == 1


@pytest.mark.parametrize("together", [True, False])
def test_a_barrier_that_comes_again_is_refused_or_swallowed_and_counted(kafka, topic_of, propagated, together):
    topic = topic_of(1)
    strict, lenient = propagated(topic), propagated(topic, guarantee="at-least-once")
    first = [row(0, "a"), barrier(0, 0, {"in-0": 70})]
    again = [row(0, "a"), barrier(0, 0, {"in-0": 70}), row(0, "b"), barrier(0, 1, {"in-0": 80})]
    produce(kafka.bootstrap, topic, first)
    if not together:
        strict.drain(), lenient.drain()
    produce(kafka.bootstrap, topic, again)
    with pytest.raises(RegressionError, match=rf"channel {topic}-0, key 0 would go from 70 ms to 70 ms"):
        strict.drain()
    assert sum(values(batch).count("a") for batch in lenient.drain()) == (2 if together else 1)
    assert lenient.watermark_ms() == 80
    ((*_, axis),) = lenient.offset["channels"][topic].values()
    repeated = axis[5]
    assert repeated == 1
    assert lenient.reader.reportLatestOffset()["barriers_again"] == {topic: {"0": 1}}


def test_a_checkpoint_made_without_propagate_is_refused_in_one_sentence(kafka, topic_of, open_stream, propagated):
    topic = topic_of(1)
    produce(kafka.bootstrap, topic, [row(0, "a", 5), barrier(0, 0, {"in-0": 1})])
    before, after = open_stream(topic), propagated(topic)
    before.drain()
    after.offset, after.log = before.offset, before.log
    with pytest.raises(OptionError, match="it was made without propagate: start with a new checkpoint"):
        after.drain()


def test_a_channel_that_wakes_up_behind_holds_the_watermark_where_it_is(kafka, topic_of, propagated):
    topic = topic_of(1)
    stream = propagated(topic)
    watermarks_ms = []
    for snapshot, (slow, fast, idle) in enumerate([(10, 90, True), (20, 90, False), (20, 95, False), (99, 95, False)]):
        barrier_record = barrier(0, snapshot, {"in-0": slow, "in-1": fast}, idle=("in-0",) if idle else ())
        produce(kafka.bootstrap, topic, [barrier_record])
        stream.drain()
        watermarks_ms.append(stream.watermark_ms())
    assert watermarks_ms == [90, 90, 90, 95]


def test_idleness_comes_from_upstream(kafka, topic_of, propagated):
    topic = topic_of(2)
    stream = propagated(topic)
    watermarks_of_channels = {"in-0": 10, "in-1": 20}
    produce(
        kafka.bootstrap,
        topic,
        [barrier(0, 0, watermarks_of_channels), barrier(1, 0, watermarks_of_channels, idle=("in-0", "in-1"))],
    )
    stream.drain()
    statuses = {p: channel[1] for p, channel in stream.offset["channels"][topic].items()}
    assert statuses == {"0": Status.ACTIVE.value, "1": Status.IDLE.value}
    assert stream.watermark_ms() == 10


def test_a_limit_does_not_cut_a_snapshot(kafka, topic_of, propagated):
    topic = topic_of(2)
    for snapshot in range(5):
        for p in (0, 1):
            produce(kafka.bootstrap, topic, [row(p, f"{snapshot}") for _ in range(20 + 80 * p)])
            produce(kafka.bootstrap, topic, [barrier(p, snapshot, {"in-0": snapshot})])
    batch_values = [values(batch) for batch in propagated(topic, maxOffsetsPerTrigger="10").drain()]
    assert [sorted(batch) for batch in batch_values if batch] == [[f"{snapshot}"] * 120 for snapshot in range(5)]
    two = [values(batch) for batch in propagated(topic, maxOffsetsPerTrigger="250").drain()]
    assert [len(batch) for batch in two if batch] == [240, 240, 120]


def test_a_partition_far_ahead_is_cut_at_the_snapshot_that_all_show(kafka, topic_of, propagated):
    topic = topic_of(2)
    produce(kafka.bootstrap, topic, [row(1, "0"), barrier(1, 0, {"in-0": 0})])
    for snapshot in range(30):
        produce(kafka.bootstrap, topic, [row(0, f"{snapshot}") for _ in range(40)])
        produce(kafka.bootstrap, topic, [barrier(0, snapshot, {"in-0": snapshot})])
    (first, *_) = propagated(topic).drain()
    assert values(first).count("0") == 41
    assert len(values(first)) == 41


@pytest.mark.parametrize("guarantee", ["exactly-once", "at-least-once"])
def test_another_writer_of_the_topic_is_refused(kafka, topic_of, propagated, guarantee):
    topic = topic_of(1)
    stream = propagated(topic, guarantee=guarantee)
    produce(kafka.bootstrap, topic, [barrier(0, 7, {"in-0": 1})])
    stream.drain()
    produce(kafka.bootstrap, topic, [barrier(0, 0, {"in-0": 2}, query="other")])
    with pytest.raises(InputError, match=rf"{topic}-0 at offset 1: the barrier of snapshot 0 is of query 'other'"):
        stream.drain()


def test_a_newer_format_is_refused_where_it_matters_and_skipped_elsewhere(kafka, topic_of, open_stream, propagated):
    topic = topic_of(1)
    produce(kafka.bootstrap, topic, [row(0, "a"), barrier(0, 0, {"in-0": 1}, version=b"2")])
    (batch, *_) = open_stream(topic).drain()
    assert values(batch) == ["a"]
    with pytest.raises(FormatError, match=rf"{topic}-0 at offset 1 has format version '2', this keyedwm reads"):
        propagated(topic).drain()


def test_rows_without_any_barrier_wait_and_the_log_says_so(kafka, topic_of, propagated, caplog):
    topic = topic_of(1)
    produce(kafka.bootstrap, topic, [row(0, "a")] * 300)
    with caplog.at_level(logging.WARNING, "keyedwm.source"):
        assert not [value for batch in propagated(topic).drain() for value in values(batch)]
    assert "wait for a barrier" in caplog.text


@pytest.mark.parametrize("guarantee", ["exactly-once", "at-least-once"])
@pytest.mark.parametrize("damage", [None, "deleted", "garbage", "of another batch"])
def test_restarts_and_lost_commits_change_no_result(kafka, topic_of, propagated, guarantee, damage):
    topic = topic_of(3)
    for snapshot in range(6):
        watermarks_of_channels = {"in-0": 10 * snapshot, "in-1": 5 * snapshot}
        rows = [row(p, f"{snapshot}", snapshot) for p in range(3) for _ in range(snapshot + p)]
        produce(kafka.bootstrap, topic, rows)
        produce(kafka.bootstrap, topic, [barrier(p, snapshot, watermarks_of_channels) for p in range(3)])
    options = {"guarantee": guarantee, "maxOffsetsPerTrigger": "12"}
    straight = propagated(topic, **options)
    batches = [(events(batch), controls(batch)) for batch in straight.drain()]
    broken = propagated(topic, **options)
    places = sorted(cluster_at(kafka.bootstrap).latest([(topic, p) for p in range(3)]))

    def hurt() -> None:
        reads = any(channel[0] for of_topic in broken.offset["channels"].values() for channel in of_topic.values())
        if damage is not None and reads:
            DAMAGES[damage](broken, cluster_at(kafka.bootstrap), places)

    _, rows = run(broken, hurt)
    assert rows == batches
    assert len(batches) > 3
    replayed = [(events(table), controls(table)) for table in (broken.read(n) for n in range(1, len(broken.log)))]
    assert replayed == batches


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"watermarkLag": "5 seconds"}, "option watermarkLag has no effect with propagate=true"),
        ({"idleTimeout": "5 seconds"}, "option idleTimeout has no effect with propagate=true"),
        ({"minPartitions": "5"}, "option minPartitions has no effect with propagate=true"),
        ({"watermarks": '{"a": {"key": 1, "watermarkLag": "1 second"}}'}, "option watermarkLag has no effect"),
        ({"kafka.isolation.level": "read_uncommitted"}, "propagate=true under exactly-once needs 'read_committed'"),
    ],
)
def test_options_that_contradict_upstream_are_refused(options, sentence):
    settings = {"kafka.bootstrap.servers": "localhost:1", "subscribe": "t", "propagate": "true", **options}
    with pytest.raises(OptionError) as error:
        SourceOptions.parse(settings)
    assert sentence in error.value.message


def test_a_batch_read_takes_no_propagate():
    settings = {"kafka.bootstrap.servers": "localhost:1", "subscribe": "t", "propagate": "true"}
    with pytest.raises(OptionError, match="option propagate is for streams"):
        SourceOptions.parse(settings).for_batch()
