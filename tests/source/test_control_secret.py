"""Control records with a code: only who has the secret is followed, and a copy of a genuine record moves nothing."""

from __future__ import annotations

import json
import logging
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keyedwm.config.secrets import secret_of
from keyedwm.core.axis import Counts
from keyedwm.core.errors import OptionError, RegressionError
from keyedwm.core.inline import (
    VERSION,
    Upstream,
    UpstreamBarrier,
    decode_cut,
    encode_change,
    encode_cut,
    is_genuine,
    sign,
)
from keyedwm.core.rows import ControlKind
from keyedwm.kafka.client.values import TopicPartition
from keyedwm.kafka.records.read import ColumnSelection, ControlRecord, no_records
from keyedwm.kafka.requests.fetch import Fetched
from pyspark_wm_sink.options.kafka_target import KafkaTarget
from pyspark_wm_source.driver.alignment import Aligner, ChannelPosition
from pyspark_wm_source.options.source_options import SourceOptions
from pyspark_wm_source.task import fetching, propagated
from pyspark_wm_source.task.propagated import query_number
from pyspark_wm_source.task.scan import policy_run
from pyspark_wm_source.values.control_authors import ControlAuthors
from pyspark_wm_source.values.ranges import ChannelRange
from tests.source.test_control_records import OPTIONS, A

SECRET = b"a secret of thirty-two bytes, ..."
BARRIER = UpstreamBarrier(query="q", snapshot=3, channels={"a": Upstream(offset=1, watermarks={0: 5})})
CHANGE = encode_change(ControlKind.WATERMARK, "q", 3, "a", key=0, watermark_ms=5)


def value_of(snapshot: int, ms: int) -> bytes:
    return encode_cut(
        UpstreamBarrier(query="q", snapshot=snapshot, channels={"a": Upstream(offset=1, watermarks={0: ms})})
    )


def genuine(offset: int, snapshot: int, ms: int, channel: TopicPartition = A) -> ControlRecord:
    return ControlRecord(offset, VERSION, sign(value_of(snapshot, ms), SECRET, VERSION, *channel))


def observed(records: list[ControlRecord], **settings: str):
    options = SourceOptions.parse(OPTIONS | {"propagate": "true"} | settings)
    task = ChannelRange(channel=A, start=0, end=99, counts=Counts(), axes={})
    run = policy_run(task, options, dict.fromkeys(options.axes), 0, {})
    run.observe(replace(no_records(ColumnSelection(headers=True), 99), control_records=tuple(records)))
    return run.result()


def proven(records: list[ControlRecord], **settings: str):
    return observed(records, controlSecret=SECRET.decode(), **settings)


@pytest.mark.parametrize("value", [encode_cut(BARRIER), CHANGE])
def test_a_record_with_its_code_is_genuine_and_read_as_before_by_who_has_no_secret(value):
    signed = sign(value, SECRET, VERSION, "t", 0)
    assert is_genuine(signed, SECRET, VERSION, "t", 0)
    assert json.loads(signed) == {**json.loads(value), "mac": json.loads(signed)["mac"]}
    assert decode_cut(VERSION, signed, "here") == decode_cut(VERSION, value, "here")


@pytest.mark.parametrize("value", [encode_cut(BARRIER), CHANGE])
@given(change=st.tuples(st.integers(0, 10_000), st.integers(1, 255)), cut_at=st.integers(0, 10_000))
def test_every_byte_of_a_record_is_covered(value, change, cut_at):
    signed = sign(value, SECRET, VERSION, "t", 0)
    at, by = change[0] % len(signed), change[1]
    assert not is_genuine(signed[:at] + bytes([signed[at] ^ by]) + signed[at + 1 :], SECRET, VERSION, "t", 0)
    assert not is_genuine(signed[: cut_at % len(signed)], SECRET, VERSION, "t", 0)
    assert not is_genuine(signed + b" ", SECRET, VERSION, "t", 0)


@pytest.mark.parametrize(
    ("topic", "partition", "version", "secret"),
    [("t", 1, VERSION, SECRET), ("u", 0, VERSION, SECRET), ("t", 0, b"2", SECRET), ("t", 0, VERSION, SECRET + b"."),
     ("t", 0, None, SECRET)],
)  # fmt: skip
def test_a_record_counts_at_its_own_place_only(topic, partition, version, secret):
    assert not is_genuine(sign(encode_cut(BARRIER), SECRET, VERSION, "t", 0), secret, version, topic, partition)


def test_places_that_would_be_one_text_together_are_kept_apart():
    value = b'{"a":1}'
    assert sign(value, SECRET, VERSION, "t 1", 2) != sign(value, SECRET, VERSION, "t", 1)
    assert sign(value, SECRET, b"1", "t", 0) != sign(value, SECRET, b"1 1:t", "", 0)


def forgeries() -> dict[str, ControlRecord]:
    plain = value_of(9, 99)
    forged = sign(plain, b"the secret of somebody else", VERSION, *A)
    return {
        "no code": ControlRecord(5, VERSION, plain),
        "the code of another secret": ControlRecord(5, VERSION, forged),
        "the code of another record": ControlRecord(
            5, VERSION, sign(value_of(3, 5), SECRET, VERSION, *A)[:74] + plain[1:]
        ),
        "a genuine record of another partition": genuine(5, 9, 99, TopicPartition("t", 1)),
        "a genuine record of another topic": genuine(5, 9, 99, TopicPartition("u", 0)),
        "no version": ControlRecord(5, None, sign(plain, SECRET, VERSION, *A)),
        "another version": ControlRecord(5, b"2", sign(plain, SECRET, VERSION, *A)),
        "no value": ControlRecord(5, VERSION, None),
        "deep JSON": ControlRecord(5, VERSION, b'{"mac":"' + b"0" * 64 + b'",' + b"[" * 100_000),
        "a code of other letters": ControlRecord(5, VERSION, b'{"mac":"' + b"\xff" * 64 + b'",' + plain[1:]),
    }


@pytest.mark.parametrize("guarantee", ["exactly-once", "at-least-once"])
@pytest.mark.parametrize("case", forgeries())
def test_what_others_wrote_is_passed_over_counted_and_named_once(case, guarantee, caplog):
    forged = forgeries()[case]
    with caplog.at_level(logging.WARNING, "keyedwm.source"):
        state = proven([genuine(1, 3, 70), forged, forged, genuine(8, 4, 80)], guarantee=guarantee)
    assert state.axes[0].emitted_ms == 80
    assert state.axes[0].policy.snapshot == 4
    assert state.counts.control == 2
    (message,) = [record.getMessage() for record in caplog.records]
    assert message.startswith("t-0 at offset 5: a control record is passed over: it has no code, or one that option ")
    assert message.isprintable()


def test_the_named_query_is_asked_for_beside_the_code():
    other = UpstreamBarrier(query="other", snapshot=9, channels={})
    record = ControlRecord(5, VERSION, sign(encode_cut(other), SECRET, VERSION, *A))
    assert proven([genuine(1, 3, 70), record], propagateFrom="q").counts.control == 1


@pytest.mark.parametrize("guarantee", ["exactly-once", "at-least-once"])
def test_a_copy_of_an_old_genuine_record_moves_nothing_and_stops_nothing(guarantee):
    state = proven([genuine(1, 3, 70), genuine(2, 4, 80), genuine(3, 3, 70), genuine(4, 4, 80)], guarantee=guarantee)
    assert state.axes[0].emitted_ms == 80
    assert (state.axes[0].policy.snapshot, state.axes[0].policy.repeated) == (4, 2)


def test_copies_of_a_record_that_was_read_are_not_parsed_again(monkeypatch):
    parsed = []

    def decode_counted(version, value, where):
        parsed.append(where)
        return decode_cut(version, value, where)

    monkeypatch.setattr(propagated, "decode_cut", decode_counted)
    copies = [genuine(at, 3 + at % 2, 70) for at in range(1, 99)]
    state = proven(copies)
    assert len(parsed) == 2
    assert (state.axes[0].policy.snapshot, state.axes[0].policy.repeated) == (4, 97)


def of_earlier_query(offset: int) -> ControlRecord:
    earlier = UpstreamBarrier(query="earlier", snapshot=9, channels={"a": Upstream(offset=1, watermarks={0: 99})})
    return ControlRecord(offset, VERSION, sign(encode_cut(earlier), SECRET, VERSION, *A))


@pytest.mark.parametrize("guarantee", ["exactly-once", "at-least-once"])
def test_a_genuine_record_of_an_earlier_query_stops_nobody_and_is_counted(guarantee, caplog):
    state = proven([genuine(1, 3, 70), of_earlier_query(2), genuine(3, 4, 80)], guarantee=guarantee)
    assert (state.axes[0].emitted_ms, state.axes[0].policy.snapshot, state.counts.control) == (80, 4, 1)
    assert "it is of query 'earlier', earlier barriers are of another" in caplog.text


def test_without_a_secret_such_a_copy_is_refused():
    with pytest.raises(RegressionError, match="the barrier of snapshot 3 came after that of snapshot 4"):
        observed([genuine(2, 4, 80), genuine(3, 3, 70)])


def signed_cut(monkeypatch, places: dict[int, int]) -> None:
    """A log with genuine barriers: offset → snapshot."""
    log_of(monkeypatch, {A: [genuine(at, snapshot, snapshot) for at, snapshot in sorted(places.items())]})


def log_of(monkeypatch, logs: dict[TopicPartition, list[ControlRecord]]) -> None:
    def read_ranges(_cluster, ranges, columns, _isolation):
        for index, part in enumerate(ranges):
            own = logs[TopicPartition(part.topic, part.partition)]
            within = tuple(one for one in own if part.start <= one.offset < part.end)
            records = replace(no_records(columns, part.end), control_records=within)
            yield Fetched(index, TopicPartition(part.topic, part.partition), records, part.end, done=True)

    monkeypatch.setattr(fetching, "read_ranges", read_ranges)


def test_a_batch_ends_at_the_newest_genuine_barrier_not_at_a_copy_of_an_older_one(monkeypatch):
    signed_cut(monkeypatch, {4: 4, 10: 5, 12: 4, 14: 5})
    aligner = Aligner(None, ControlAuthors(secret=SECRET), pytest.fail)
    assert aligner.ends({A: ChannelPosition(position=0, end=20, barrier=None)}, None) == {A: 11}


@pytest.mark.parametrize("copies", [(12, 14), (73,), (74,), (74, 600)])  # one look is 64 offsets
@pytest.mark.parametrize("limit", [None, 10_000])
def test_a_copy_of_an_unread_older_barrier_cuts_no_snapshot_in_two(monkeypatch, copies, limit):
    own = {at: genuine(at, snapshot, snapshot) for at, snapshot in {4: 4, 10: 5}.items()}
    other = TopicPartition("t", 1)
    logs = {
        A: list((own | {at: genuine(at, 4, 4) for at in copies}).values()),
        other: [genuine(at, snapshot, snapshot, other) for at, snapshot in {4: 4, 10: 5}.items()],
    }
    log_of(monkeypatch, logs)
    aligner = Aligner(None, ControlAuthors(secret=SECRET), pytest.fail)
    ends = {A: max(copies) + 1, other: 11}
    channels = {tp: ChannelPosition(position=0, end=end, barrier=None) for tp, end in ends.items()}
    assert aligner.ends(channels, limit) == {A: 11, other: 11}


def test_a_partition_ahead_is_cut_before_the_copies_of_the_snapshot_that_all_show(monkeypatch):
    other = TopicPartition("t", 1)
    log_of(
        monkeypatch, {A: [genuine(4, 4, 4), genuine(10, 5, 5), genuine(100, 4, 4)], other: [genuine(4, 4, 4, other)]}
    )
    aligner = Aligner(None, ControlAuthors(secret=SECRET), pytest.fail)
    channels = {tp: ChannelPosition(position=0, end=end, barrier=None) for tp, end in {A: 101, other: 5}.items()}
    assert aligner.ends(channels, None) == {A: 5, other: 5}


def test_a_copy_of_an_earlier_querys_barrier_ends_no_batch(monkeypatch):
    log_of(monkeypatch, {A: [genuine(12, 6, 90), of_earlier_query(14)]})
    last = proven([genuine(1, 5, 80)]).axes[0].policy
    aligner = Aligner(None, ControlAuthors(secret=SECRET), pytest.fail)
    assert aligner.ends({A: ChannelPosition(position=11, end=20, barrier=last)}, None) == {A: 13}


@pytest.mark.parametrize(
    ("control_authors", "why"),
    [
        (
            ControlAuthors(secret=b"another secret of thirty-two ...."),
            "it has no code, or one that option",
        ),
        (ControlAuthors(query="mine"), "it is of query 'q', option propagateFrom names 'mine'"),
    ],
)
def test_who_waits_for_a_barrier_is_told_which_record_does_not_count_and_why(control_authors, why, monkeypatch, caplog):
    signed_cut(monkeypatch, {4: 4, 10: 5})
    aligner = Aligner(None, control_authors, pytest.fail)
    for end in (20, 21):  # what was looked through is not read again
        assert aligner.ends({A: ChannelPosition(position=0, end=end, barrier=None)}, None) == {A: 0}
        assert f"wait for a barrier: the control record at offset 10 does not count, {why}" in caplog.text
        caplog.clear()


def test_copies_of_what_was_read_end_no_batch(monkeypatch):
    signed_cut(monkeypatch, {12: 4, 14: 5})
    aligner = Aligner(None, ControlAuthors(secret=SECRET), pytest.fail)
    last = proven([genuine(1, 5, 80)]).axes[0].policy
    assert last.query == query_number("q")
    assert aligner.ends({A: ChannelPosition(position=11, end=20, barrier=last)}, None) == {A: 11}


@pytest.mark.parametrize("side", ["source", "sink"])
def test_the_secret_is_given_in_place_by_a_variable_or_by_a_file(side, monkeypatch, tmp_path):
    (tmp_path / "secret").write_bytes(SECRET + b"\n")
    monkeypatch.setenv("THE_SECRET", SECRET.decode())
    for given_as in (SECRET.decode(), "env:THE_SECRET", f"file:{tmp_path / 'secret'}"):
        if side == "source":
            options = SourceOptions.parse(OPTIONS | {"propagate": "true", "controlSecret": given_as})
            secret_read = options.control_authors.secret
        else:
            options = KafkaTarget.parse({"kafka.bootstrap.servers": "x:1", "topic": "t", "controlSecret": given_as})
            secret_read = options.secret
        assert secret_read == SECRET
        assert SECRET.decode() not in repr(options)


@pytest.mark.parametrize(
    ("value", "sentence"),
    [("planted", "the secret has 7 bytes, 16 to 4096 are expected"), ("", "the secret has 0 bytes"),
     ("env:NO_SUCH_VARIABLE", "no environment variable 'NO_SUCH_VARIABLE' here"),
     ("file:/no/such", "/no/such cannot be read"), ("file:/", "cannot be read"),
     ("file:/dev/zero", "/dev/zero has more than 65536 bytes")],
)  # fmt: skip
def test_a_secret_that_is_none_is_refused_in_one_sentence_without_it(value, sentence):
    with pytest.raises(OptionError, match=sentence) as error:
        secret_of("controlSecret", value)
    assert error.value.message.startswith("option controlSecret: ")
    assert "planted" not in str(error.value)


def test_a_secret_without_what_it_guards_is_refused():
    with pytest.raises(OptionError, match="option controlSecret has no effect without propagate=true"):
        SourceOptions.parse(OPTIONS | {"controlSecret": SECRET.decode()})
