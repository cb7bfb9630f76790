"""Calls of `keyedwm.spark` with something that is no frame, no session, no query or no place: one sentence each."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from pyspark.sql import SparkSession

import keyedwm.spark as k
from keyedwm.core.errors import KeyedwmError, OptionError

WITHIN = ("0 seconds", "1 hour")


def calls(wrong: object) -> dict:
    """Every call that takes a frame, with a wrong one and all else right."""
    return {
        "events": lambda: k.events(wrong),
        "with_watermark": lambda: k.with_watermark(wrong),
        "rejected": lambda: k.rejected(wrong),
        "aggregate": lambda: k.aggregate(wrong, "page", k.tumbling("1 minute"), {"n": k.count()}),
        "aggregate with a store": lambda: k.aggregate(
            wrong, "page", k.tumbling("1 minute"), {"n": k.count()}, store=k.Store(retention="1 hour")
        ),
        "async_map": lambda: k.async_map(wrong, lambda row: row, "n long"),
        "process": lambda: k.process(wrong, "page", k.Processor, "n long"),
        "process of several": lambda: k.process([wrong, wrong], "page", k.Processor, "n long"),
        "join": lambda: k.join(wrong, wrong, "page", within=WITHIN),
        "join_latest": lambda: k.join_latest(wrong, wrong, "page"),
        "window_join": lambda: k.window_join(
            wrong, wrong, "page", k.tumbling("1 minute"), store=k.Store(retention="1 hour")
        ),
        "start_in_turn": lambda: k.start_in_turn(wrong),
    }


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        pytest.param(name, wrong, id=f"{name}-{type(wrong).__name__}")
        for wrong in (None, "orders", 7, [], pd.DataFrame({"page": ["home"]}))
        for name in calls(None)
        if not (isinstance(wrong, pd.DataFrame) and name in {"events", "rejected"})  # which want columns only
    ],
)
def test_what_is_no_frame_is_refused_in_one_sentence(name, wrong):
    with pytest.raises(KeyedwmError) as refused:
        calls(wrong)[name]()
    assert "\n" not in str(refused.value)
    assert name.split()[0] in str(refused.value)


@pytest.mark.parametrize("wrong", [None, "spark", 7])
def test_what_is_no_session_is_refused_in_one_sentence(wrong, tmp_path):
    for name, call in {
        "source": lambda: k.source(wrong),
        "log_progress": lambda: k.log_progress(wrong),
        "held_windows": lambda: k.held_windows(wrong, str(tmp_path)),
        "oldest_offsets": lambda: k.oldest_offsets(wrong, str(tmp_path)),
        "held_messages": lambda: k.held_messages(wrong, str(tmp_path)),
        "held_rows": lambda: k.held_rows(wrong, str(tmp_path)),
        "savepoint": lambda: k.savepoint(wrong, str(tmp_path), str(tmp_path / "target")),
    }.items():
        with pytest.raises(OptionError) as refused:
            call()
        assert str(refused.value).startswith(f"{name}: spark={wrong!r}: the session that SparkSession.builder gives")


@pytest.mark.parametrize("wrong", [None, "query", 7])
def test_what_is_no_query_is_refused_by_source_progress(wrong):
    with pytest.raises(OptionError, match=r"source_progress: query=.*: a query is expected, as start\(\) gives it"):
        k.source_progress(wrong)


def test_a_query_that_did_not_fail_has_no_reason():
    assert k.reason(None) is None  # what `query.exception()` is


def test_what_is_no_error_is_refused_by_reason():
    with pytest.raises(OptionError, match="reason: 7 is no query, no exception and no text of one"):
        k.reason(7)


@pytest.mark.parametrize("wrong", [None, 7, Path("/data/checkpoint")], ids=repr)
def test_a_checkpoint_that_is_no_text_is_refused(wrong):
    session = SparkSession.__new__(SparkSession)  # nothing is asked of it
    for call in (k.held_windows, k.held_messages, k.held_rows):
        with pytest.raises(OptionError, match="the path of a directory, or an address, is expected, as text"):
            call(session, wrong)
