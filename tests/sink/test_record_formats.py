"""A record of many channels is short, one of few is plain, and both are read."""

from __future__ import annotations

import base64
import json
import zlib
from dataclasses import replace

import pytest

from keyedwm.core.errors import FormatError, InputError
from pyspark_wm_sink.batch.record import ChannelRecord, Record
from pyspark_wm_sink.batch.task import TaskInput
from pyspark_wm_sink.limits import Limits

FEW = Record(
    query="q", run="r", batch=7, attempt="a", snapshot=7, rows=3, ignored=0,
    channels={"t-0": ChannelRecord(snapshot=7, offset=12, watermarks={0: 1_700_000_000_000})}, coalesced={0: 5},
)  # fmt: skip
MANY = replace(
    FEW,
    channels={
        f"orders-{n}": ChannelRecord(
            snapshot=7, offset=n * 7_919, idle=n % 9 == 0, watermarks={0: 1_700_000_000_000 + n * 104_729}
        )
        for n in range(1_000)
    },
)


def test_a_record_of_few_channels_is_plain_and_of_format_1():
    assert json.loads(FEW.to_json())["version"] == 1
    assert Record.from_json(FEW.to_json()) == FEW


def test_a_record_of_a_thousand_channels_is_a_fifth_as_long():
    text = MANY.to_json()
    assert json.loads(text)["version"] == 2
    assert len(text) < 20_000
    assert Record.from_json(text) == MANY
    assert Record.from_json(text).to_json() == text


def test_a_long_record_of_format_1_is_read():
    text = MANY.to_json(Limits(record_chars=10**6))
    assert json.loads(text)["version"] == 1
    assert Record.from_json(text) == MANY


@pytest.mark.parametrize(
    "channels", ["", "%", base64.b64encode(b"x").decode(), base64.b64encode(zlib.compress(b"[")).decode(), 7]
)
def test_damaged_channels_are_a_damaged_record(channels):
    value = {**json.loads(MANY.to_json()), "channels": channels}
    with pytest.raises(FormatError, match="is damaged"):
        Record.from_json(json.dumps(value))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda packed: packed + b"xx", "2 bytes follow its compressed ones"),
        (lambda packed: packed[:-2], "its compressed bytes are cut"),
        (lambda packed: packed[:-1] + bytes([packed[-1] ^ 1]), "its compressed bytes are changed"),
        (lambda _: zlib.compress(b"[" * 100_000), "its JSON is too deep"),
    ],
)
def test_packed_channels_are_read_whole_and_nothing_behind_them(change, sentence):
    value = json.loads(MANY.to_json())
    packed = base64.b64encode(change(base64.b64decode(value["channels"]))).decode()
    with pytest.raises(FormatError, match=sentence):
        Record.from_json(json.dumps({**value, "channels": packed}))


@pytest.mark.parametrize(
    "text",
    ["[" * 100_000, '{"version":' * 100_000, "null", "[1]", '{"version":[1]}', '{"version":true}', '{"version":1}']
    + [
        json.dumps({**json.loads(FEW.to_json()), field: wrong})
        for field, wrong in [
            ("rows", "3"), ("batch", 1.5), ("snapshot", True), ("swallowed", None), ("coalesced", {"0": "5"}),
            ("coalesced", {"a": 5}), ("channels", {"t-0": 7}), ("sources", {"s": "7"}), ("sources", [1]),
        ]
    ],
    ids=lambda text: text[:12],
)  # fmt: skip
def test_a_text_that_is_no_record_is_refused_in_one_sentence(text):
    with pytest.raises(FormatError, match="commit metadata keyedwm of the table") as error:
        Record.from_json(text)
    assert len(error.value.message) < 400


def test_channels_that_unpack_without_end_are_refused():
    with pytest.raises(FormatError, match="longer than 1000 bytes"):
        Record.from_json(MANY.to_json(), Limits(unpacked_bytes=1_000))


def test_more_control_rows_than_memory_should_hold_are_refused_with_the_option():
    import pyarrow as pa

    from keyedwm.arrow.control_rows import control_array
    from keyedwm.core.control_row import ControlRow
    from keyedwm.core.rows import ControlKind

    rows = [ControlRow(kind=ControlKind.WATERMARK, channel="t-0", key=0, offset=n, watermark_ms=n) for n in range(4)]
    batch = pa.record_batch({"control": control_array(rows)})
    limits = Limits(control_rows=3)
    with pytest.raises(InputError, match=r"more than 3 control rows in one batch: .* watermarkThrottle"):
        list(TaskInput(has_control=True, has_offsets=False, group_bytes=1 << 20, limits=limits).groups([batch]))
