"""Options and the pure checks of the sink."""

from __future__ import annotations

from itertools import permutations

import pytest
from pyspark.sql.types import DayTimeIntervalType, LongType, StringType, StructType

from keyedwm.arrow.instants import instant_text
from keyedwm.core.control_row import ControlRow
from keyedwm.core.errors import InputError, KeyedwmError, OptionError, RegressionError
from keyedwm.core.rows import ControlKind
from keyedwm.core.watermark import Guarantee
from pyspark_wm_sink.batch.monotone import check_watermarks
from pyspark_wm_sink.batch.reports import BatchReport
from pyspark_wm_sink.batch.seal import seal
from pyspark_wm_sink.options.sink_options import SinkOptions, SnapshotMode
from pyspark_wm_sink.tables.library_errors import one_line
from pyspark_wm_sink.writer import batch_writer, stream_writer

ONCE, LEAST = Guarantee.EXACTLY_ONCE, Guarantee.AT_LEAST_ONCE


def mark(channel: str | None, offset: int | None, ms: int, key: int = 0) -> ControlRow:
    return ControlRow(kind=ControlKind.WATERMARK, channel=channel, offset=offset, watermark_ms=ms, key=key)


def barrier(channel: str, offset: int, snapshot: int, channels: int) -> ControlRow:
    return ControlRow(kind=ControlKind.BARRIER, channel=channel, offset=offset, snapshot=snapshot, channels=channels)


def report(*control: ControlRow, rows: int = 1, tops: dict | None = None) -> BatchReport:
    return BatchReport(query="q", run="r", batch=0, attempt="a", rows=rows, control=control, event_tops=tops or {})


KAFKA = {"kafka.bootstrap.servers": "h:1"}


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({}, "option path is missing"),
        ({"path": " "}, "option path is missing"),
        (
            {"path": "x", "snapshot": "bacth"},
            "'bacth' is wrong; one of barrier, batch is expected; did you mean batch?",
        ),
        ({"controlrow": "drop"}, "option controlrow is unknown to the keyedwm sink: did you mean controlRows?"),
        ({"path": "x", "guarantee": "maybe"}, "'maybe' is wrong; one of exactly-once, at-least-once is expected"),
        ({"path": "x", "Topic": "t"}, "options path and Topic name two targets, a Delta table and Kafka"),
        ({"topic": "t"}, "option kafka.bootstrap.servers is missing"),
        (
            {"kafka.bootstrap.servers": "h:1", "storage.a": "b"},
            "options storage.a and kafka.bootstrap.servers",
        ),
        ({**KAFKA, "topic": " "}, "option topic: ' ' is wrong; the name of a topic is expected"),
        ({**KAFKA, "transactionTimeout": "soon"}, "option transactionTimeout: 'soon' is wrong; a duration such as"),
        ({**KAFKA, "transactionTimeout": "60 days"}, "more than 0 and at most 2147483647 ms is expected"),
        (
            {**KAFKA, "ledger": "ftp://b/l"},
            "option ledger: 'ftp://b/l' is wrong; a directory is expected that the driver",
        ),
        ({**KAFKA, "ledger": "s3://AKIA:hunter2@b/l"}, "option ledger: the address holds a login"),
        ({**KAFKA, "checkpointLocation": "s3a://AKIA:hunter2/x@b/l"}, "option checkpointLocation: the address holds"),
        ({"path": "s3:/AKIA:hunter2@b/t"}, "option path: the address holds a login"),
        ({"path": "abfss//x@acct/table?sig=hunter2"}, "option path: the address holds a login"),
        ({"path": "x", "storage.allow_unsafe_rename": "hunter2"}, "the value given is wrong; true or false"),
        ({**KAFKA, "sasl.jaas.config": "hunter2"}, "did you mean kafka.sasl.jaas.config?"),
        ({**KAFKA, "ledger": "hdfs:/l"}, "option ledger: 'hdfs:/l' is wrong"),
        ({**KAFKA, "ledger": " "}, "option ledger: ' ' is wrong"),
        ({"path": "/a#b"}, "option path: '/a#b' is wrong; deltalake takes #, ? and %20 for parts of an address"),
        ({"path": "file:/a%20b"}, "option path: 'file:/a%20b' is wrong; deltalake takes #"),
        ({"path": f"{__file__}/t"}, f"{__file__} is a file, a directory is expected"),
        ({"path": __file__}, f"{__file__} is a file, a directory is expected"),
        (
            {"path": "dbfs:/t"},
            "option path: 'dbfs:/t' is wrong; a directory of this machine is expected, or an address",
        ),
        (
            {**KAFKA, "guarantee": "at-least-once", "Ledger": "l"},
            "option ledger has no effect with guarantee=",
        ),
        ({**KAFKA, "kafka.acks": "1"}, "option kafka.acks: '1' is wrong; set it to all: every in-sync"),
        (
            {**KAFKA, "kafka.enable.idempotence": "False"},
            "set it to true, or a batch that is sent again is written twice",
        ),
        ({**KAFKA, "kafka.enable.idempotence": "no"}, "option kafka.enable.idempotence: 'no' is wrong; true or false"),
        ({**KAFKA, "kafka.transactional.id": "a"}, "cannot be set: set transactionalIdPrefix instead"),
        ({**KAFKA, "kafka.value.serializer": "a"}, "cast it to string or binary"),
        ({**KAFKA, "kafka.partitioner.class": "a"}, "give the rows a partition column"),
    ],
)
def test_a_wrong_option_is_named_with_what_would_be_right(options, sentence):
    with pytest.raises(OptionError) as error:
        SinkOptions.parse(options)
    assert sentence in error.value.message


def test_option_names_are_case_insensitive_and_storage_settings_pass_through(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    sink_options = SinkOptions.parse(
        {"PATH": "t", "SnapShot": "BATCH", "storage.aws_region": "eu", "checkpointlocation": "c"}
    )
    assert sink_options.target.path == str(tmp_path / "t")
    assert sink_options.snapshot is SnapshotMode.BATCH
    assert sink_options.target.storage == {"aws_region": "eu"}


@pytest.mark.parametrize(
    ("address", "location"), [("file:/a/b", "/a/b"), ("file:///a/b", "/a/b"), ("s3://b/t", "s3://b/t"), ("/a", "/a")]
)
def test_an_address_stays_and_a_local_path_becomes_absolute(address, location):
    assert SinkOptions.parse({"path": address}).target.path == location


@pytest.mark.parametrize("checkpoint", ["wasb://b/c", "hdfs:/c", "dbfs:/c"])
def test_a_checkpoint_elsewhere_is_no_place_for_a_ledger_and_hinders_nobody_who_keeps_none(checkpoint):
    kafka_options = {**KAFKA, "topic": "t", "checkpointLocation": checkpoint}
    assert SinkOptions.parse({**kafka_options, "guarantee": "at-least-once"}).target.ledger is None
    assert str(SinkOptions.parse({**kafka_options, "ledger": "file:/l"}).target.ledger) == "/l"
    with pytest.raises(OptionError, match=r"option ledger is missing: .* or checkpointLocation"):
        stream_writer(kafka_options, StructType().add("value", StringType()), overwrite=False)


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
        assert check_watermarks({("t-0", 0): 40}, order, ONCE).highest_ms == {
            ("t-0", 0): 70,
            ("t-0", 1): 7,
            ("t-1", 0): 10,
        }


@pytest.mark.parametrize("ms", [49, 50])
def test_an_equal_or_lower_watermark_is_a_regression_within_a_batch_and_across_batches(ms):
    for last, rows in (
        ({("t-0", 3): 50}, [mark("t-0", 1, ms, 3)]),
        ({}, [mark("t-0", 1, 50, 3), mark("t-0", 2, ms, 3)]),
    ):
        with pytest.raises(RegressionError) as error:
            check_watermarks(last, rows, ONCE)
        assert "channel t-0, key 3 went from 50 ms (1970-01-01T00:00:00.050Z) to" in error.value.message
        assert check_watermarks(last, rows, LEAST).ignored == 1


def test_the_coalesced_watermark_is_recorded_and_is_no_channel():
    first = seal(None, report(mark(None, None, 50), mark(None, None, 40)), SnapshotMode.BATCH, ONCE)
    second = seal(first, report(mark(None, None, 45)), SnapshotMode.BATCH, ONCE)
    assert first.coalesced == second.coalesced == {0: 50}
    assert second.channels == {}


def test_times_beyond_the_calendar_are_shown_as_numbers():
    assert instant_text(2**62) == f"{2**62} ms"
    assert instant_text(-1) == "-1 ms (1969-12-31T23:59:59.999Z)"


def test_missing_barriers_are_counted():
    whole = seal(None, report(barrier("t-0", 1, 4, 2), barrier("t-1", 1, 4, 2)), SnapshotMode.BARRIER, ONCE)
    with pytest.raises(InputError, match="0 of 2 barrier rows of snapshot 5 arrived"):
        seal(whole, report(), SnapshotMode.BARRIER, ONCE)
    with pytest.raises(InputError, match=r"1 of 2 barrier rows of snapshot 5 arrived \(t-1; not of t-0\)"):
        seal(whole, report(barrier("t-1", 1, 5, 2)), SnapshotMode.BARRIER, ONCE)
    with pytest.raises(InputError, match="snapshot 4 of channels t-0, t-1 follows snapshot 4"):
        seal(whole, report(*(barrier(c, 1, 4, 2) for c in ("t-0", "t-1"))), SnapshotMode.BARRIER, ONCE)


def test_a_channel_may_leave_come_back_and_be_new():
    def step(last, snapshot, *channels):
        rows = [barrier(c, 1, snapshot, len(channels)) for c in channels]
        return seal(last, report(*rows), SnapshotMode.BARRIER, ONCE)

    record = step(None, 3, "t-0", "t-1")
    record = step(record, 4, "t-0")
    record = step(record, 5, "t-0", "t-2")
    record = step(record, 6, "t-0", "t-1", "t-2")
    assert {name: channel.snapshot for name, channel in record.channels.items()} == {"t-0": 6, "t-1": 6, "t-2": 6}


def test_a_batch_without_any_row_needs_no_barrier():
    assert seal(None, report(rows=0), SnapshotMode.BARRIER, ONCE).snapshot is None


def test_a_row_behind_its_barrier_breaks_exactly_once_only():
    rows = report(barrier("t-0", 5, 0, 1), tops={"t-0": 5})
    with pytest.raises(
        InputError, match="channel t-0 has an event at offset 5, behind the barrier of snapshot 0 at offset 5"
    ):
        seal(None, rows, SnapshotMode.BARRIER, ONCE)
    assert seal(None, rows, SnapshotMode.BARRIER, LEAST).snapshot == 0
    assert seal(None, report(barrier("t-0", 5, 0, 1), tops={"t-0": 4}), SnapshotMode.BARRIER, ONCE).snapshot == 0


def test_a_refused_batch_changes_nothing():
    record = seal(None, report(mark("t-0", 1, 10), barrier("t-0", 1, 0, 1)), SnapshotMode.BARRIER, ONCE)
    text = record.to_json()
    with pytest.raises(KeyedwmError):
        seal(
            record, report(mark("t-1", 1, 10), mark("t-0", 2, 10), barrier("t-0", 2, 1, 1)), SnapshotMode.BARRIER, ONCE
        )
    assert record.to_json() == text


def test_a_channel_whose_rows_came_without_its_barrier_is_refused_though_other_sources_are_whole():
    """Two united sources of one channel each: their barriers look like those of one source."""
    first = seal(None, report(barrier("t-0", 5, 0, 1), barrier("u-0", 5, 0, 1)), SnapshotMode.BARRIER, ONCE)
    for rows in (
        report(barrier("t-0", 9, 1, 1), tops={"t-0": 8, "u-0": 8}),
        report(barrier("t-0", 9, 1, 1), mark("u-0", 9, 50)),
    ):
        with pytest.raises(InputError, match="the barrier row of channels u-0, which have other rows in this batch"):
            seal(first, rows, SnapshotMode.BARRIER, ONCE)
    record_of_first = seal(first, report(barrier("t-0", 9, 1, 1), tops={"t-0": 8}), SnapshotMode.BARRIER, ONCE)
    assert (
        record_of_first.channels["u-0"].snapshot == 0
    )  # u had no batch: Spark runs a union though only one source has news
    both = report(barrier("t-0", 12, 2, 1), barrier("u-0", 9, 1, 1), tops={"u-0": 8})
    assert seal(record_of_first, both, SnapshotMode.BARRIER, ONCE).channels["u-0"].snapshot == 1


def test_united_sources_of_other_numbers_of_channels_and_other_ids_are_each_whole_or_refused():
    rows = (barrier("t-0", 5, 7, 2), barrier("t-1", 5, 7, 2), barrier("u-0", 5, 0, 1))
    first = seal(None, report(*rows), SnapshotMode.BARRIER, ONCE)
    with pytest.raises(InputError, match=r"1 of 2 barrier rows of snapshot 8 arrived \(t-0; not of t-1"):
        seal(first, report(barrier("t-0", 6, 8, 2), barrier("u-0", 6, 1, 1)), SnapshotMode.BARRIER, ONCE)
    with pytest.raises(InputError, match="snapshot 2 of channels u-0 follows snapshot 0"):
        seal(first, report(barrier("u-0", 6, 2, 1)), SnapshotMode.BARRIER, ONCE)


def told_by_operator(number: int, snapshot: int, channels: int) -> ControlRow:
    return ControlRow(
        kind=ControlKind.BARRIER, channel=f"so_far#{number}", snapshot=snapshot, channels=channels, source="so_far"
    )


def test_results_may_carry_the_offsets_of_their_input_whose_barriers_end_at_the_operator():
    rows = report(told_by_operator(0, 0, 2), told_by_operator(1, 0, 2), tops={"t-0": 8})
    record = seal(None, rows, SnapshotMode.BARRIER, ONCE)
    assert (set(record.channels), record.tops) == ({"so_far#0", "so_far#1"}, rows.tops_digest())
    union_report = report(
        barrier("t-0", 5, 1, 1), told_by_operator(0, 1, 2), told_by_operator(1, 1, 2), tops={"t-0": 8}
    )
    assert seal(record, union_report, SnapshotMode.BARRIER, ONCE).snapshot == 1


def test_results_without_their_control_rows_are_refused_though_their_columns_are_those_of_the_source():
    with pytest.raises(InputError, match="none of the barrier rows of the first snapshot arrived"):
        seal(None, report(tops={"t-0": 8}), SnapshotMode.BARRIER, ONCE)
    with pytest.raises(InputError, match=r"1 of 2 barrier rows of snapshot 0 arrived \(so_far#1\)"):
        seal(None, report(told_by_operator(1, 0, 2), tops={"t-0": 8}), SnapshotMode.BARRIER, ONCE)
    whole = report(told_by_operator(0, 0, 2), told_by_operator(1, 0, 2), tops={"t-0": 8})
    record = seal(None, whole, SnapshotMode.BARRIER, ONCE)
    with pytest.raises(InputError, match="0 of 2 barrier rows of snapshot 1 arrived"):
        seal(record, report(tops={"t-0": 9}), SnapshotMode.BARRIER, ONCE)


def test_a_watermark_that_falls_at_one_offset_is_a_regression():
    rows = [mark("t-0", 7, 70), mark("t-0", 7, 60)]
    with pytest.raises(RegressionError, match="channel t-0, key 0 went from 70 ms"):
        check_watermarks({}, rows, ONCE)
    assert check_watermarks({}, rows, LEAST).ignored == 1


def test_a_coalesced_watermark_of_one_source_that_falls_is_a_regression():
    def report_at(snapshot: int, ms: int) -> BatchReport:
        return report(barrier("t-0", snapshot, snapshot, 1), mark(None, None, ms))

    first = seal(None, report_at(0, 50), SnapshotMode.BARRIER, ONCE)
    assert seal(first, report_at(1, 50), SnapshotMode.BARRIER, ONCE).coalesced == {0: 50}
    with pytest.raises(RegressionError, match=r"the coalesced watermark of key 0 went from 50 ms .* to 40 ms"):
        seal(first, report_at(1, 40), SnapshotMode.BARRIER, ONCE)
    assert seal(first, report_at(1, 40), SnapshotMode.BARRIER, LEAST).ignored == 1


@pytest.mark.parametrize("name", ["aws_s3_allow_unsafe_rename", "AWS_S3_ALLOW_UNSAFE_RENAME", "allow_unsafe_rename"])
def test_a_store_without_atomic_commits_is_refused(name):
    with pytest.raises(OptionError, match="two writers could then commit the same version"):
        SinkOptions.parse({"path": "s3://b/t", f"storage.{name}": "true"})
    assert SinkOptions.parse({"path": "s3://b/t", f"storage.{name}": "false"})


def test_values_of_storage_options_never_appear_in_messages():
    error = OSError('error at http://me:s3cr3t@host:9/b: failed to parse "tok3n" as boolean; http://x:pw@other/')
    message = one_line(error)
    assert "s3cr3t" not in message
    assert "tok3n" not in message
    assert "pw" not in message
    assert "failed to parse" in message


@pytest.mark.parametrize("tops", [{"t-6": 3, "t-0": 1}, {"t-0": 18}], ids=["no such channel", "behind its barrier"])
def test_columns_of_ones_own_that_are_called_as_the_sources_are_named_as_a_cause(tops):
    rows = report(barrier("t-0", 2, 0, 1), tops=tops)
    with pytest.raises(InputError, match=r"if topic or partition are columns of your own, leave the column offset out"):
        seal(None, rows, SnapshotMode.BARRIER, ONCE)
