"""Triggers as vectors tell them, and what they are in the product."""

from __future__ import annotations

import pytest

from conformance.trigger_plans import Panes, panes_of
from conformance.trigger_words import Trigger, read_trigger
from keyedwm.operators.panes import Early


def test_a_trigger_is_a_tree_of_triggers():
    assert read_trigger("repeat(any(count(3), watermark))") == Trigger(
        "repeat", parts=(Trigger("any", parts=(Trigger("count", 3), Trigger("watermark"))),)
    )


def test_parts_of_the_watermark_have_names():
    read = read_trigger("watermark(early=count(2), late=repeat(count(3)))")
    assert read.part("early") == Trigger("count", 2)
    assert read.part("late") == Trigger("repeat", parts=(Trigger("count", 3),))


def test_a_time_after_the_first_element_may_be_told_in_words():
    read = read_trigger("repeat(5 ms after first element of pane) or-finally watermark")
    assert read.name == "or-finally"
    assert read.parts == (Trigger("repeat", parts=(Trigger("since_first", 5),)), Trigger("watermark"))


@pytest.mark.parametrize("text", ["count(", "count(2))", "any(,)", "when it pleases, or not!"])
def test_words_that_are_no_trigger_are_one_of_that_name(text):
    assert read_trigger(text) == Trigger(text)


@pytest.mark.parametrize(
    ("text", "panes"),
    [
        ("default", Panes()),
        ("watermark", Panes(is_done=True)),
        ("watermark(early=count(2), late=count(1))", Panes(early=Early(rows=2))),
        ("watermark(early=repeat(count(2)), late=count(3))", Panes(early=Early(rows=2), late_rows=3)),
        ("repeat(any(count(3), watermark))", Panes(early=Early(rows=3))),
        ("repeat(count(2))", Panes(early=Early(rows=2), has_end=False)),
        ("any(count(2), watermark)", Panes(early=Early(rows=2), is_once=True, stops=True, is_done=True)),
        ("repeat(count(2)) or-finally watermark", Panes(early=Early(rows=2), is_done=True)),
        (
            "each(repeat(5 ms after first element of pane) or-finally watermark, repeat(since_first(25)))",
            Panes(early=Early(every_ms=5), late_ms=25),
        ),
        ("all(count(2), watermark)", Panes(early=Early(rows=1), has_end=False, is_known=False)),
    ],
)
def test_a_trigger_is_settings_of_the_product(text, panes):
    actual = panes_of({"trigger": text})
    assert actual == panes or (not panes.is_known and not actual.is_known)


def test_the_end_of_a_window_of_samza_always_speaks():
    assert panes_of({"clock": "processing", "early": "count(2)"}) == Panes(
        early=Early(rows=2), is_once=True, is_done=True
    )
