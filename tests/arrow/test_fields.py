"""Fields out of keys and values: the compiled loops against Python's own readers."""

from __future__ import annotations

import json
import math
import random
import re
import struct

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from keyedwm.arrow.json_scan import Path, find, find_all
from keyedwm.arrow.places import FieldReader, read_fields
from keyedwm.config.places import field_of
from keyedwm.core.errors import OptionError
from keyedwm.core.places import Field, FieldType

COLUMNS = pa.schema([("key", pa.binary()), ("value", pa.binary()), ("offset", pa.int64())])
NUMBER = re.compile(r"-?\d+(\.\d+)?([eE][+-]?\d+)?")


def read(text: str, values: list[bytes | None]) -> list:
    count = len(values)
    columns = [pa.nulls(count, pa.binary()), pa.array(values, pa.binary()), pa.array(range(count), pa.int64())]
    # A slice, so that neither offsets nor validity begin at the buffers' first bit.
    batch = pa.RecordBatch.from_arrays([pa.concat_arrays([c[:1], c]) for c in columns], schema=COLUMNS).slice(1)
    reader = FieldReader(field_of("by", text, COLUMNS.names), COLUMNS)
    return read_fields([reader], batch.column)[0].to_pylist()


def bits(number: float | None) -> bytes | None:
    return None if number is None else struct.pack("d", number)


texts = st.text(st.sampled_from("0123456789.eE+-"), max_size=24)


@given(st.lists(texts | st.integers(-(2**64), 2**64).map(str), max_size=8))
def test_a_whole_number_is_read_or_null(texts_in: list[str]) -> None:
    expected = [int(t) if re.fullmatch(r"-?\d{1,19}", t) and -(2**63) <= int(t) < 2**63 else None for t in texts_in]
    assert read("value::bigint", [t.encode() for t in texts_in]) == expected
    assert read("json:$.a::bigint", [json.dumps({"a": t}).encode() for t in texts_in]) == expected


@given(st.lists(texts | st.floats(allow_nan=False, allow_infinity=False).map(repr) | st.decimals(-9, 9).map(str)))
def test_a_float_is_the_one_nearest_to_its_text(texts_in: list[str]) -> None:
    expected = [bits(float(t)) if NUMBER.fullmatch(t) else None for t in texts_in]
    assert [bits(n) for n in read("value::double", [t.encode() for t in texts_in])] == expected


def test_floats_of_seventeen_digits_are_rounded_once(seed: int) -> None:
    chance = random.Random(f"{seed} floats")
    numbers = [chance.uniform(-1, 1) * 10 ** chance.randrange(-12, 12) for _ in range(2_000)]
    assert read("value::double", [repr(number).encode() for number in numbers]) == numbers


@given(st.lists(st.none() | st.text() | st.integers() | st.booleans(), max_size=8), st.booleans())
def test_a_string_is_what_json_says(items: list, ascii_only: bool) -> None:
    items = [one for one in items if not (isinstance(one, str) and re.search("[\ud800-\udfff]", one))]
    values = [json.dumps({"b": [0], "a": one}, ensure_ascii=ascii_only).encode() for one in items]
    assert read("json:$.a", values) == [
        one if one is None or isinstance(one, str) else json.dumps(one) for one in items
    ]


@given(st.binary(max_size=30))
def test_whatever_bytes_come_nothing_breaks(value: bytes) -> None:
    texts = [value, b'{"a":"' + value + b'"}', b'{"a":' + value + b"}", None]
    for kind in ("::string", "::bigint", "::double"):
        assert len(read("json:$.a" + kind, texts)) == len(read("value" + kind, texts)) == len(texts)


@pytest.mark.parametrize("escape", ["\\x", "\\u12", "\\u12g4", "\\ud800", "\\udc00", "\\ud800\\u0041", "\\ud800x"])
def test_a_wrong_escape_is_null_and_its_neighbours_stay(escape: str) -> None:
    values = [b'{"a":"before"}', b'{"a":"x' + escape.encode() + b'"}', b'{"a":"behind"}']
    assert read("json:$.a", values) == ["before", None, "behind"]


def test_what_is_no_utf8_is_replaced() -> None:
    assert read("value::string", [b"a\xff", b"b", None]) == ["a\ufffd", "b", None]
    assert read("json:$.a", [b'{"a":"a\xff"}']) == ["a\ufffd"]


def test_a_text_null_is_no_null() -> None:
    assert read("json:$.a", [b'{"a": null}', b'{"a": "null"}', b"{}", b"null", None]) == [
        None,
        "null",
        None,
        None,
        None,
    ]


def test_numbers_beyond_a_double() -> None:
    assert read("value::double", [b"1e999", b"-1e999", b"1e-999", b"0e99999999999"]) == [math.inf, -math.inf, 0.0, 0.0]
    # The fraction's digits are as many as the first five digits of the exponent.
    assert read("value::double", [b"0." + b"0" * 10_009 + b"1e100100"]) == [math.inf]


def test_a_field_says_where_it_lies() -> None:
    names = COLUMNS.names
    assert field_of("by", " offset ", names) == Field("offset")
    assert field_of("by", "key :: BIGINT", names) == Field("key", (), FieldType.BIGINT)
    assert field_of("by", "key:$.a[2]", names) == Field("key", ("a", 2), FieldType.STRING)
    assert field_of("by", "json:$['a::b']::double", names) == Field("value", ("a::b",), FieldType.DOUBLE)


@pytest.mark.parametrize(
    "text", ["", "value2", "json:", "json:a", "json:$", "offset::bigint", "key::", "header:x", "value::text"]
)
def test_what_is_no_field_is_refused(text: str) -> None:
    with pytest.raises(OptionError, match="option by: "):
        field_of("by", text, COLUMNS.names)


NAMES = ["a", "b", "ab", "é", "", "a b"]
PATHS = [
    ("",),
    ("a",),
    ("b",),
    ("é",),
    ("a", "a"),
    ("a", "b"),
    ("a", 0),
    ("b", 1, "a"),
    ("b", 1, "b"),
    ("ab",),
    ("a b",),
]


class Pairs(list):
    """An object whose names can come twice."""


documents = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3) | st.lists(st.tuples(st.sampled_from(NAMES), inner), max_size=5).map(Pairs)
    ),
    max_leaves=12,
)


def as_json(one: object, spaces: str, ascii_only: bool) -> str:
    if isinstance(one, Pairs):
        names = [json.dumps(name, ensure_ascii=ascii_only) for name, _ in one]
        values = [as_json(value, spaces, ascii_only) for _, value in one]
        return "{" + ",".join(f"{spaces}{n}{spaces}:{spaces}{v}" for n, v in zip(names, values, strict=True)) + "}"
    if isinstance(one, list):
        return "[" + ",".join(spaces + as_json(value, spaces, ascii_only) for value in one) + "]"
    return json.dumps(one, ensure_ascii=ascii_only)


@given(
    st.lists(st.none() | st.tuples(documents, st.sampled_from(["", " "]), st.booleans()), max_size=5),
    st.lists(st.sampled_from(PATHS), min_size=1, max_size=6), st.randoms(use_true_random=False),
)  # fmt: skip
def test_values_found_together_are_those_found_one_by_one(given_documents, paths, chance) -> None:
    texts = [None if one is None else as_json(*one).encode() for one in given_documents]
    # Cut off, or with another byte somewhere: what is no JSON must not be read differently either.
    texts += [text[: chance.randrange(len(text) + 1)] for text in texts if text]
    texts += [text[:at] + chance.choice([b'"', b"}", b",", b"x"]) + text[at + 1 :] for text in texts if text
              for at in [chance.randrange(len(text))]]  # fmt: skip
    values = pa.array([None, *texts], pa.binary()).slice(1)
    compiled = [Path(path) for path in paths]
    for path, (data, start, end) in zip(compiled, find_all(values, compiled), strict=True):
        single = find(values, path)
        assert start.tolist() == single[1].tolist()
        assert end[start >= 0].tolist() == single[2][start >= 0].tolist()
        assert data is single[0] or data.tolist() == single[0].tolist()


@pytest.mark.parametrize(
    ("path", "json_name"),
    [
        ("a/b", r"a\/b"), ("a&b", r"a\u0026b"), ("<é>", r"\u003c\u00e9\u003e"), ("é/", r"\u00E9\/"), ('a"b', r"a\"b"),
        ("\\u00ab", r"\\u00ab"), ("a+b", r"a\u002Bb"), ("a'b", r"a\u0027b"), ("ab", r"\u0061b"), ("a\t", r"a\t"),
        ("😀é", r"\ud83d\ude00é"), ("", ""),
    ],
)  # fmt: skip
def test_a_name_is_found_as_writers_of_json_escape_it(path, json_name):
    text = f'{{"{json_name}": 1, "x": 2}}'
    assert json.loads(text) == {path: 1, "x": 2}
    both = find_all(pa.array([text.encode()]), [Path([path]), Path(["x"])])
    assert [bytes(data[start[0] : end[0]]) for data, start, end in both] == [b"1", b"2"]


@pytest.mark.parametrize(
    "other", [r"a\u0062c", r"\u0061", r"a\u00e9", r"a\x", r"a\u00", r"a\ud83d", "abc", "a", r"a\n"]
)
def test_an_escaped_name_is_no_other_name(other):
    text = f'{{"{other}": 1, "ab": 2}}'.encode()
    together, _ = find_all(pa.array([text]), [Path(["ab"]), Path(["x"])])
    for data, start, end in (together, find(pa.array([text]), Path(["ab"]))):
        assert bytes(data[start[0] : end[0]]) == b"2"


@pytest.mark.parametrize(
    "text", [r"1\u0035", r"\u0031\u0035", r"\u002D15", r"15\u0020", r"1\u002e5", r"15\u00", r"15\n"]
)
def test_a_number_in_quotes_is_read_behind_its_escapes(text):
    values = [b'{"a":"7"}', f'{{"a":"{text}"}}'.encode(), b'{"a":8}', b'{"b":1}']
    try:
        number = json.loads(f'"{text}"')
    except ValueError:
        number = ""
    whole, real = (re.fullmatch(form, number) for form in (r"-?\d+", r"-?\d+(\.\d+)?"))
    assert read("json:$.a::bigint", values) == [7, int(number) if whole else None, 8, None]
    assert read("json:$.a::double", values) == [7.0, float(number) if real else None, 8.0, None]


def test_escapes_are_those_of_strings_in_json_alone():
    assert read("json:$.a::bigint", [b'{"a":1\\u0035}', b'{"a":"1\\u0035"}']) == [None, 15]
    assert read("value::bigint", [b'"', b"1\\u0035", b"5"]) == [None, None, 5]


MARK = "\ufeff".encode()


def test_a_byte_order_mark_before_json_is_passed_over():
    texts = [
        MARK + b'{"a":1,"b":[2]}',
        MARK + b' {"a":3}',
        b'{"a":4}',
        MARK,
        MARK[:2] + b'{"a":5}',
        MARK + MARK + b'{"a":6}',
    ]
    assert read("json:$.a::bigint", texts) == [1, 3, 4, None, None, None]
    both = find_all(pa.array(texts), [Path(["a"]), Path(["b"]), Path(["b", 0])])
    assert [bytes(data[start[0] : end[0]]) for data, start, end in both] == [b"1", b"[2]", b"2"]


def test_an_escaped_backslash_begins_no_other_escape():
    text = b'{"\\\\u00AB": "other", "\\\\u00ab": "own"}'
    ((data, start, end),) = find_all(pa.array([text]), [Path(["\\u00ab"])])
    assert bytes(data[start[0] : end[0]]) == b"own"


@pytest.mark.parametrize("special", ['\\"', "\\\\", "é", "\x7f", "#", "]", "\u015c"])
def test_strings_are_read_to_their_end_whatever_lies_where_in_a_word(special: str) -> None:
    """Eight bytes are compared at once: the character is in each place of a word, and in the rest behind the last."""
    places = [(before, behind) for before in range(18) for behind in range(18)]
    raw = [f'{{"a":"{"x" * before}{special}{"y" * behind}","b":{before}}}'.encode() for before, behind in places]
    character = json.loads(f'"{special}"')
    assert read("json:$.a", raw) == ["x" * before + character + "y" * behind for before, behind in places]
    assert read("json:$.b::bigint", raw) == [before for before, _ in places]


def test_a_string_that_is_cut_off_does_not_end_in_the_next_text() -> None:
    whole = b'{"a":"0123456789\\"abcdef"}'
    texts = [one for end in range(len(whole)) for one in (whole[:end], b'rest","a":"b"}')]
    assert read("json:$.a", texts) == [None] * (len(texts) - 2) + ['0123456789"abcdef', None]
