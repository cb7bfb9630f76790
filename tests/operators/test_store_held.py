"""What a store holds, read from its blobs without the plan, is what the running store says."""

from __future__ import annotations

import json
from dataclasses import replace
from io import StringIO

import pyarrow as pa
import pytest
from rich.console import Console

from keyedwm.cli.inspect_state import _table
from keyedwm.operators.frames.plan import SessionWindow
from keyedwm.operators.messages import held, held_by_key
from keyedwm.operators.messages.retention import Retention
from keyedwm.operators.messages.staged import StagedStore
from keyedwm.operators.messages.windows import HoppingWindow, RowWindow, tumbling_key_rows
from keyedwm.operators.state.note import NOTE
from keyedwm.operators.state.store import MemoryStore
from keyedwm.savepoint import OperatorState
from keyedwm.windows import WindowOperator
from tests.operators.stored import cut, plan_of, random_messages, table

WINDOWS = (HoppingWindow(10, 10), HoppingWindow(10, 3), HoppingWindow(4, 10, 1))
ROWS = (RowWindow(4, 4), RowWindow(5, 3), RowWindow(2, 5))


def played(plan, steps, mine) -> tuple[WindowOperator, MemoryStore]:
    store = MemoryStore()
    operator = WindowOperator(plan, store)
    for name, given in steps:
        taken = table([one for one in given if mine(one)]) if name == "add_message" else given
        getattr(operator, name)(taken)
        operator.flush()
    return operator, store


def in_first_half(one, window) -> bool:
    """Messages are spread by key, or for windows of rows by channel."""
    return one.topic == "a" if isinstance(window, RowWindow) else one.k == "x"


def kept_for(window) -> Retention:
    return Retention(max_windows=4) if isinstance(window, RowWindow) else Retention(time_ms=60)


@pytest.mark.parametrize("window", [*WINDOWS, *ROWS], ids=str)
def test_the_windows_of_two_buckets_are_those_of_one_store_that_holds_all(window, seed):
    plan = plan_of(window, retention=kept_for(window))
    steps = cut(f"{seed} {window}", random_messages(f"{seed} {window}", 80), watermarks=True)
    halves = [
        played(plan, steps, lambda one, half=half: (in_first_half(one, window)) is half)[1] for half in (True, False)
    ]
    told = json.loads(json.dumps(StagedStore(plan=plan).told()))
    notes = [json.loads(store.get(NOTE)) for store in halves]
    blobs = [{name: blob for name, blob in store.blobs.items() if name.startswith(held.INDEX)} for store in halves]
    found = [
        (one.start, one.end, one.topic, one.partition, one.first_offset, one.last_offset, one.messages, one.bytes,
         one.is_complete)
        for one in held.windows(told, zip(notes, blobs, strict=True))
    ]  # fmt: skip
    operator, store = played(plan, steps, lambda _: True)
    wanted = [tuple(row.values()) for row in operator.get_windows(-(10**6), 10**6).to_pylist()]
    assert sorted(found) == sorted(wanted)
    assert found == sorted(found, key=lambda one: one[1:4])
    assert len(found) > 2
    kept = [(name, blob) for name, blob in store.blobs.items() if name.startswith(held.MESSAGES)]
    read = [tuple(row.values()) for name, blob in kept for row in held.messages(name, blob).to_pylist()]
    assert sorted(read, key=str) == sorted(
        (tuple(row.values()) for row in operator.get_messages(-(10**6), 10**6).to_pylist()), key=str
    )


@pytest.mark.parametrize("window", [*WINDOWS, *ROWS], ids=str)
def test_what_the_messages_of_all_blobs_tell_of_windows_by_key_is_what_the_store_lists(window, seed):
    plan = plan_of(window, retention=kept_for(window))
    steps = cut(f"{seed} {window}", random_messages(f"{seed} {window}", 80), watermarks=True)
    operator, store = played(plan, steps, lambda _: True)
    told, facts = json.loads(json.dumps(StagedStore(plan=plan).told())), json.loads(store.get(NOTE))
    found: dict[tuple, list] = {}
    for name, blob in store.blobs.items():
        if name.startswith(held.MESSAGES):
            for key, start, end, topic, partition, first, last, count, size, complete in map(
                dict.values, held_by_key.parts(told, facts, name, blob).to_pylist()
            ):
                mine = found.setdefault((key, start, end, topic, partition), [first, last, 0, 0, complete])
                mine[:4] = min(mine[0], first), max(mine[1], last), mine[2] + count, mine[3] + size
    wanted = [tuple(row.values()) for row in operator.get_windows(-(10**6), 10**6, by_key=True).to_pylist()]
    assert sorted(((*place, *rest) for place, rest in found.items()), key=str) == sorted(wanted, key=str)
    assert len(wanted) > 2


@pytest.mark.parametrize("window", [*WINDOWS, *ROWS], ids=str)
def test_the_notes_alone_tell_how_many_windows_messages_and_bytes_are_held(window, seed):
    plan = plan_of(window, retention=kept_for(window))
    steps = cut(f"{seed} {window}", random_messages(f"{seed} {window}", 80), watermarks=True)
    operator, store = played(plan, steps, lambda _: True)
    told, facts = StagedStore(plan=plan).told(), json.loads(store.get(NOTE))
    found = held.summary(told, store.sizes, facts)
    windows = operator.get_windows(-(10**6), 10**6)
    ends = {(row["end"], *((row["topic"], row["partition"]) if plan.is_rows else ())) for row in windows.to_pylist()}
    assert found.frames == len(ends) > 0
    assert found.rows == operator.get_messages(-(10**6), 10**6).num_rows
    assert found.oldest_ms == (None if plan.is_rows else min(windows["start"].to_pylist()))
    assert found.size_bytes == sum(store.sizes.values())
    shown = Console(file=StringIO(), width=200)
    state = OperatorState(
        name="medians", axis=0, digest="d", told=told, notes=[{"blobs": store.sizes}], facts=[facts]
    )  # fmt: skip
    shown.print(_table(state))
    text = " ".join(shown.file.getvalue().replace("┃", " ").replace("│", " ").split())
    assert "bucket watermark windows messages bytes oldest" in text
    assert f" {found.frames} {found.rows} {found.size_bytes} " in text


def test_a_store_without_messages_holds_nothing():
    told = StagedStore(plan=plan_of(WINDOWS[0], retention=Retention(time_ms=60))).told()
    assert held.summary(told, {}, {}) == held.Summary(frames=0, rows=0, size_bytes=0, oldest_ms=None)


@pytest.mark.parametrize("window", [HoppingWindow(10, 10), tumbling_key_rows(2), SessionWindow(5)], ids=str)
def test_a_key_that_is_called_as_a_column_of_the_listing_has_another_name_there(window):
    plan = plan_of(window, retention=Retention(max_messages=9))
    renamed = pa.schema([field.with_name("start" if field.name == "k" else field.name) for field in plan.schema])
    operator = WindowOperator(replace(plan, schema=renamed, by=("start",)), MemoryStore())
    operator.add_message(table(random_messages(1, 8)).rename_columns(renamed.names))
    listed = operator.get_windows(-(10**6), 10**6, by_key=True)
    assert listed.column_names[:5] == ["key_start", "start", "end", "topic", "partition"]
    assert set(listed["key_start"].to_pylist()) <= {one.k for one in random_messages(1, 8)}
    assert listed.num_rows > 0
