"""Options and the pure checks of the sink."""

from __future__ import annotations

from itertools import permutations

import pytest
from pyspark.sql.types import DayTimeIntervalType, LongType, StringType, StructType

from keyedwm.arrow.rows import ControlRow
from keyedwm.core.errors import InputError, KeyedwmError, OptionError, RegressionError
from keyedwm.core.rows import Kind
from keyedwm.core.watermark import Guarantee
from pyspark_wm_sink.monotone import rise, shown
from pyspark_wm_sink.options import SinkOptions, SnapshotMode
from pyspark_wm_sink.seal import Brought, seal
from pyspark_wm_sink.writer import batch_writer, stream_writer

ONCE, LEAST = Guarantee.EXACTLY_ONCE, Guarantee.AT_LEAST_ONCE


def mark(channel: str | None, offset: int | None, ms: int, key: int = 0) -> ControlRow:
    return ControlRow(kind=Kind.WATERMARK, channel=channel, offset=offset, watermark_ms=ms, key=key)


def barrier(channel: str, offset: int, snapshot: int, channels: int) -> ControlRow:
    return ControlRow(kind=Kind.BARRIER, channel=channel, offset=offset, snapshot=snapshot, channels=channels)


def brought(*control: ControlRow, rows: int = 1, tops: dict | None = None) -> Brought:
    return Brought(query="q", run="r", batch=0, attempt="a", rows=rows, control=control, event_tops=tops or {})


KAFKA = {"kafka.bootstrap.servers": "h:1"}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "option path is missing"),
        ({"path": " "}, "option path is missing"),
        ({"path": "x", "snapshot": "bacth"}, "'bacth' is wrong; one of barrier, batch is wanted; did you mean batch?"),
        ({"controlrow": "drop"}, "option controlrow is unknown to the keyedwm sink: did you mean controlRows?"),
        ({"path": "x", "guarantee": "maybe"}, "'maybe' is wrong; one of exactly-once, at-least-once is wanted"),
        ({"path": "x", "Topic": "t"}, "options path and Topic name two targets, a Delta table and Kafka"),
        ({"topic": "t"}, "option kafka.bootstrap.servers is missing"),
        (
            {"kafka.bootstrap.servers": "h:1", "storage.a": "b"},
            "options storage.a and kafka.bootstrap.servers",
        ),
        ({**KAFKA, "topic": " "}, "option topic: ' ' is wrong; the name of a topic is wanted"),
        ({**KAFKA, "transactionTimeout": "soon"}, "option transactionTimeout: 'soon' is wrong; a duration such as"),
        ({**KAFKA, "transactionTimeout": "60 days"}, "more than 0 and at most 2147483647 ms is wanted"),
        ({**KAFKA, "ledger": "s3://b/l"}, "option ledger: 's3://b/l' is wrong; a directory is wanted that the driver"),
        ({**KAFKA, "ledger": "hdfs:/l"}, "option ledger: 'hdfs:/l' is wrong"),
        ({**KAFKA, "ledger": " "}, "option ledger: ' ' is wrong"),
        ({"path": "/a#b"}, "option path: '/a#b' is wrong; deltalake takes #, ? and %20 for parts of an address"),
        ({"path": "file:/a%20b"}, "option path: 'file:/a%20b' is wrong; deltalake takes #"),
        ({"path": f"{__file__}/t"}, f"{__file__} is a file, a directory is wanted"),
        ({"path": __file__}, f"{__file__} is a file, a directory is wanted"),
        ({"path": "dbfs:/t"}, "option path: 'dbfs:/t' is wrong; a directory of this machine is wanted, or an address"),
        (
            {**KAFKA, "guarantee": "at-least-once", "Ledger": "l"},
            "option ledger has no effect with guarantee=",
        ),
        ({**KAFKA, "kafka.acks": "1"}, "option kafka.acks: '1' is wrong; records are acknowledged by all in-sync"),
        ({**KAFKA, "kafka.enable.idempotence": "False"}, "must not be written twice: true"),
        ({**KAFKA, "kafka.enable.idempotence": "no"}, "option kafka.enable.idempotence: 'no' is wrong; true or false"),
        ({**KAFKA, "kafka.transactional.id": "a"}, "not for you to set: set transactionalIdPrefix instead"),
        ({**KAFKA, "kafka.value.serializer": "a"}, "cast it to string or binary"),
        ({**KAFKA, "kafka.partitioner.class": "a"}, "give the rows a partition column"),
    ],
)
def test_a_wrong_option_is_named_with_what_would_be_right(options, said):
    with pytest.raises(OptionError) as refused:
        SinkOptions.parse(options)
    assert said in refused.value.message


def test_option_names_are_case_insensitive_and_storage_settings_pass_through(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    chosen = SinkOptions.parse(
        {"PATH": "t", "SnapShot": "BATCH", "storage.aws_region": "eu", "checkpointlocation": "c"}
    )
    assert chosen.target.path == str(tmp_path / "t")
    assert chosen.snapshot is SnapshotMode.BATCH
    assert chosen.target.storage == {"aws_region": "eu"}


@pytest.mark.parametrize(
    ("given", "location"), [("file:/a/b", "/a/b"), ("file:///a/b", "/a/b"), ("s3://b/t", "s3://b/t"), ("/a", "/a")]
)
def test_an_address_stays_and_a_local_path_becomes_absolute(given, location):
    assert SinkOptions.parse({"path": given}).target.path == location


@pytest.mark.parametrize("checkpoint", ["s3://b/c", "hdfs:/c", "abfss://b@h/c"])
def test_a_checkpoint_elsewhere_is_no_place_for_a_ledger_and_hinders_nobody_who_keeps_none(checkpoint):
    given = {**KAFKA, "topic": "t", "checkpointLocation": checkpoint}
    assert SinkOptions.parse({**given, "guarantee": "at-least-once"}).target.ledger is None
    assert str(SinkOptions.parse({**given, "ledger": "file:/l"}).target.ledger) == "/l"
    with pytest.raises(OptionError, match=r"option ledger is missing: .* a local checkpointLocation"):
        stream_writer(given, StructType().add("value", StringType()), overwrite=False)


def test_barrier_snapshots_need_the_control_column(tmp_path):
    schema = StructType().add("n", LongType()).add("control", StringType())
    with pytest.raises(OptionError, match="snapshot: 'barrier' needs the source's control column"):
        stream_writer({"path": str(tmp_path), "snapshot": "barrier"}, schema, overwrite=False)
    with pytest.raises(OptionError, match="'barrier' is for streams"):
        batch_writer({"path": str(tmp_path), "snapshot": "barrier"}, schema, overwrite=False)
    with pytest.raises(InputError, match="several columns named n"):
        stream_writer(
            {"path": str(tmp_path)}, StructType().add("n", LongType()).add("N", StringType()), overwrite=False
        )
    with pytest.raises(InputError, match=r"column gap has type .*, which a Delta table cannot hold"):
        stream_writer({"path": str(tmp_path)}, StructType().add("gap", DayTimeIntervalType()), overwrite=False)


@pytest.mark.parametrize("make", [stream_writer, batch_writer])
def test_control_rows_can_be_kept_only_where_there_are_some(make, tmp_path):
    schema = StructType().add("n", LongType())
    with pytest.raises(OptionError, match="controlRows: 'inline' needs the source's control column"):
        make({"path": str(tmp_path / "t"), "controlRows": "inline"}, schema, overwrite=False)
    assert not (tmp_path / "t").exists()


def test_watermarks_rise_by_offset_in_whatever_order_the_rows_come():
    rows = [mark("t-0", 5, 50), mark("t-0", 7, 70), mark("t-1", 1, 10), mark("t-0", 7, 7, key=1)]
    for order in permutations(rows):
        assert rise({("t-0", 0): 40}, order, ONCE).reached == {("t-0", 0): 70, ("t-0", 1): 7, ("t-1", 0): 10}


@pytest.mark.parametrize("ms", [49, 50])
def test_an_equal_or_lower_watermark_is_a_regression_within_a_batch_and_across_batches(ms):
    for last, rows in (
        ({("t-0", 3): 50}, [mark("t-0", 1, ms, 3)]),
        ({}, [mark("t-0", 1, 50, 3), mark("t-0", 2, ms, 3)]),
    ):
        with pytest.raises(RegressionError) as refused:
            rise(last, rows, ONCE)
        assert "channel t-0, key 3 went from 50 ms (1970-01-01T00:00:00.050Z) to" in refused.value.message
        assert rise(last, rows, LEAST).swallowed == 1


def test_the_coalesced_watermark_is_recorded_and_is_no_channel():
    first = seal(None, brought(mark(None, None, 50), mark(None, None, 40)), SnapshotMode.BATCH, ONCE)
    second = seal(first, brought(mark(None, None, 45)), SnapshotMode.BATCH, ONCE)
    assert first.coalesced == second.coalesced == {0: 50}
    assert second.channels == {}


def test_times_beyond_the_calendar_are_shown_as_numbers():
    assert shown(2**62) == f"{2**62} ms"
    assert shown(-1) == "-1 ms (1969-12-31T23:59:59.999Z)"


def test_missing_barriers_are_counted():
    whole = seal(None, brought(barrier("t-0", 1, 4, 2), barrier("t-1", 1, 4, 2)), SnapshotMode.BARRIER, ONCE)
    with pytest.raises(InputError, match="0 of 2 barrier rows of snapshot 5 arrived"):
        seal(whole, brought(), SnapshotMode.BARRIER, ONCE)
    with pytest.raises(InputError, match=r"1 of 2 barrier rows of snapshot 5 arrived \(t-1\)"):
        seal(whole, brought(barrier("t-1", 1, 5, 2)), SnapshotMode.BARRIER, ONCE)
    with pytest.raises(InputError, match="snapshot 4 of channels t-0, t-1 follows snapshot 4"):
        seal(whole, brought(*(barrier(c, 1, 4, 2) for c in ("t-0", "t-1"))), SnapshotMode.BARRIER, ONCE)


def test_a_channel_may_leave_come_back_and_be_new():
    def step(last, snapshot, *channels):
        rows = [barrier(c, 1, snapshot, len(channels)) for c in channels]
        return seal(last, brought(*rows), SnapshotMode.BARRIER, ONCE)

    record = step(None, 3, "t-0", "t-1")
    record = step(record, 4, "t-0")
    record = step(record, 5, "t-0", "t-2")
    record = step(record, 6, "t-0", "t-1", "t-2")
    assert {name: channel.snapshot for name, channel in record.channels.items()} == {"t-0": 6, "t-1": 6, "t-2": 6}


def test_a_batch_without_any_row_needs_no_barrier():
    assert seal(None, brought(rows=0), SnapshotMode.BARRIER, ONCE).snapshot is None


def test_a_row_behind_its_barrier_breaks_exactly_once_only():
    rows = brought(barrier("t-0", 5, 0, 1), tops={"t-0": 5})
    with pytest.raises(
        InputError, match="channel t-0 has an event at offset 5, behind the barrier of snapshot 0 at offset 5"
    ):
        seal(None, rows, SnapshotMode.BARRIER, ONCE)
    assert seal(None, rows, SnapshotMode.BARRIER, LEAST).snapshot == 0
    assert seal(None, brought(barrier("t-0", 5, 0, 1), tops={"t-0": 4}), SnapshotMode.BARRIER, ONCE).snapshot == 0


def test_a_refused_batch_changes_nothing():
    record = seal(None, brought(mark("t-0", 1, 10), barrier("t-0", 1, 0, 1)), SnapshotMode.BARRIER, ONCE)
    text = record.to_json()
    with pytest.raises(KeyedwmError):
        seal(
            record, brought(mark("t-1", 1, 10), mark("t-0", 2, 10), barrier("t-0", 2, 1, 1)), SnapshotMode.BARRIER, ONCE
        )
    assert record.to_json() == text
