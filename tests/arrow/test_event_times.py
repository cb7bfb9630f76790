"""Event times out of timestamps, JSON, keys and headers: the compiled loops against Python's own decoders."""

from __future__ import annotations

import json
import math
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from keyedwm.arrow.places import EventTimeReader
from keyedwm.arrow.schema import HEADERS_TYPE
from keyedwm.arrow.time_text import MAX_EVENT_MS, MIN_EVENT_MS
from keyedwm.config.places import event_time_of
from keyedwm.core.errors import OptionError
from keyedwm.core.places import EventTime, Place, Unit

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
PER_MS = {Unit.SECONDS: Fraction(1000), Unit.MILLISECONDS: Fraction(1), Unit.MICROSECONDS: Fraction(1, 1000),
          Unit.NANOSECONDS: Fraction(1, 1_000_000)}  # fmt: skip


def from_values(spec: str, unit: Unit, values: list[bytes | None]) -> list[int | None]:
    reader = EventTimeReader(event_time_of(spec, unit))
    ms, valid = reader.read(np.zeros(len(values), np.int64), None, pa.array(values, pa.binary()), None)
    return [int(t) if valid is None or valid[i] else None for i, t in enumerate(ms)]


@given(
    number=st.decimals(min_value=-(10**14), max_value=10**14, places=6),
    unit=st.sampled_from(sorted(PER_MS, key=lambda u: u.value)),
    scientific=st.booleans(),
)
def test_a_number_is_floored_to_the_millisecond_exactly(number: Decimal, unit: Unit, scientific: bool) -> None:
    text = f"{number:E}" if scientific else f"{number:f}"
    expected = math.floor(Fraction(number) * PER_MS[unit])
    expected_ms = expected if MIN_EVENT_MS <= expected <= MAX_EVENT_MS else None
    assert from_values("json:$.t", unit, [b'{"t": ' + text.encode() + b"}"]) == [expected_ms]


@given(
    at=st.datetimes(min_value=datetime(1, 1, 2), max_value=datetime(9999, 12, 30)),  # noqa: DTZ001 - a zone is added
    minutes=st.integers(-18 * 60, 18 * 60),
)
def test_iso_text_reads_as_python_reads_it(at: datetime, minutes: int) -> None:
    text = at.replace(tzinfo=timezone(timedelta(minutes=minutes))).isoformat()
    expected = (datetime.fromisoformat(text) - EPOCH) // timedelta(milliseconds=1)
    assert from_values("json:$.t", Unit.ISO, [json.dumps({"t": text}).encode()]) == [expected]


@pytest.mark.parametrize(
    "text",
    ["", "x", "1.", "-", "1e", "--1", "1 1", "null", "true", "0x10", "1_000", "99999999999999999999", "1e300"],
)
def test_what_is_no_number_is_no_time(text: str) -> None:
    assert from_values("json:$.t", Unit.MILLISECONDS, [json.dumps({"t": text}).encode()]) == [None]


@pytest.mark.parametrize(
    ("unit", "text"),
    [
        (Unit.ISO, r"1970-01-01T02:00:05\u002B02:00"), (Unit.ISO, r"1970\u002d01-01T00:00:05Z "),
        (Unit.SECONDS, r"\u0035"), (Unit.SECONDS, r"\t5"),
    ],
)  # fmt: skip
def test_a_time_is_read_behind_its_escapes(unit: Unit, text: str) -> None:
    texts = [b'{"t":"x"}', f'{{"t":"{text}"}}'.encode(), b'{"t":"\\u12"}', b"{}"]
    assert from_values("json:$.t", unit, texts) == [None, 5_000, None, None]


@pytest.mark.parametrize(
    "text",
    ["2013-02-30", "2013-13-01", "2013-1-1", "2013-01-01T25:00", "2013-01-01T05:00+19:00", "2013-01-01T05:00 x"],
)  # fmt: skip
def test_what_is_no_date_is_no_time(text: str) -> None:
    assert from_values("json:$.t", Unit.ISO, [json.dumps({"t": text}).encode()]) == [None]


documents = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**12), 10**12) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=12,
)


@given(
    around=st.dictionaries(st.text(max_size=6), documents, max_size=5),
    at=st.integers(0, 10**12),
    ascii_only=st.booleans(),
)
def test_the_value_is_found_among_whatever_stands_around_it(around: dict, at: int, ascii_only: bool) -> None:
    text = json.dumps({**around, "zeit": {"ä b": [0, at]}}, ensure_ascii=ascii_only).encode()
    assert from_values("json:$.zeit['ä b'][1]", Unit.MILLISECONDS, [text]) == [at]


@given(document=documents, length=st.integers(0, 200))
def test_a_cut_text_never_reads_beyond_itself(document: object, length: int) -> None:
    text = json.dumps({"a": document, "t": 5}).encode()
    times_ms = from_values("json:$.t", Unit.MILLISECONDS, [text[:length], b'{"t":7}', text])
    assert times_ms[1:] == [7, 5]
    assert times_ms[0] in {None, 5}


@given(noise=st.binary(max_size=60))
def test_noise_is_never_a_crash(noise: bytes) -> None:
    assert from_values("json:$.a.b[2]", Unit.ISO, [noise, None, b'{"a":{"b":[0,0,"1970-01-01"]}}'])[1:] == [None, 0]


def test_the_last_header_of_a_name_counts() -> None:
    reader = EventTimeReader(event_time_of("header:t", Unit.SECONDS))
    rows = [
        [{"key": "t", "value": b"1"}, {"key": "u", "value": b"9"}, {"key": "t", "value": b"2"}],
        None,
        [{"key": "T", "value": b"3"}],
        [{"key": "t", "value": None}],
        [{"key": "t", "value": b"4"}],
    ]
    ms, valid = reader.read(np.zeros(5, np.int64), None, None, pa.array(rows, HEADERS_TYPE))
    assert valid is not None
    assert list(valid) == [True, False, False, False, True]
    assert (ms[0], ms[4]) == (2000, 4000)


def test_the_key_can_hold_the_time() -> None:
    reader = EventTimeReader(event_time_of("key:$.at", Unit.MILLISECONDS))
    ms, valid = reader.read(np.zeros(1, np.int64), pa.array([b'{"at":5}'], pa.binary()), None, None)
    assert (list(ms), valid) == ([5], None)


def test_a_record_without_a_timestamp_has_no_event_time() -> None:
    reader = EventTimeReader(EventTime())
    ms, valid = reader.read(np.array([-1, 5]), None, None, None)
    assert valid is not None
    assert (list(valid), ms[1]) == ([False, True], 5)


@pytest.mark.parametrize(
    "text", ["", "stamp", "json:", "json:a.b", "json:$", "json:$..a", "header:", "key:$.a[", "timestamp:x"]
)
def test_a_wrong_place_is_refused_by_name(text: str) -> None:
    with pytest.raises(OptionError, match="option eventTime"):
        event_time_of(text, Unit.MILLISECONDS)


def test_a_path_is_read_in_all_its_spellings() -> None:
    assert event_time_of("json:$.a['b c'][\"d\"][3]", Unit.ISO) == EventTime(
        Place.VALUE, ("a", "b c", "d", 3), Unit.ISO
    )


@pytest.mark.parametrize(
    "text", ["timestamp", "header:at", "json:$.a", "key:$.a.b[3]", "json:$['a b'].c", 'json:$["it\'s"]', "json:$['é']"]
)
def test_an_event_time_is_told_as_the_option_names_it(text):
    assert event_time_of(text, Unit.MILLISECONDS).text == text


@pytest.mark.parametrize("name", ["é", "Δt", "время", "日時"])
def test_a_name_has_letters_of_any_script_and_states_know_its_place_by_the_text_that_they_always_had(name):
    event_time = event_time_of(f"json:$.{name}", Unit.MILLISECONDS)
    assert event_time == event_time_of(f"json:$['{name}']", Unit.MILLISECONDS)
    assert event_time.text == f"json:$['{name}']"
    assert from_values(f"json:$.{name}", Unit.MILLISECONDS, [json.dumps({name: 5}).encode()]) == [5]


@pytest.mark.parametrize(
    ("text", "suggestion"),
    [
        ("json:$.a b", r"\$\['a b'\]"),
        ("json:$.a.@type[0]", r"\$.a\['@type'\]\[0\]"),
        ("key:$.1st", r"\$\['1st'\]"),
    ],
)
def test_a_name_that_needs_quotes_is_told_with_them(text, suggestion):
    with pytest.raises(OptionError, match=rf"a path such as .* is expected; did you mean {suggestion}\?"):
        event_time_of(text, Unit.MILLISECONDS)


@pytest.mark.parametrize("text", ['{"t": 1', '{"t":1731000000000', '{"t": [0, 1', '{"t": -1.5e3', '{"t": nul'])
def test_a_number_that_the_text_cuts_off_is_no_time(text: str) -> None:
    path = "json:$.t[1]" if "[" in text else "json:$.t"
    assert from_values(path, Unit.MILLISECONDS, [text.encode()]) == [None]


@pytest.mark.parametrize("text", ['{"t": 1}', '{"t": 1 ', '{"t": 1,', '{"t": "1"', '{"t": [0, 1]'])
def test_a_number_that_ends_before_the_text_does_is_a_time(text: str) -> None:
    path = "json:$.t[1]" if "[" in text else "json:$.t"
    assert from_values(path, Unit.MILLISECONDS, [text.encode()]) == [1]
