"""Control records that somebody else wrote: one clean sentence, or skipped and counted, never a wrong watermark."""

from __future__ import annotations

import json
import logging
import tracemalloc
from dataclasses import replace

import pytest

from keyedwm.core import inline
from keyedwm.core.axis import Counts
from keyedwm.core.errors import FormatError, InputError, OptionError
from keyedwm.core.inline import MOST_BYTES, VERSION, Upstream, UpstreamBarrier, decode_cut, encode_cut, query_of
from keyedwm.core.watermark import Guarantee
from keyedwm.kafka.client.values import TopicPartition
from keyedwm.kafka.records.read import ColumnSelection, ControlRecord, no_records
from keyedwm.kafka.requests.fetch import Fetched
from pyspark_wm_source.driver.alignment import Aligner, ChannelPosition
from pyspark_wm_source.options.source_options import SourceOptions
from pyspark_wm_source.task import fetching
from pyspark_wm_source.task.scan import policy_run
from pyspark_wm_source.values.control_authors import ControlAuthors
from pyspark_wm_source.values.ranges import ChannelRange

A = TopicPartition("t", 0)
OPTIONS = {"kafka.bootstrap.servers": "x:1", "subscribe": "t"}
ONE = {"idle": False, "offset": 1, "watermarks": {"0": 5}}
BARRIER = {"kind": "barrier", "query": "q", "snapshot": 3, "channels": {"a": ONE}}


def altered_barrier(**change: object) -> bytes:
    return json.dumps({**BARRIER, **change}).encode()


def channel(**change: object) -> bytes:
    return altered_barrier(channels={"a": {**ONE, **change}})


WRONG = {
    "nothing": b"",
    "null": b"null",
    "a list": b"[]",
    "no UTF-8": b"\xff\xfe",
    "deep": b'{"kind":' + b"[" * 100_000,
    "another kind": altered_barrier(kind="late"),
    "a kind that is no text": altered_barrier(kind=["barrier"]),
    "a query that is no text": altered_barrier(query=7),
    "a query that is half a character": altered_barrier(query="\ud800"),
    "a channel that is half a character": altered_barrier(channels={"\ud800": ONE}),
    "1e400 as the snapshot": b'{"kind":"barrier","query":"q","channels":{},"snapshot":1e400}',
    "a fraction as the snapshot": altered_barrier(snapshot=1.5),
    "true as the snapshot": altered_barrier(snapshot=True),
    "a snapshot below 0": altered_barrier(snapshot=-1),
    "a snapshot beyond 64 bits": altered_barrier(snapshot=2**63),
    "a long number": b'{"kind":"barrier","query":"q","channels":{},"snapshot":' + b"9" * 5_000 + b"}",
    "channels that are a list": altered_barrier(channels=[]),
    "a channel that is a number": altered_barrier(channels={"a": 5}),
    "an offset that is a text": channel(offset="1"),
    "idle as a number": channel(idle=1),
    "a watermark as a fraction": channel(watermarks={"0": 5.5}),
    "a watermark of 1e400": altered_barrier(
        channels={"a": {"idle": False, "offset": 1, "watermarks": {"0": float("inf")}}}
    ),
    "a watermark beyond every timestamp": channel(watermarks={"0": 2**62}),
    "a key that is no byte": channel(watermarks={"300": 5}),
    "a key that is no number": channel(watermarks={"\u0660": 5}),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_value_that_keyedwm_never_writes_is_one_clean_sentence(case):
    with pytest.raises(FormatError) as error:
        decode_cut(VERSION, WRONG[case], "t-0 at offset 7")
    message = error.value.message
    assert message.startswith("the control record at t-0 at offset 7 ")
    assert len(message) < 250
    assert message.isprintable()


@pytest.mark.parametrize("version", [None, b"", b"2", b"\x1b[31m\n", b"9" * 1_000_000])
def test_another_version_is_one_clean_sentence(version):
    with pytest.raises(FormatError, match=r"has format version .*, this keyedwm reads version 1") as error:
        decode_cut(version, altered_barrier(), "t-0 at offset 7")
    assert len(error.value.message) < 250
    assert error.value.message.isprintable()


def test_a_long_value_is_refused_before_it_is_parsed(monkeypatch):
    def parsed(_value):
        raise AssertionError

    long = altered_barrier()[:-1] + b" " * MOST_BYTES + b"}"
    monkeypatch.setattr(inline.json, "loads", parsed)
    with pytest.raises(FormatError, match=f"{len(long)} bytes are above {MOST_BYTES}"):
        decode_cut(VERSION, long, "t-0 at offset 7")
    assert query_of(long) is None


def filled(unit: bytes, between: bytes = b",") -> bytes:
    head = b'{"kind":"barrier","query":"q","snapshot":3,"channels":['
    return head + between.join([unit] * ((MOST_BYTES // 4 - len(head) - 2) // len(unit + between))) + b"]}"


COSTLY = {
    "lists in lists": filled(b"[" * 400 + b"]" * 400),
    "objects in objects": filled(b'{"":' * 400 + b"1" + b"}" * 400),
    "empty objects": filled(b"{}"),
    "objects as many as there may be": filled(b'{"":"' + b"a" * 9 + b'"}'),
    "objects and short texts": filled('{"":1},"\u0100","\u0100"'.encode()),
    "lists and short texts": filled('[[1],"\u0100","\u0100","\u0100","\u0100","\u0100"]'.encode()),
    "numbers": filled(b"257"),
    "short texts": filled('"\u0100"'.encode()),
    "texts of four bytes a character": filled('"ab\U00010000"'.encode()),
    "names": b'{"kind":"barrier","channels":{' + b",".join(b'"%x":""' % n for n in range(80_000)) + b"}}",
}


@pytest.mark.parametrize("case", COSTLY)
def test_the_most_costly_values_take_as_many_bytes_of_memory_as_the_page_of_security_says(case):
    value = COSTLY[case]
    assert len(value) <= MOST_BYTES
    tracemalloc.start()
    try:
        with pytest.raises(FormatError):
            decode_cut(VERSION, value, "t-0 at offset 7")
        taken_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert taken_bytes <= 30 * len(value)


def test_a_barrier_of_short_names_has_no_more_objects_than_a_reader_takes():
    for names in ((), ("",), range(900)):
        channels = {str(name): Upstream(offset=1, idle=True) for name in names}
        upstream_barrier = UpstreamBarrier(query="", snapshot=0, channels=channels)
        assert decode_cut(VERSION, encode_cut(upstream_barrier), "here") == upstream_barrier


def test_a_barrier_that_no_reader_takes_is_not_written():
    channels = {f"a-topic-with-a-name-{n}": Upstream(offset=2**62, watermarks={0: 2**50}) for n in range(50_000)}
    with pytest.raises(InputError, match="the barrier of snapshot 3 lists 50000 channels in "):
        encode_cut(UpstreamBarrier(query="q", snapshot=3, channels=channels))


def test_what_is_written_is_read():
    upstream_barrier = UpstreamBarrier(
        query="q", snapshot=3, channels={"a": Upstream(offset=None, idle=True, watermarks={-7: -5, 0: 5})}
    )
    assert decode_cut(VERSION, encode_cut(upstream_barrier), "here") == upstream_barrier
    assert (
        decode_cut(VERSION, json.dumps({"kind": "idle", "query": "q", "snapshot": 1, "channel": "a"}).encode(), "h")
        is None
    )
    assert query_of(encode_cut(upstream_barrier)) == "q"
    assert query_of(b"\xff") is None


def barrier(offset: int, query: str, snapshot: int, ms: int) -> ControlRecord:
    upstream_barrier = UpstreamBarrier(
        query=query, snapshot=snapshot, channels={"a": Upstream(offset=1, watermarks={0: ms})}
    )
    return ControlRecord(offset, VERSION, encode_cut(upstream_barrier))


def observed(records: list[ControlRecord], **settings: str):
    options = SourceOptions.parse(OPTIONS | settings)
    task = ChannelRange(channel=A, start=0, end=99, counts=Counts(), axes={})
    run = policy_run(task, options, dict.fromkeys(options.axes), 0, {})
    empty = no_records(ColumnSelection(headers=True), 99)
    run.observe(replace(empty, control_records=tuple(records)))
    return run.result()


FORGED = barrier(5, "forger", 2**40, 253_402_300_799_000)


def test_with_propagate_from_only_the_named_query_is_followed(caplog):
    records = [FORGED, barrier(6, "q", 0, 70), ControlRecord(7, b"9" * 99, b"\x00"), barrier(8, "q", 1, 80), FORGED]
    with caplog.at_level(logging.WARNING, "keyedwm.source"):
        state = observed(records, propagate="true", propagateFrom="q")
    assert state.axes[0].emitted_ms == 80
    assert state.axes[0].policy.snapshot == 1
    assert state.counts.control == 3
    assert caplog.text.count("propagateFrom") == 1
    assert "t-0 at offset 5" in caplog.text


def test_without_propagate_from_another_querys_barrier_is_refused():
    with pytest.raises(InputError, match="t-0 at offset 5: the barrier of snapshot 1099511627776 is of query 'forger'"):
        observed([barrier(4, "q", 0, 70), FORGED], propagate="true")


def test_control_records_that_are_not_read_are_counted():
    assert observed([FORGED, barrier(6, "q", 0, 70)]).counts == Counts(control=2)


def test_propagate_from_needs_propagate():
    with pytest.raises(OptionError, match="option propagateFrom has no effect without propagate=true"):
        SourceOptions.parse(OPTIONS | {"propagateFrom": "q"})


@pytest.fixture
def log(monkeypatch):
    """A partition whose records are barriers or rows; what was read of it is noted."""
    barriers: dict[int, UpstreamBarrier] = {}
    read: list[tuple[int, int]] = []

    def read_ranges(_cluster, ranges, columns, _isolation):
        for index, part in enumerate(ranges):
            read.append((part.start, part.end))
            own = [
                ControlRecord(at, VERSION, encode_cut(upstream_barrier))
                for at, upstream_barrier in sorted(barriers.items())
            ]
            within = tuple(one for one in own if part.start <= one.offset < part.end)
            records = replace(no_records(columns, part.end), control_records=within)
            yield Fetched(index, TopicPartition(part.topic, part.partition), records, part.end, done=True)

    monkeypatch.setattr(fetching, "read_ranges", read_ranges)
    return barriers, read


def position(end: int) -> dict[TopicPartition, ChannelPosition]:
    return {A: ChannelPosition(position=0, end=end, barrier=None)}


def test_records_without_a_barrier_are_looked_through_once(log):
    barriers, read = log
    aligner = Aligner(None, ControlAuthors(), pytest.fail)
    for end in range(1_000_000, 1_000_050):
        assert aligner.ends(position(end), None) == {A: 0}
    assert sum(last - first for first, last in read) <= 1_000_100
    barriers[1_000_049] = UpstreamBarrier(query="q", snapshot=0, channels={})
    read.clear()
    assert aligner.ends(position(1_000_050), None) == {A: 1_000_050}
    assert sum(last - first for first, last in read) <= 1


def test_a_log_that_was_shortened_is_looked_through_again(log):
    barriers, _ = log
    aligner = Aligner(None, ControlAuthors(), pytest.fail)
    assert aligner.ends(position(1_000), None) == {A: 0}
    barriers[10] = UpstreamBarrier(query="q", snapshot=0, channels={})
    assert aligner.ends(position(500), None) == {A: 11}


def test_the_aligner_passes_over_barriers_of_others(log):
    barriers, _ = log
    barriers[3] = UpstreamBarrier(query="q", snapshot=0, channels={})
    barriers[9] = UpstreamBarrier(query="forger", snapshot=7, channels={})
    assert Aligner(None, ControlAuthors(query="q"), pytest.fail).ends(position(20), None) == {A: 4}


def test_at_least_once_counts_what_comes_again_apart_from_what_others_wrote():
    state = observed(
        [barrier(1, "q", 0, 70), barrier(2, "q", 0, 70), FORGED],
        propagate="true", propagateFrom="q", guarantee=Guarantee.AT_LEAST_ONCE.value,
    )  # fmt: skip
    assert (state.axes[0].policy.repeated, state.counts.control) == (1, 1)
