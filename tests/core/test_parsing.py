"""Texts at rest are read whole, or refused as one kind of error."""

from __future__ import annotations

import zlib

import pytest

from keyedwm.core.parsing import inflated, parse_json, whole_number, whole_number_or_none


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000, '{"a":' * 100_000, b"\xff", "9" * 5_000])
def test_what_is_no_json_is_a_value_error_however_deep(text):
    with pytest.raises(ValueError):  # noqa: PT011  Python's own words but for the depth
        parse_json(text)


def test_bytes_are_read_whole_or_not_at_all():
    packed = zlib.compress(b"a" * 1_000)
    assert inflated(packed, 1_000) == b"a" * 1_000
    refused = {
        "it is longer than 999 bytes": (packed, 999),
        "its compressed bytes are cut": (packed[:-1], 1_000),
        "3 bytes follow its compressed ones": (packed + b"abc", 1_000),
        "its compressed bytes are changed": (b"x" + packed, 1_000),
    }
    for sentence, (data, most) in refused.items():
        with pytest.raises(ValueError, match=sentence):
            inflated(data, most)


def test_a_whole_number_is_no_other_thing_that_python_takes_for_one():
    assert (whole_number(-5, "it"), whole_number_or_none(None, "it")) == (-5, None)
    for other in (True, 1.0, "1", [1]):
        with pytest.raises(ValueError, match="a whole number is expected"):
            whole_number(other, "it")
