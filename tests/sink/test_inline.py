"""Control rows in the output topic: where they stand, what they say, and that nobody sees them too early."""

from __future__ import annotations

import json
import uuid
from dataclasses import replace

import pytest

from keyedwm.core.control_row import ControlRow, channel_row
from keyedwm.core.errors import OptionError, UnavailableError
from keyedwm.core.inline import HEADER, VERSION, Upstream, UpstreamBarrier, decode_cut, encode_cut
from keyedwm.core.rows import ControlKind
from keyedwm.core.watermark import Guarantee
from pyspark_wm_sink.options.sink_options import SnapshotMode
from tests.sink.conftest import records_of
from tests.sink.kafka_sink import Died, Sink
from tests.tools import Record, at, controls, events, produce, wait_until

PARTITIONS = 3


def watermark_row(channel: int, offset: int, ms: int) -> ControlRow:
    return channel_row(ControlKind.WATERMARK, ("in", channel), offset, "s", key=0, watermark_ms=ms)


def barrier(channel: int, offset: int, snapshot: int, channels: int = 2) -> ControlRow:
    return channel_row(ControlKind.BARRIER, ("in", channel), offset, "s", snapshot=snapshot, channels=channels)


def idle(channel: int, offset: int) -> ControlRow:
    return channel_row(ControlKind.IDLE, ("in", channel), offset, "s")


@pytest.fixture
def sink(kafka, topic_of, tmp_path):
    kafka_sink = Sink(kafka.bootstrap, topic_of(PARTITIONS), tmp_path / "ledger", f"q-{uuid.uuid4().hex}")
    kafka_sink.inline, kafka_sink.mode = True, SnapshotMode.BARRIER
    return kafka_sink


@pytest.fixture
def lie(kafka):
    """What lies in each partition of a topic, in order: rows as their value, control rows as their JSON."""

    def read(topic: str, *, only_committed: bool = True) -> dict[int, list]:
        values_by_partition: dict[int, list] = {partition: [] for partition in range(PARTITIONS)}
        for partition, key, value, headers in records_of(kafka.bootstrap, topic, only_committed=only_committed):
            is_control = headers and headers[0]["key"] == HEADER
            assert not is_control or (
                headers == [{"key": HEADER, "value": VERSION}] and key.startswith(HEADER.encode())
            )
            values_by_partition[partition].append(json.loads(value) if is_control else value.decode())
        return values_by_partition

    return read


def snapshot(sink: Sink, batch: int, *, ms: int, rows: int = 6) -> list:
    """The reports of two tasks that write `rows` rows each over all partitions; each brings one channel's control."""
    reports = []
    for channel in (0, 1):
        control = (watermark_row(channel, 10 * batch + 9, ms + channel), barrier(channel, 10 * batch + 9, batch))
        values = [f"{batch}:{channel}:{n}" for n in range(rows)]
        reports.append(sink.spread(batch, channel, values, PARTITIONS, control))
    return reports


def test_control_rows_stand_behind_all_rows_of_their_batch_in_every_partition(sink, lie):
    for batch in (0, 1):
        sink.publish(batch, *snapshot(sink, batch, ms=1_000 * (batch + 1)))
    for lies in lie(sink.topic).values():
        kinds = [row if isinstance(row, str) else (row["kind"], row["snapshot"]) for row in lies]
        for batch in (0, 1):
            own = kinds[: kinds.index(("barrier", batch)) + 1]
            kinds = kinds[len(own) :]
            expected_control = [("watermark", batch), ("watermark", batch), ("barrier", batch)]
            assert own[-3:] == expected_control
            assert len(own) == 3 + 4
            assert all(row.startswith(f"{batch}:") for row in own[:-3])
        assert not kinds


def test_a_barrier_holds_the_state_of_every_channel(sink, lie):
    sink.publish(
        0,
        sink.written(
            0,
            "a",
            control=(watermark_row(0, 3, 70), watermark_row(0, 5, 90), idle(1, 4), barrier(0, 5, 0), barrier(1, 4, 0)),
        ),
    )
    sink.publish(1, sink.written(1, control=(watermark_row(1, 9, 80), barrier(0, 5, 1), barrier(1, 9, 1))))
    for lies in lie(sink.topic).values():
        control_values = [row for row in lies if not isinstance(row, str)]
        assert [(row["kind"], row.get("channel"), row.get("watermark")) for row in control_values] == [
            ("watermark", "in-0", 90), ("idle", "in-1", None), ("barrier", None, None),
            ("watermark", "in-1", 80), ("barrier", None, None),
        ]  # fmt: skip
        assert control_values[2]["channels"] == {
            "in-0": {"offset": 5, "idle": False, "watermarks": {"0": 90}},
            "in-1": {"offset": 4, "idle": True, "watermarks": {}},
        }
        assert control_values[4]["channels"] == {
            "in-0": {"offset": 5, "idle": False, "watermarks": {"0": 90}},
            "in-1": {"offset": 9, "idle": False, "watermarks": {"0": 80}},
        }
        snapshot_cut = decode_cut(VERSION, json.dumps(control_values[4]).encode(), "here")
        assert snapshot_cut is not None
        assert snapshot_cut.promise() == ({0: 80}, False)


def test_nobody_sees_a_control_row_before_the_rows_it_speaks_of(sink, lie, monkeypatch):
    """The driver dies between the two ends: rows are visible, control rows wait for the next start."""
    import pyspark_wm_sink.kafka.publish as module

    def only_rows(cluster, transactions, *, commit):
        if any("-control-" in transaction.transactional_id for transaction in transactions):
            raise Died
        return real(cluster, transactions, commit=commit)

    real = module.end
    with monkeypatch.context() as dying:
        dying.setattr(module, "end", only_rows)
        with pytest.raises(Died):
            sink.publish(0, *snapshot(sink, 0, ms=1_000))
    wait_until(lambda: sum(map(len, lie(sink.topic, only_committed=False).values())) == 12, "the rows")
    sink.restart()
    assert [[row["kind"] for row in lies[-3:]] for lies in lie(sink.topic).values()] == [
        ["watermark", "watermark", "barrier"]
    ] * PARTITIONS


def test_a_batch_that_comes_again_tells_its_control_rows_once(sink, lie):
    sink.publish(0, *snapshot(sink, 0, ms=1_000))
    before = lie(sink.topic)
    sink.restart()
    sink.publish(0, *snapshot(sink, 0, ms=1_000))
    assert lie(sink.topic) == before
    assert sink.open() == 0


def test_a_commit_that_fails_before_its_decision_leaves_no_control_row_when_it_is_asked_for_again(
    sink, lie, monkeypatch
):
    import pyspark_wm_sink.kafka.publish as module

    reports = snapshot(sink, 0, ms=1_000)

    def full(*_):
        raise UnavailableError("the disk is full")

    with monkeypatch.context() as failing:
        failing.setattr(module.Ledger, "decide", full)
        with pytest.raises(UnavailableError):
            sink.publish(0, *reports)
    sink.publish(0, *reports)
    assert sink.open() == 0
    assert [sum(not isinstance(row, str) for row in lies) for lies in lie(sink.topic).values()] == [3] * PARTITIONS


def test_control_rows_are_not_committed_when_a_transaction_of_their_rows_was_lost(sink, lie, monkeypatch):
    import pyspark_wm_sink.kafka.publish as module
    from keyedwm.kafka.requests.transactions import end

    reports = snapshot(sink, 0, ms=1_000)
    decide = module.Ledger.decide

    def decide_and_lose(ledger, entry):
        decide(ledger, entry)
        end(sink.cluster, [reports[0].transaction], commit=False)

    with monkeypatch.context() as losing:
        losing.setattr(module.Ledger, "decide", decide_and_lose)
        with pytest.raises(module.LostTransactionError):
            sink.publish(0, *reports)
    assert all(isinstance(row, str) for lies in lie(sink.topic).values() for row in lies)
    assert sink.open() == 0


def test_at_least_once_keeps_the_state_of_silent_channels_over_its_batches(sink, lie):
    sink.guarantee = Guarantee.AT_LEAST_ONCE
    sink.publish(
        0,
        sink.written(0, control=(watermark_row(0, 5, 90), watermark_row(1, 4, 80), barrier(0, 5, 0), barrier(1, 4, 0))),
    )
    sink.publish(1, sink.written(1, control=(watermark_row(1, 9, 95), barrier(0, 5, 1), barrier(1, 9, 1))))
    for lies in lie(sink.topic).values():
        assert lies[-1]["channels"]["in-0"] == {"offset": 5, "idle": False, "watermarks": {"0": 90}}


def test_without_barriers_each_batch_is_a_snapshot(sink, lie):
    sink.mode = SnapshotMode.BATCH
    sink.publish(0, sink.written(0, "a", control=(watermark_row(0, 0, 10),)))
    sink.publish(1, sink.written(1, "b"))  # nothing moved, and rows wait for their barrier
    sink.publish(2, sink.written(2))
    barriers = [row for row in lie(sink.topic)[0] if not isinstance(row, str) and row["kind"] == "barrier"]
    assert [row["snapshot"] for row in barriers] == [0, 1]
    assert barriers[0]["channels"] == barriers[1]["channels"]


@pytest.mark.parametrize(
    ("columns", "options", "sentence"),
    [
        ("value string, topic string", {}, "'inline' needs the option topic"),
        ("value string", {"topic": "TOPIC"}, "'inline' needs the source's control column"),
    ],
)
def test_inline_refuses_what_leaves_a_reader_without_control_rows(
    kafka, topic_of, tmp_path, columns, options, sentence
):
    from pyspark.sql.types import StringType, StructType

    from pyspark_wm_sink.writer import stream_writer

    schema = StructType()
    for column in columns.split(", "):
        schema = schema.add(column.split()[0], StringType())
    all_options = {name: topic_of(1) if value == "TOPIC" else value for name, value in options.items()}
    all_options |= {
        "kafka.bootstrap.servers": kafka.bootstrap,
        "checkpointLocation": str(tmp_path),
        "controlRows": "inline",
    }
    with pytest.raises(OptionError) as error:
        stream_writer(all_options, schema, overwrite=False)
    assert sentence in error.value.message


def test_two_channels_of_one_status_do_not_mix(sink):
    from pyspark_wm_sink.batch.seal import last_status

    rows = [idle(0, 5), replace(idle(0, 3), kind=ControlKind.ACTIVE), idle(1, 2), watermark_row(1, 7, 5)]
    assert last_status(rows) == {"in-0": ControlKind.IDLE, "in-1": ControlKind.WATERMARK}


def forged(snapshot: int, ms: int, query: str) -> bytes:
    return encode_cut(
        UpstreamBarrier(query=query, snapshot=snapshot, channels={"in-0": Upstream(offset=1, watermarks={0: ms})})
    )


def test_with_a_secret_a_reader_follows_the_sink_alone(kafka, sink, lie, open_stream):
    sink.secret = b"a secret of both sides"
    sink.publish(0, *snapshot(sink, 0, ms=1_000))
    genuine = {partition: json.dumps(rows[-1], separators=(",", ":")) for partition, rows in lie(sink.topic).items()}
    assert len({json.loads(value)["mac"] for value in genuine.values()}) == PARTITIONS
    others = [forged(2**40, 253_402_300_799_000, sink.query), genuine[1].encode(), b"[" * 10_000, b""]
    marked = ((HEADER, VERSION),)
    produce(kafka.bootstrap, sink.topic, [Record(0, 0, value, b"k", marked) for value in others])
    sink.publish_and_settle(1, *snapshot(sink, 1, ms=2_000))
    stream = open_stream(sink.topic, propagate="true", controlSecret="a secret of both sides")
    batches = list(stream.drain())
    assert len([event for batch in batches for event in events(batch)]) == 24
    watermarks = [row["watermark"] for batch in batches for row in controls(batch) if row["kind"] == "watermark"]
    assert max(watermarks) == at(2_000)
    assert stream.reader.reportLatestOffset()["control_records"] == {sink.topic: {"0": len(others)}}
    assert "a secret of both sides" not in json.dumps(stream.offset)


def test_a_secret_without_control_rows_is_refused(kafka, topic_of, tmp_path):
    from pyspark.sql.types import StructType

    from pyspark_wm_sink.writer import stream_writer

    options = {
        "kafka.bootstrap.servers": kafka.bootstrap, "topic": topic_of(1), "ledger": str(tmp_path), "snapshot": "batch",
        "controlSecret": "a secret of both sides",
    }  # fmt: skip
    with pytest.raises(OptionError, match="option controlSecret has no effect without controlRows=inline"):
        stream_writer(options, StructType().add("value", "string"), overwrite=False)
