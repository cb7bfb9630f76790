"""Texts in messages: what others chose is short, on one line and printable."""

from __future__ import annotations

import pytest

from keyedwm.core.text import error_text, listed, nearest, short_repr, words_of


class MuteError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


class Odd:
    def __repr__(self) -> str:
        return "<odd\n  \x1b[31mthing>"


def test_a_value_is_shown_as_python_writes_it():
    assert [short_repr(one) for one in ("a", 7, None, ("k",))] == ["'a'", "7", "None", "('k',)"]


def test_of_a_long_text_the_beginning_is_shown_within_its_quotes():
    assert short_repr("x" * 500, 3) == "'xxx...'"


def test_of_a_long_value_the_beginning_is_shown():
    assert short_repr(list(range(100)), 10) == "[0, 1, 2, ..."


@pytest.mark.parametrize("value", ["two\nlines", "\x1b[31mred", Odd()])
def test_a_value_stands_on_one_line_and_sends_nothing_to_a_terminal(value):
    assert short_repr(value).isprintable()


def test_an_error_is_its_kind_and_its_words_on_one_line():
    assert error_text(ValueError("a\n  b\x1b")) == r"ValueError: a b\x1b"
    assert words_of(ValueError("x" * 500), 3) == "xxx..."
    assert error_text(KeyboardInterrupt()) == "KeyboardInterrupt"


def test_an_error_that_cannot_word_itself_still_has_a_kind():
    assert error_text(MuteError()) == "MuteError: it cannot say more"


def test_a_list_ends_with_how_many_more_there_are():
    assert listed(["a", "b"]) == "a, b"
    assert listed(["a", "b", "c"], 2) == "a, b and 1 more"


@pytest.mark.parametrize(
    ("name", "known", "nearest_name"),
    [
        ("confluent-avro", ["avro-confluent", "json-confluent", "protobuf-confluent"], "avro-confluent"),
        ("lagWatermark", ["watermarkDelay", "watermarkLag"], "watermarkLag"),
        ("watermarklag", ["watermarkLag"], "watermarkLag"),
        ("__", ["--"], None),
        ("x", ["avro-confluent"], None),
    ],
)
def test_the_nearest_name_has_the_same_words_in_another_order_or_else_similar_letters(name, known, nearest_name):
    assert nearest(name, known) == nearest_name
