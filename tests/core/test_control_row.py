"""A control row: what cannot be built, and the one text it travels as."""

from __future__ import annotations

import pyarrow as pa
import pytest

from keyedwm.arrow.control_rows import control_array, control_rows
from keyedwm.core.control_row import ControlRow, control_row, decode_rows, encode_rows
from keyedwm.core.errors import InputError
from keyedwm.core.rows import CONTROL, ControlKind

ROWS = [
    ControlRow(kind=ControlKind.WATERMARK, key=-128, watermark_ms=-5, channel="t-0", offset=0),
    ControlRow(kind=ControlKind.WATERMARK, key=0, watermark_ms=7),
    ControlRow(kind=ControlKind.IDLE),
    ControlRow(kind=ControlKind.IDLE, channel='a "name" é-3', offset=5),
    ControlRow(kind=ControlKind.ACTIVE, channel="t-1", offset=2**62),
    ControlRow(kind=ControlKind.BARRIER, channel="window-1#3", snapshot=0, channels=4),
    ControlRow(kind=ControlKind.BARRIER, snapshot=3, channels=0, source="0123456789ab"),
]
REFUSED = {
    "of kind watermark has no watermark_ms": {"kind": "watermark", "key": 0},
    "of kind watermark has no key": {"kind": "watermark", "watermark_ms": 0},
    "of kind barrier has no channel": {"kind": "barrier", "snapshot": 0, "channels": 1},
    "of kind barrier has no snapshot": {"kind": "barrier", "channel": "t-0", "channels": 1},
    "of kind active has no channel": {"kind": "active"},
    "of kind idle has a watermark_ms": {"kind": "idle", "watermark_ms": 5},
    "the channels of a control row is 0": {"kind": "barrier", "channel": "t-0", "snapshot": 0, "channels": 0},
    "kind barrier has no channel, it must have one": {"kind": "barrier", "snapshot": 0, "channels": 0},
    "the key of a control row is 128": {"kind": "watermark", "key": 128, "watermark_ms": 0},
    "the watermark_ms of a control row is 1.5": {"kind": "watermark", "key": 0, "watermark_ms": 1.5},
    "the key of a control row is True": {"kind": "watermark", "key": True, "watermark_ms": 0},
    "the channel of a control row is 7": {"kind": "active", "channel": 7},
    "has kind 'late', one of watermark, idle, active, barrier, reset is expected": {"kind": "late"},
    "has kind None": {"kind": None},
}


@pytest.mark.parametrize("fragment", REFUSED)
def test_a_row_that_its_kind_does_not_allow_cannot_be_built(fragment):
    with pytest.raises(InputError) as refused:
        control_row(**REFUSED[fragment])
    assert fragment in str(refused.value)


def test_rows_come_back_from_their_text():
    assert decode_rows(encode_rows(ROWS)) == ROWS
    assert decode_rows(encode_rows([])) == []


@pytest.mark.parametrize(
    "text",
    ["", "{", "{}", "[1]", '[{"kind": "idle", "more": 1}]', '[{"channel": "t-0"}]', '[{"kind": []}]', '[{"kind": {}}]',
     "[" * 100_000, '[{"kind": "idle", "channel": {}}]', '[{"kind": "watermark", "key": [], "watermark_ms": 1e400}]'],
    ids=lambda text: text[:40],
)  # fmt: skip
def test_another_text_is_refused(text):
    with pytest.raises(InputError):
        decode_rows(text)


def test_rows_come_back_from_their_column():
    table = pa.table({CONTROL: control_array(ROWS), "offset": pa.array([row.offset for row in ROWS], pa.int64())})
    assert control_rows(table) == ROWS
    assert control_rows(table.slice(0, 0)) == []
