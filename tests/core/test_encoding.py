"""State as bytes and as readable text: encode and decode are inverse, and nothing foreign is taken for ours."""

from __future__ import annotations

import base64
import hmac
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keyedwm.core.axis import AxisState, Counts, PropagatedState
from keyedwm.core.channel_encoding import decode_channels, encode_channels
from keyedwm.core.channel_names import pack_names, unpack_names
from keyedwm.core.coalescer import CoalescerState, CommonState
from keyedwm.core.encoding import (
    KEY_BYTES,
    METADATA_BYTES,
    CommittedState,
    _code,
    _covered_text,
    _varint,
    decode_committed,
    encode_committed,
    try_decode,
)
from keyedwm.core.errors import FormatError, InputError
from keyedwm.core.watermark import MAX_MS, MIN_MS, Status

NOW_MS = 1_731_000_000_000
times = st.integers(MIN_MS, MAX_MS)
propagated = st.builds(PropagatedState, st.integers(0, 2**48), st.integers(0, 2**62), st.integers(0, 99), st.booleans())
axis_states = st.builds(AxisState, st.lists(times, max_size=5).map(tuple) | propagated, st.none() | times)
axes = st.dictionaries(st.integers(-128, 127), axis_states, max_size=4)
keys = st.binary(min_size=KEY_BYTES, max_size=KEY_BYTES)
counts = st.builds(Counts, *[st.integers(0, 2**62)] * 4)
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


KEY, PLACE = bytes(range(KEY_BYTES)), "group t-0 55 settings"


def encoded(of_keys: dict[int, AxisState], snapshot_id: int = 7, seen_counts: Counts = Counts()) -> str:  # noqa: B008
    return encode_committed(CommittedState(snapshot_id, seen_counts, of_keys), KEY, PLACE)


@given(st.integers(0, 2**62), counts, axes, keys, st.text())
def test_a_committed_state_comes_back_as_it_was(snapshot_id, event_counts, of_keys, key, place):
    state = CommittedState(snapshot_id, event_counts, of_keys)
    text = encode_committed(state, key, place)
    assert text.isascii()
    assert decode_committed(text, key, place) == state
    assert try_decode(text, key, place) == state


@given(axes)
def test_equal_states_give_equal_strings(of_keys):
    assert encoded(of_keys) == encoded(dict(reversed(list(of_keys.items()))))


@given(st.text() | st.binary().map(lambda raw: "keyedwm3:" + base64.b64encode(raw).decode()))
def test_what_others_wrote_is_nothing_to_us_and_never_an_accident(text):
    assert try_decode(text, KEY, PLACE) is None
    with pytest.raises((InputError, FormatError)):
        decode_committed(text, KEY, PLACE)


@given(axes, st.integers(0, 10**6), st.characters(codec="ascii"))
def test_a_changed_or_cut_string_is_not_taken_for_a_state(of_keys, at, character):
    text = encoded(of_keys)
    at %= len(text)
    changed = text[:at] + character + text[at + 1 :]
    assert changed == text or try_decode(changed, KEY, PLACE) is None
    assert try_decode(text[:at], KEY, PLACE) is None


@given(axes, keys, st.text())
def test_a_state_counts_only_with_its_own_key_at_its_own_place(of_keys, key, place):
    text = encoded(of_keys)
    assert key == KEY or try_decode(text, key, PLACE) is None
    assert place == PLACE or try_decode(text, KEY, place) is None


def signed(body: bytes, version: int = 3) -> str:
    """A body that whoever knows the key could have written."""
    return f"keyedwm{version}:" + base64.b64encode(body + _code(KEY, _covered_text(PLACE, version), body)).decode()


def body_of(*numbers: int) -> bytes:
    return b"".join(_varint(number) for number in numbers)


NEVER_WRITTEN = {
    "nothing": b"",
    "too few numbers": body_of(1, 2, 3),
    "a number without an end": b"\x10\x00\x00\x00\xff",
    "a number of eleven bytes": body_of(1, 2, 3, 4) + b"\xff" * 10 + b"\x00",
    "2^62 axes": body_of(1, 0, 0, 0, 2**62),
    "fewer axes than none": body_of(1, 0, 0, 0, -1),
    "2^62 numbers of an axis": body_of(1, 0, 0, 0, 1, 0, 0, 2**62),
    "less than no numbers of an axis": body_of(1, 0, 0, 0, 1, 0, 0, -3),
    "a watermark that is not there": body_of(1, 0, 0, 0, 1, 0, 1, 0),
    "a key that is no byte": body_of(1, 0, 0, 0, 1, 200, 0, 0),
    "one key twice": body_of(1, 0, 0, 0, 2, 3, 0, 0, 3, 0, 0),
    "a state of no kind": body_of(1, 0, 0, 0, 1, 0, 9, 0),
    "a barrier with three numbers": body_of(1, 0, 0, 0, 1, 0, 2, 3, 1, 1, 1),
    "something behind the end": body_of(1, 0, 0, 0, 0, 7),
}


@pytest.mark.parametrize("case", NEVER_WRITTEN)
def test_a_body_that_is_never_written_is_refused_at_once(case):
    assert try_decode(signed(body_of(1, 0, 0, 0, 0)), KEY, PLACE) == CommittedState(1, Counts(), {})
    assert try_decode(signed(NEVER_WRITTEN[case]), KEY, PLACE) is None


@pytest.mark.parametrize("behind", [(), (0, 0), (2**62, 7, 1, 0), (-1, 7, 1, 0), (2, 7, 1, 0), (1, 7, 1)])
def test_counts_of_bad_values_that_are_never_written_are_rejected_at_once(behind):
    assert try_decode(signed(body_of(1, 0, 0, 0, 0, 1, 7, 1, 0), 5), KEY, PLACE) is not None
    assert try_decode(signed(body_of(1, 0, 0, 0, 0, *behind), 5), KEY, PLACE) is None


def test_an_endless_string_costs_no_more_than_its_head():
    assert try_decode("keyedwm3:" + "A" * 10**7, KEY, PLACE) is None


def test_nothing_committed_is_no_state():
    assert try_decode(None, KEY, PLACE) is None
    assert try_decode("", KEY, PLACE) is None


def test_another_version_is_refused_by_its_number_and_skipped_where_it_only_costs_time():
    with pytest.raises(FormatError, match="version 6, this keyedwm reads versions 3 to 5"):
        decode_committed("keyedwm6:abc", KEY, PLACE)
    assert try_decode("keyedwm6:abc", KEY, PLACE) is None


def test_counts_that_are_rare_cost_a_version_each_and_no_body_passes_for_one_of_another_version():
    axes = {1: AxisState((5,), 5)}
    several = (
        Counts(1, 2, 3),
        Counts(1, 2, 3, 4),
        Counts(1, 2, 3, bad_values=((2, 70), (7, 1))),
        Counts(bad_values=((9, 1),)),
    )
    texts = [encoded(axes, seen_counts=counts) for counts in several]
    assert [text[:9] for text in texts] == ["keyedwm3:", "keyedwm4:", "keyedwm5:", "keyedwm5:"]
    assert tuple(decode_committed(text, KEY, PLACE).counts for text in texts) == several
    for metadata, other in ((texts[0], "4"), (texts[1], "3"), (texts[1], "5"), (texts[2], "4")):
        with pytest.raises(InputError, match="was not written by this query"):
            decode_committed(metadata[:7] + other + metadata[8:], KEY, PLACE)


def test_the_code_behind_a_state_is_the_hmac_of_its_place_and_body():
    raw = base64.b64decode(encode_committed(CommittedState(3, Counts(), {}), KEY, PLACE).partition(":")[2])
    message = f"{len(PLACE.encode())}:{PLACE}".encode() + raw[:-16]
    assert raw[-16:] == hmac.digest(KEY, message, "sha256")[:16]


def test_a_state_key_has_32_bytes():
    with pytest.raises(InputError, match="a state key has 5 bytes, it must have 32"):
        encode_committed(CommittedState(0, Counts(), {}), b"short", PLACE)


def test_the_metadata_budget_of_a_broker_holds_every_key_of_a_channel():
    """4,096 bytes a partition by default: all 256 keys fit with a fixed lag, and one key with 400 steps of history."""
    fixed = {key: AxisState((NOW_MS + 977 * key,), NOW_MS + 977 * key - 5_000) for key in range(-128, 128)}
    assert len(encoded(fixed, 10**6, Counts(10**6, 10**6, 10**6))) <= METADATA_BYTES
    steps = tuple(number for step in range(400) for number in (NOW_MS + 1000 * step, NOW_MS + 1000 * step - 3_000))
    assert len(encoded({0: AxisState((NOW_MS, *steps), NOW_MS)}, 10**6)) <= METADATA_BYTES
    assert len(encoded({0: AxisState((NOW_MS,), NOW_MS - 5_000)}, 10**6)) <= 64


def test_the_same_budget_holds_hundreds_of_channels_of_a_coalescer():
    channels = {f"flights-{number}": (Status.ACTIVE, {0: NOW_MS + 977 * number % 10_000}) for number in range(600)}
    state = CoalescerState(channels, CommonState(emitted={0: NOW_MS}, top={0: NOW_MS + 10_000}))
    assert len(encode_channels(state)) <= METADATA_BYTES


@given(states)
def test_the_state_of_many_channels_comes_back_as_it_was(state):
    assert decode_channels(encode_channels(state)) == state


@given(states)
def test_equal_channel_states_give_equal_bytes(state):
    backwards = CoalescerState(dict(reversed(list(state.channels.items()))), state.common)
    assert encode_channels(backwards) == encode_channels(state)


def test_foreign_cut_or_newer_channel_state_is_refused():
    data = encode_channels(CoalescerState({"a-0": (Status.IDLE, {0: 5})}))
    for wrong in (b"", b"kwmc", b"text", data[:-1], data + b"x", data[:9] + b"\x00" + data[10:]):
        with pytest.raises(InputError):
            decode_channels(wrong)
    with pytest.raises(FormatError, match="version 9"):
        decode_channels(data[:4] + b"\x09" + data[5:])


def test_channel_state_of_version_1_is_read():
    encoded_state = (
        "a3dtYwF4ATWOwQrCMAyGU8GTbxGvFeq62dnX8Dh6mFvRYdeOrR7GGF59Y4+aof7wQ/KR/MkTACasrqX31g2oJccqtG3wqCe0bROjrVEXheCZMRyv"
        "zRBDPxKhpqmdPXXWOdSxv1sCFx/6ZT7lGEP33+OF5MckkVIlQh7yLFUqy4UyZuZ4syNdpXhp5g39Uu4EeQ/nrWKwYsDWBBe93l8BsF/1+ADrTTvj"
    )
    assert decode_channels(base64.b64decode(encoded_state)) == CoalescerState(
        {"a-0": (Status.IDLE, {0: 5}), "a-1": (Status.ACTIVE, {}), "b#7": (Status.DONE, {0: -9, 3: MAX_MS})},
        CommonState(emitted={0: 5}, top={0: 5, 3: MAX_MS}, idle_spell=True, ignored=4),
    )


def test_a_channel_costs_the_bytes_of_its_watermark_alone():
    channels = {f"a-b-{number}": (Status.ACTIVE, {0: NOW_MS + 7919 * number % 1_000}) for number in range(10_000)}
    assert len(encode_channels(CoalescerState(channels))) < 2 * 10_000
    whole = {
        name: (status, {0: NOW_MS + number % 60_000}) for number, (name, (status, _)) in enumerate(channels.items())
    }
    in_seconds = {name: (status, {0: of[0] // 1_000 * 1_000}) for name, (status, of) in whole.items()}
    assert len(encode_channels(CoalescerState(in_seconds))) < 10_000


@given(st.sets(st.text(max_size=3) | st.integers(0, 10**11).map("t-{}".format) | st.integers(0, 20).map("t#{}".format)))
def test_packed_names_come_back_in_one_order(names):
    packed = json.loads(json.dumps(pack_names(names)))
    unpacked = unpack_names(packed, len(names))
    assert (set(unpacked), len(unpacked)) == (names, len(names))
    assert pack_names(reversed(unpacked)) == packed


@pytest.mark.parametrize("packed", [[["t-", [0, 3]]], [["t-", [0, 10**12]]], [["t-", [0, -1]]], [["t-", []]], [5]])
def test_names_that_were_never_packed_so_are_refused(packed):
    with pytest.raises((ValueError, TypeError)):
        unpack_names(packed, 2)


@given(axis_states)
def test_an_axis_goes_through_json_and_back(state):
    assert AxisState.from_list(state.as_list()) == state
