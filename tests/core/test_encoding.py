"""State as bytes and as readable text: encode and decode are inverse, and nothing foreign is taken for ours."""

from __future__ import annotations

import base64
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keyedwm.core.axis import AxisState
from keyedwm.core.channel_encoding import decode_channels, encode_channels, readable_channels
from keyedwm.core.coalescer import CoalescerState, CommonState
from keyedwm.core.counts import Counts
from keyedwm.core.encoding import (
    METADATA_BYTES,
    CommittedState,
    decode_committed,
    encode_committed,
    readable,
    try_decode,
)
from keyedwm.core.errors import FormatError, InputError
from keyedwm.core.watermark import MAX_MS, MIN_MS, Status

NOW_MS = 1_731_000_000_000
times = st.integers(MIN_MS, MAX_MS)
axis_states = st.builds(AxisState, st.lists(times, max_size=5).map(tuple), st.none() | times)
axes = st.dictionaries(st.integers(-128, 127), axis_states, max_size=4)
tokens = st.text("abcdefghijklmnopqrstuvwxyz0123456789", min_size=8, max_size=16)
counts = st.builds(Counts, st.integers(0, 2**62), st.integers(0, 2**62))
maps = st.dictionaries(st.integers(-128, 127), times, max_size=3)
states = st.builds(
    CoalescerState,
    st.dictionaries(
        st.text(st.characters(exclude_characters="\0", codec="utf-8")), st.tuples(st.sampled_from(Status), maps)
    ),
    st.builds(
        CommonState,
        maps,
        maps,
        st.booleans(),
        st.dictionaries(st.integers(-128, 127), st.lists(st.tuples(times, times), max_size=3).map(tuple), max_size=2),
        st.integers(0, 99),
    ),
)


@given(tokens, st.integers(0, 2**62), counts, axes)
def test_a_committed_state_comes_back_as_it_was(token, snapshot_id, counted, of_keys):
    text = encode_committed(token, snapshot_id, counted, of_keys)
    assert text.isascii()
    assert decode_committed(text) == CommittedState(token, snapshot_id, counted, of_keys)
    assert try_decode(text) == decode_committed(text)


@given(axes)
def test_equal_states_give_equal_strings(of_keys):
    backwards = dict(reversed(list(of_keys.items())))
    assert encode_committed("query-token", 1, Counts(), of_keys) == encode_committed(
        "query-token", 1, Counts(), backwards
    )


@given(st.text() | st.binary().map(lambda raw: "keyedwm2:" + base64.b64encode(raw).decode()))
def test_what_others_wrote_is_nothing_to_us_and_never_an_accident(text):
    assert try_decode(text) is None
    with pytest.raises((InputError, FormatError)):
        decode_committed(text)


@given(axes, st.integers(0, 10**6), st.characters(codec="ascii"))
def test_a_changed_or_cut_string_is_not_taken_for_a_state(of_keys, at, character):
    text = encode_committed("query-token", 7, Counts(), of_keys)
    at %= len(text)
    changed = text[:at] + character + text[at + 1 :]
    assert changed == text or try_decode(changed) is None
    assert try_decode(text[:at]) is None


@pytest.mark.parametrize(
    "body", [b"\x00", b"\xff", b"\x10abcdefgh", b"\x10abcdefgh\x00\x00\x04", b"\x10abcdefg\xff\x00\x00\x00"]
)
def test_a_body_that_is_never_written_is_no_state_even_with_the_right_checksum(body):
    raw = body + zlib.crc32(body).to_bytes(4, "big")
    assert try_decode("keyedwm2:" + base64.b64encode(raw).decode()) is None


def test_nothing_committed_is_no_state():
    assert try_decode(None) is None
    assert try_decode("") is None


def test_another_version_is_refused_by_its_number_and_skipped_where_it_only_costs_time():
    with pytest.raises(FormatError, match="version 3, this keyedwm reads version 2"):
        decode_committed("keyedwm3:abc")
    assert try_decode("keyedwm3:abc") is None


@pytest.mark.parametrize("token", ["short", "x" * 17, "umlaut-ä-token"])
def test_a_token_is_8_to_16_ascii_characters(token):
    with pytest.raises(InputError, match="query token"):
        encode_committed(token, 0, Counts(), {})


def test_the_metadata_budget_of_a_broker_holds_every_key_of_a_channel():
    """4,096 bytes a partition by default: all 256 keys fit with a fixed lag, and one key with 400 steps of history."""
    fixed = {key: AxisState((NOW_MS + 977 * key,), NOW_MS + 977 * key - 5_000) for key in range(-128, 128)}
    assert len(encode_committed("0123456789abcdef", 10**6, Counts(10**6, 10**6), fixed)) <= METADATA_BYTES
    steps = tuple(number for step in range(400) for number in (NOW_MS + 1000 * step, NOW_MS + 1000 * step - 3_000))
    assert (
        len(encode_committed("0123456789abcdef", 10**6, Counts(), {0: AxisState((NOW_MS, *steps), NOW_MS)}))
        <= METADATA_BYTES
    )
    one = encode_committed("0123456789abcdef", 10**6, Counts(), {0: AxisState((NOW_MS,), NOW_MS - 5_000)})
    assert len(one) <= 64


def test_the_same_budget_holds_hundreds_of_channels_of_a_coalescer():
    channels = {f"flights-{number}": (Status.ACTIVE, {0: NOW_MS + 977 * number % 10_000}) for number in range(600)}
    state = CoalescerState(channels, CommonState(emitted={0: NOW_MS}, top={0: NOW_MS + 10_000}))
    assert len(encode_channels(state)) <= METADATA_BYTES


def test_a_committed_state_can_be_read_by_people():
    state = CommittedState("query-token", 7, Counts(2, 3), {1: AxisState((5,), None), -1: AxisState((), 4)})
    assert readable(state) == {
        "token": "query-token",
        "snapshotId": 7,
        "badCount": 2,
        "lateCount": 3,
        "axes": {"-1": [4], "1": [None, 5]},
    }


@given(states)
def test_the_state_of_many_channels_comes_back_as_it_was(state):
    assert decode_channels(encode_channels(state)) == state


@given(states)
def test_equal_channel_states_give_equal_bytes(state):
    backwards = CoalescerState(dict(reversed(list(state.channels.items()))), state.common)
    assert encode_channels(backwards) == encode_channels(state)


def test_foreign_cut_or_newer_channel_state_is_refused():
    data = encode_channels(CoalescerState({"a-0": (Status.IDLE, {0: 5})}))
    for wrong in (b"", b"kwmc", b"text", data[:-1], data[:9] + b"\x00" + data[10:]):
        with pytest.raises(InputError):
            decode_channels(wrong)
    with pytest.raises(FormatError, match="version 9"):
        decode_channels(data[:4] + b"\x09" + data[5:])
    with pytest.raises(InputError, match="NUL"):
        encode_channels(CoalescerState({"a\0b": (Status.ACTIVE, {})}))


def test_the_state_of_channels_can_be_read_by_people():
    state = CoalescerState({"b-0": (Status.DONE, {}), "a-0": (Status.ACTIVE, {1: 5, 0: 4})}, CommonState({0: 3}))
    assert readable_channels(state)["channels"] == {
        "a-0": {"status": "active", "watermarks": {"0": 4, "1": 5}},
        "b-0": {"status": "done", "watermarks": {}},
    }
    assert readable_channels(state)["common"]["emitted"] == [[0, 3]]


@given(axis_states)
def test_an_axis_goes_through_json_and_back(state):
    assert AxisState.from_list(state.as_list()) == state
