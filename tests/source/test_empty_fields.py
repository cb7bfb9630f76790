"""Fields that no record has: one warning, with the path that was meant or what is there."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from keyedwm.arrow.rows import Events
from keyedwm.config.places import field_of
from keyedwm.core.places import Field
from pyspark_wm_source.task import empty_fields
from pyspark_wm_source.task.empty_fields import Asker, with_warnings
from pyspark_wm_source.task.items import EventRun

VALUE = b'{"amount": 12.5, "id": "x", "city": {"name": "Ulm"}, "list": [1, 2], "none": null}'


@pytest.fixture(autouse=True)
def _no_names_seen(monkeypatch):
    monkeypatch.setattr(empty_fields, "_warned", set())


def field(text: str) -> Field:
    return field_of("columns", text, ("key", "value"))


def run(*values: bytes | None, key: bytes | None = None) -> EventRun:
    count = len(values)
    return EventRun(
        events=Events(
            topic="t", partition=3, count=count, key=pa.array([key] * count, pa.binary()),
            value=pa.array(values, pa.binary()), headers=None, offset=np.arange(count), timestamp_ms=np.zeros(count),
            timestamp_type=0, event_ms={},
        )
    )  # fmt: skip


def said_of(caplog, text: str, *runs: EventRun) -> list[str]:
    assert list(with_warnings(runs, [field(text)], Asker.COLUMNS)) == list(runs)
    return caplog.messages


NONE_OF_THEM = (
    "t-3: {} is null in all of the 10 records in which option columns looked for it first, so its column is null "
    "there; the path is in none of them: "
)


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("json:$.amuont::double", "did you mean json:$.amount?"),
        ("json:$.Amount::double", "did you mean json:$.amount?"),
        ("json:$.ctiy.name", "did you mean json:$.city.name?"),
        ("json:$.city.nmae", "did you mean json:$.city.name?"),
        ("json:$.weight", "json:$ has the members amount, city, id, list, none"),
        ("json:$.list[2]", "json:$.list is a list of at most 2 elements, which are json:$.list[0] and so on"),
        ("json:$.list.a", "json:$.list is a list of at most 2 elements, which are json:$.list[0] and so on"),
        ("json:$.id.a", "json:$.id is neither an object nor a list"),
        ("key:$.id", "check that the records are JSON"),
    ],
)
def test_a_path_that_no_record_has_is_told_with_what_is_there(caplog, text, advice):
    (message,) = said_of(caplog, text, run(*[VALUE] * 10, key=b"k"), run(*[VALUE] * 10, key=b"k"))
    assert message == NONE_OF_THEM.format(field(text).text) + advice


@pytest.mark.parametrize(
    ("text", "runs"),
    [
        ("json:$.amount", [run(*[VALUE] * 10)]),
        ("json:$.none::bigint", [run(*[VALUE] * 10)]),  # there, and null
        ("json:$.none", [run(*[VALUE] * 10)]),
        ("json:$.rare", [run(*[VALUE] * 9, b'{"rare":1}')]),
        ("json:$.rare", [run(*[VALUE] * 9), run(*[VALUE] * 9, None, None)]),  # too few to say
        ("json:$.rare", [run(*[b'{"rare":1}'] * 10), run(*[VALUE] * 10)]),  # the first ones had it
        ("value::bigint", [run(*[VALUE] * 10)]),
    ],
)
def test_nothing_is_said_of_a_field_that_may_be_right(caplog, text, runs):
    assert said_of(caplog, text, *runs) == []


def test_a_type_that_no_value_reads_as_is_told(caplog):
    (message,) = said_of(caplog, "json:$.amount::bigint", run(*[VALUE] * 10, *[b"{}"] * 5))
    assert message.endswith(
        "so its column is null there; 10 of them have it, and none of these values reads as bigint: check the type"
    )


def test_names_of_others_forge_no_line_and_fill_none(caplog):
    value = b'{"' + b"n" * 500 + b'": 1, "a\\n26/11/22 ERROR forged": 2}'
    (message,) = said_of(caplog, "json:$.weight", run(*[value] * 1_500))
    assert message.isprintable()
    assert len(message) < 400
    assert "all of the 1000 records" in message
