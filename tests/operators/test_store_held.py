"""What a store holds, read from its blobs without the plan, is what the running store says."""

from __future__ import annotations

import json
import pickle
from dataclasses import replace
from io import StringIO

import pyarrow as pa
import pytest
from rich.console import Console

from keyedwm.cli.inspect_state import _table
from keyedwm.cli.query.held_state import summary
from keyedwm.core.errors import OutOfTurnError
from keyedwm.operators.frames.plan import SessionWindow
from keyedwm.operators.messages.bucket_store import BucketStore
from keyedwm.operators.messages.functions import window_function
from keyedwm.operators.messages.read_only_store import Listed, listed_store
from keyedwm.operators.messages.retention import Retention
from keyedwm.operators.messages.store_description import describe
from keyedwm.operators.messages.store_description import plan_of as plan_from
from keyedwm.operators.messages.windows import HoppingWindow, RowWindow, tumbling_key_rows
from keyedwm.operators.state.manifest import MANIFEST
from keyedwm.operators.state.store import MemoryStore
from keyedwm.savepoint_files import OperatorState
from keyedwm.spark.inspect.list_state import together
from keyedwm.windows import WindowOperator
from tests.operators.stored import plan_of, random_messages, split_steps, table

WINDOWS = (HoppingWindow(10, 10), HoppingWindow(10, 3), HoppingWindow(4, 10, 1))
ROWS = (RowWindow(4, 4), RowWindow(5, 3), RowWindow(2, 5))


def play_steps(plan, steps, is_kept) -> tuple[WindowOperator, MemoryStore]:
    store = MemoryStore()
    operator = WindowOperator(plan, store)
    for name, argument in steps:
        kept_argument = table([one for one in argument if is_kept(one)]) if name == "add_message" else argument
        getattr(operator, name)(kept_argument)
        operator.flush()
    return operator, store


def in_first_half(one, window) -> bool:
    """Messages are spread by key, or for windows of rows by channel."""
    return one.topic == "a" if isinstance(window, RowWindow) else one.k == "x"


def kept_for(window) -> Retention:
    return Retention(max_windows=4) if isinstance(window, RowWindow) else Retention(time_ms=60)


def store_listing(plan, store) -> Listed:
    """The store as somebody opens it who has its description and its blobs."""
    return listed_store(json.loads(json.dumps(BucketStore(plan=plan).description())), store)


def rows_of(listing: pa.Table) -> list[tuple]:
    return [tuple(row.values()) for row in listing.to_pylist()]


@pytest.mark.parametrize("by_key", [False, True])
@pytest.mark.parametrize("window", [*WINDOWS, *ROWS], ids=str)
def test_the_windows_and_messages_of_two_buckets_are_those_of_one_store_that_holds_all(window, by_key, seed):
    plan = plan_of(window, retention=kept_for(window))
    steps = split_steps(f"{seed} {window}", random_messages(f"{seed} {window}", 80), watermarks=True)
    halves = [
        store_listing(plan, play_steps(plan, steps, lambda one, half=half: (in_first_half(one, window)) is half)[1])
        for half in (True, False)
    ]
    operator, store = play_steps(plan, steps, lambda _: True)
    actual_windows = rows_of(together([half.windows(by_key=by_key) for half in halves]))
    expected_windows = rows_of(operator.get_windows(-(10**6), 10**6, by_key=by_key))
    assert sorted(actual_windows, key=str) == sorted(expected_windows, key=str)
    assert actual_windows == sorted(actual_windows, key=lambda one: one[1 + by_key : 4 + by_key])
    assert rows_of(store_listing(plan, store).windows(by_key=by_key)) == expected_windows
    assert len(actual_windows) > 2
    actual_messages = [row for half in halves for row in rows_of(half.messages())]
    assert sorted(actual_messages, key=str) == sorted(rows_of(operator.get_messages(-(10**6), 10**6)), key=str)
    assert store_listing(plan, store).oldest_offsets() == {
        channel: offset
        for channel, offset in operator.oldest_offsets().items()
        if offset < operator.next_offsets()[channel]
    }


def test_functions_of_a_user_need_not_be_there_to_list_what_is_held():
    plan = plan_of(WINDOWS[0], aggregates=(("n", window_function(lambda rows: rows.num_rows, pa.int64())),))
    operator, store = play_steps(plan, [("add_message", random_messages(1, 8))], lambda _: True)
    read_plan = pickle.loads(pickle.dumps(plan_from(describe(plan))))  # noqa: S301 (pickled here)
    assert describe(read_plan) == describe(plan)
    assert rows_of(store_listing(plan, store).windows(by_key=False)) == rows_of(operator.get_windows(-(10**6), 10**6))
    with pytest.raises(OutOfTurnError, match="only lists stored messages computes nothing"):
        read_plan.functions[0].of_nothing(1)


@pytest.mark.parametrize("window", [*WINDOWS, *ROWS], ids=str)
def test_the_notes_alone_tell_how_many_windows_messages_and_bytes_are_held(window, seed):
    plan = plan_of(window, retention=kept_for(window))
    steps = split_steps(f"{seed} {window}", random_messages(f"{seed} {window}", 80), watermarks=True)
    operator, store = play_steps(plan, steps, lambda _: True)
    description, facts = BucketStore(plan=plan).description(), json.loads(store.get(MANIFEST))
    store_summary = summary(store.sizes, facts)
    windows = operator.get_windows(-(10**6), 10**6)
    ends = {(row["end"], *((row["topic"], row["partition"]) if plan.is_rows else ())) for row in windows.to_pylist()}
    assert store_summary.frames == len(ends) > 0
    assert store_summary.rows == operator.get_messages(-(10**6), 10**6).num_rows
    assert store_summary.oldest_ms == (None if plan.is_rows else min(windows["start"].to_pylist()))
    assert store_summary.size_bytes == sum(store.sizes.values())
    console = Console(file=StringIO(), width=200)
    state = OperatorState(
        name="medians", axis=0, digest="d", description=description, manifests=[{"blobs": store.sizes}], states=[facts]
    )  # fmt: skip
    console.print(_table(state))
    text = " ".join(console.file.getvalue().replace("┃", " ").replace("│", " ").split())
    assert "bucket watermark windows messages bytes oldest" in text
    assert f" {store_summary.frames} {store_summary.rows} {store_summary.size_bytes} " in text


@pytest.mark.parametrize("window", [HoppingWindow(10, 10), tumbling_key_rows(2), SessionWindow(5)], ids=str)
def test_a_key_that_is_called_as_a_column_of_the_listing_has_another_name_there(window):
    plan = plan_of(window, retention=Retention(max_messages=9))
    renamed_schema = pa.schema([field.with_name("start" if field.name == "k" else field.name) for field in plan.schema])
    operator = WindowOperator(replace(plan, schema=renamed_schema, by=("start",)), MemoryStore())
    operator.add_message(table(random_messages(1, 8)).rename_columns(renamed_schema.names))
    windows = operator.get_windows(-(10**6), 10**6, by_key=True)
    assert windows.column_names[:5] == ["key_start", "start", "end", "topic", "partition"]
    assert set(windows["key_start"].to_pylist()) <= {one.k for one in random_messages(1, 8)}
    assert windows.num_rows > 0
