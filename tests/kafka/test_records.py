from __future__ import annotations

import struct

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keyedwm.arrow.schema import HEADERS_TYPE
from keyedwm.core.errors import InputError
from keyedwm.kafka.client.errors import CorruptRecordError, RecordTooLargeError
from keyedwm.kafka.client.values import Codec
from keyedwm.kafka.records.batches import CONTROL, LOG_APPEND_TIME, find_batches
from keyedwm.kafka.records.encode import Producer, encode
from keyedwm.kafka.records.read import ColumnSelection, read_records
from keyedwm.kafka.records.record_columns import Layout, RecordColumns, lay_out
from tests.kafka.reference import (
    EVERYTHING,
    WHERE,
    Record,
    read_by_reference,
    read_by_us,
    read_plainly,
    signed,
    with_attributes,
    write,
)
from tests.seeds import times

maybe_bytes = st.none() | st.binary(max_size=300)
some_headers = st.lists(st.tuples(st.text(max_size=20), maybe_bytes), max_size=4).map(tuple)
some_times = st.integers(0, 2**45)


@st.composite
def some_records(draw: st.DrawFn) -> list[Record]:
    """Records with rising offsets, holes among them."""
    steps = draw(st.lists(st.integers(1, 300), min_size=1, max_size=30))
    offsets = np.cumsum(steps).tolist()
    rows = [draw(st.tuples(some_times, maybe_bytes, maybe_bytes, some_headers)) for _ in offsets]
    return [Record(offset, *row) for offset, row in zip(offsets, rows, strict=True)]


def encoded(records: list[Record], **how: object) -> list[bytes]:
    """The batches of our encoder."""
    headers = [[{"key": k, "value": v} for k, v in r.headers] or None for r in records]
    rows = RecordColumns(
        np.array([r.timestamp_ms for r in records], np.int64),
        value=pa.array([r.value for r in records], pa.binary()),
        key=pa.array([r.key for r in records], pa.binary()),
        headers=pa.array(headers, HEADERS_TYPE),
    )
    return [batch.data for batch in encode(rows, **how)]  # type: ignore[arg-type]


@pytest.mark.parametrize("codec", list(Codec))
@settings(deadline=None, max_examples=times(20))
@given(records=some_records())
def test_what_kafka_python_writes_we_read(codec: Codec, records: list[Record]) -> None:
    assert read_by_us(write(records, codec)) == records


@pytest.mark.parametrize("codec", list(Codec))
@settings(deadline=None, max_examples=times(20))
@given(records=some_records())
def test_what_we_write_kafka_python_reads(codec: Codec, records: list[Record]) -> None:
    records = [record._replace(offset=i) for i, record in enumerate(records)]
    (batch,) = encoded(records, codec=codec)
    assert read_by_reference(batch) == read_plainly(batch) == read_by_us(batch) == records


@settings(deadline=None, max_examples=times(20))
@given(records=some_records(), start=st.integers(0, 4000), length=st.integers(0, 4000))
def test_only_offsets_inside_the_span_come(records: list[Record], start: int, length: int) -> None:
    inside = [record for record in records if start <= record.offset < start + length]
    assert read_by_us(write(records), (start, start + length)) == inside


@settings(deadline=None, max_examples=times(20))
@given(records=some_records(), share=st.floats(0, 1))
def test_a_batch_cut_off_at_any_byte_waits_for_the_next_fetch(records: list[Record], share: float) -> None:
    first, second = write(records), write([r._replace(offset=r.offset + 10_000) for r in records], Codec.LZ4)
    raw = first + second[: int(share * (len(second) - 1))]
    batches = find_batches(WHERE, raw, 0)
    assert len(batches) == 1
    assert batches.next_offset == records[-1].offset + 1
    assert read_by_us(raw) == records


def test_only_wanted_columns_are_built() -> None:
    batches = find_batches(WHERE, write([Record(4, 9, b"k", b"v", (("h", b"1"),))]), 0)
    (records,) = read_records(batches, EVERYTHING, ColumnSelection(key=False, value=False, headers=False))
    assert (records.key, records.value, records.headers) == (None, None, None)
    assert (records.count, records.offset.tolist(), records.timestamp_ms.tolist()) == (1, [4], [9])
    assert records.next_offset == 5


def test_a_slice_of_a_column_is_written_as_what_it_shows() -> None:
    values = pa.array([b"no", None, b"yes", b""]).slice(1)
    headers = pa.array([[("x", b"1")], None, [("y", b"2"), ("y", None)], []], HEADERS_TYPE).slice(1)
    (batch,) = encode(RecordColumns(np.arange(3), value=values, headers=headers))
    read = [(r.value, r.headers) for r in read_by_us(batch.data)]
    assert read == [(None, ()), (b"yes", (("y", b"2"), ("y", None))), (b"", ())]


def test_rows_are_cut_into_batches_below_the_limit_and_sequences_follow() -> None:
    records = [Record(i, i, b"k", b"v" * 100) for i in range(1000)]
    batches = encoded(records, batch_bytes=5_000, producer=Producer(9, 2, transactional=True), base_sequence=2**31 - 50)
    assert len(batches) > 20
    assert max(map(len, batches)) <= 5_000 + 61
    sequence, row_count = 2**31 - 50, 0
    for batch in batches:
        assert struct.unpack_from(">qhi", batch, 43) == (9, 2, sequence)
        assert struct.unpack_from(">h", batch, 21) == (0x10,)
        count = len(read_by_us(batch))
        sequence, row_count = (sequence + count) % 2**31, row_count + count
    assert row_count == 1000


def test_a_header_without_a_name_is_refused() -> None:
    with pytest.raises(InputError, match="without a name"):
        list(encode(RecordColumns(np.arange(1), headers=pa.array([[(None, b"1")]], HEADERS_TYPE))))


def test_log_append_time_gives_every_record_the_batchs_time() -> None:
    batch = with_attributes(write([Record(0, 100, None, b"a"), Record(1, 70, None, b"b")]), LOG_APPEND_TIME)
    assert [(r.timestamp_ms, r.timestamp_type) for r in read_by_us(batch)] == [(100, 1), (100, 1)]


def test_markers_are_no_records() -> None:
    marker = with_attributes(write([Record(1, 0, b"\0\0\0\1", b"")]), CONTROL)
    raw = write([Record(0, 0, None, b"a")]) + marker
    assert [r.value for r in read_by_us(raw)] == [b"a"]
    assert find_batches(WHERE, raw, 0).next_offset == 2


def test_only_the_aborted_transaction_of_a_producer_is_left_out() -> None:
    def batch_of(offset: int, producer: int) -> bytes:
        who = {"is_transactional": True, "producer_id": producer, "producer_epoch": 0, "base_sequence": 0}
        return write([Record(offset, 0, None, b"%d by %d" % (offset, producer))], **who)

    def marker(offset: int, producer: int, *, commit: bool) -> bytes:
        key = struct.pack(">hh", 0, int(commit))
        who = {"is_transactional": True, "producer_id": producer, "producer_epoch": 0, "base_sequence": -1}
        return with_attributes(write([Record(offset, 0, key, b"")], **who), CONTROL)

    raw = batch_of(0, 7) + batch_of(1, 8) + marker(2, 7, commit=False) + batch_of(3, 7) + marker(4, 8, commit=True)
    raw += marker(5, 7, commit=True) + write([Record(6, 0, None, b"plain")])
    assert [r.value for r in read_by_us(raw, aborted=[(7, 0)])] == [b"1 by 8", b"3 by 7", b"plain"]
    assert [r.offset for r in read_by_us(raw)] == [0, 1, 3, 6]


def test_a_damaged_batch_behind_sound_ones_is_reached_with_its_offset() -> None:
    sound, broken = write([Record(0, 0, None, b"a")]), bytearray(write([Record(1, 0, None, b"b")]))
    broken[16] = 9
    batches = find_batches(WHERE, sound + bytes(broken), 0)
    assert (len(batches), batches.next_offset) == (1, 1)
    with pytest.raises(CorruptRecordError, match="offset 1 of t-3 is of an unknown message format"):
        find_batches(WHERE, bytes(broken), 1)


def test_a_wrong_checksum_names_the_batch_and_the_offset_after_it() -> None:
    broken = bytearray(write([Record(3, 0, None, b"a"), Record(9, 0, None, b"b")]))
    broken[-1] ^= 1
    with pytest.raises(CorruptRecordError, match="offset 3 of t-3 has a wrong checksum") as caught:
        read_by_us(write([Record(0, 0, None, b"a")]) + bytes(broken))
    assert (caught.value.topic, caught.value.partition) == ("t", 3)
    assert (caught.value.offset, caught.value.next_offset) == (3, 10)


def test_a_header_name_that_is_no_utf8_is_replaced_as_java_does() -> None:
    batch = write([Record(0, 0, None, None, (("name", b"v"),))])
    assert read_by_us(signed(batch.replace(b"name", b"n\xffme")))[0].headers == (("n\ufffdme", b"v"),)


@settings(deadline=None, max_examples=times(25))
@given(st.data())
def test_rows_chosen_by_position_are_encoded_as_if_they_stood_so(draws):
    headers = st.none() | st.lists(st.tuples(st.text(max_size=3), maybe_bytes), max_size=3)
    rows = draws.draw(st.lists(st.tuples(maybe_bytes, maybe_bytes, headers, st.integers(0, 9)), max_size=20))
    order = draws.draw(st.permutations(range(len(rows))))[: draws.draw(st.integers(0, len(rows)))]

    def laid(rows_laid: list) -> Layout:
        keys, values, pairs, times = zip(*rows_laid, strict=True) if rows_laid else ((), (), (), ())
        return lay_out(
            RecordColumns(
                np.array(times, np.int64),
                value=pa.array(values, pa.binary()),
                key=pa.array(keys, pa.binary()),
                headers=pa.array(pairs, HEADERS_TYPE),
            )
        )

    batches_of_selection = encode(laid(rows).select(np.array(order, np.int64)))
    assert [b.data for b in batches_of_selection] == [b.data for b in encode(laid([rows[i] for i in order]))]


def test_a_sound_record_above_the_memory_for_one_is_not_called_damaged() -> None:
    batch = write([Record(0, 0, None, bytes(16 << 20))], Codec.ZSTD)
    with pytest.raises(RecordTooLargeError, match=r"offset 0 of t-3 .* kafka\.fetch\.max\.bytes") as caught:
        read_by_us(batch)
    assert not isinstance(caught.value, CorruptRecordError)
