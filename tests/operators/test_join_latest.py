"""Rows with the latest change before them, against brute force, however the input is cut, wherever a restart falls."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

import pytest

from keyedwm.operators.join import exchange_side, side_buffer
from keyedwm.operators.join.bounds import Bound
from keyedwm.operators.join.inputs import FORMAT
from keyedwm.operators.join.plan import LEFT, RIGHT, How, JoinPlan
from keyedwm.operators.join.rescale import JoinRescale
from keyedwm.operators.plan_checks import FARTHEST_MS
from keyedwm.operators.state.blobs import read_stored, stored
from keyedwm.operators.state.manifest import MANIFEST
from keyedwm.operators.state.store import StateLimits
from tests.operators.joins import DrivenJoin, Mark, Row, Rows, Step, plan_of, random_steps, row_counts, split_steps

SEEDS = 80
EACH = 20


def latest_plan(how: How = How.LEFT, on: tuple[str, ...] = ("k",)) -> JoinPlan:
    return plan_of([Bound(0, 0, -FARTHEST_MS, 0)], on=on, how=how, latest=True)


def expected(plan: JoinPlan, steps: Iterable[Step]) -> Counter:
    """By brute force: of all changes that were not late, the latest one at or before each row that was not."""
    on_time: list[list[Row]] = [[], []]
    watermarks_ms: dict[int, int] = {}
    for step in steps:
        if isinstance(step, Mark):
            watermarks_ms[step.side] = max(step.time_ms, watermarks_ms.get(step.side, step.time_ms))
        else:
            on_time[step.side] += [
                row
                for row in step.rows
                if row.times[0] is None or row.times[0] >= watermarks_ms.get(step.side, row.times[0])
            ]
    expected_rows: Counter = Counter()
    for row in on_time[LEFT]:
        best: Row | None = None
        for change in on_time[RIGHT]:
            same = all(getattr(row, name) == getattr(change, name) is not None for name in plan.left.on)
            if not same or None in (row.times[0], change.times[0]) or change.times[0] > row.times[0]:
                continue
            if best is None or change.times[0] >= best.times[0]:
                best = change
        if best is not None or plan.how is How.LEFT:
            expected_rows[_result_row(plan, row, best)] += 1
    return expected_rows


def _result_row(plan: JoinPlan, row: Row, change: Row | None) -> tuple:
    values = []
    for one, row_name, change_name in plan.columns:
        holder = row if row_name is not None else change
        name = row_name if row_name is not None else change_name
        values.append(
            (one.name, None if holder is None else getattr(holder, {"v": "value", "w": "value"}.get(name, name)))
        )
    return (*values, ("event_time_l0", row.times[0]), ("event_time_r0", None if change is None else change.times[0]))


def check(seed: int) -> None:
    rng = random.Random(seed)
    plan = latest_plan(rng.choice([How.LEFT, How.INNER]), rng.choice([("k",), ("n",), ("k", "n")]))
    steps = random_steps(rng, plan, rng.randrange(5, 30))
    join = DrivenJoin(plan, restarts=rng.random() < 0.6)
    result_counts: Counter = Counter()
    passed_on: dict[int, int] = {}
    for step in split_steps(rng, steps) if rng.random() < 0.5 else steps:
        rows = row_counts(join.step(step))
        result_counts += rows
        times = [time for row in rows if (time := dict(row)["event_time_l0"]) is not None]
        assert all(time >= passed_on.get(LEFT, time) for time in times)
        passed_on = join.operator.output_watermarks_ms(None)
    assert result_counts + row_counts(join.end()) == expected(plan, steps)


@pytest.mark.parametrize("first", range(0, SEEDS, EACH))
def test_each_row_meets_the_latest_change_at_or_before_it(first):
    for seed in range(first, first + EACH):
        check(seed)


def test_keys_of_equal_hash_are_compared(monkeypatch):
    monkeypatch.setattr(
        "tests.operators.joins.key_hashes", lambda columns, rows: exchange_side.key_hashes(columns, rows) % 2
    )
    monkeypatch.setattr(side_buffer, "key_hashes", lambda columns, rows: exchange_side.key_hashes(columns, rows) % 2)
    for seed in range(20):
        check(seed)


def test_a_row_waits_until_no_change_that_counts_can_come():
    join = DrivenJoin(latest_plan(), restarts=True)
    assert join.step(Rows(LEFT, (Row("a", 1, 1, (10,)),))) == []
    join.step(Rows(RIGHT, (Row("a", 1, 7, (4,)), Row("a", 1, 9, (11,)))))
    assert join.step(Mark(RIGHT, 0, 10)) == []
    join.step(Rows(RIGHT, (Row("a", 1, 8, (10,)),)))
    assert [(row["v"], row["w"]) for row in join.step(Mark(RIGHT, 0, 11))] == [(1, 8)]


def test_without_keys_a_row_meets_the_latest_change_of_all():
    join = DrivenJoin(latest_plan(on=()), restarts=True)
    for at in range(20):
        join.step(Rows(RIGHT, (Row("abc"[at % 3], 1, at, (at,)),)))
        join.step(Mark(LEFT, 0, at))
    join.step(Rows(LEFT, (Row("z", 1, 1, (19,)), Row("z", 1, 2, (-1,)))))
    assert [(row["v"], row["w"]) for row in join.end()] == [(1, 19)]


def test_superseded_changes_are_cleared_away():
    join = DrivenJoin(latest_plan(), restarts=True)
    for at in range(200):
        join.step(Rows(RIGHT, (Row("a", 1, at, (at,)), Row("b", 1, at, (at,)))))
        join.step(Mark(RIGHT, 0, at))
        join.step(Mark(LEFT, 0, at))
    assert join.operator.open_entries < 20
    assert [row["w"] for row in join.step(Rows(LEFT, (Row("a", 1, 1, (199,)),))) + join.end()] == [199]


def test_a_batch_writes_what_it_brings_however_large_the_table_is():
    limits = StateLimits(blob_bytes=32_768)
    join = DrivenJoin(latest_plan(), restarts=True, limits=limits)
    join.step(Rows(RIGHT, tuple(Row("a", n, n, (0,)) for n in range(16_000))))
    large_blobs = {name for name, size in join.store.sizes.items() if size >= 4_096}
    assert len(large_blobs) > limits.fan_out
    for at in range(1, 40):
        before = set(join.store.sizes)
        join.step(Rows(RIGHT, (Row("a", at, at, (at,)),)))
        assert large_blobs <= set(join.store.sizes)
        assert len(set(join.store.sizes) - before) <= 2
        added = [name for name in set(join.store.sizes) - large_blobs if name.startswith("changes")]
        assert len(added) <= limits.fan_out


def as_of_0_3_0(join: DrivenJoin) -> None:
    """Give changes the form of 0.3.0: a blob for each piece, which the manifest lists with its rows."""
    blobs = join.store.blobs
    names = sorted((name for name in blobs if name.startswith("changes")), key=lambda name: (len(name), name))
    pieces = {f"changes-{at}": read_stored(name, blobs.pop(name)) for at, name in enumerate(names)}
    blobs.update({name: stored(name, piece, "zstd") for name, piece in pieces.items()})
    state = json.loads(blobs[MANIFEST])
    rows = [[at, piece.num_rows] for at, piece in enumerate(pieces.values())]
    old = {**{name: state[name] for name in ("received", "waiting")}, "changes": [rows, len(rows), *state["changes"]]}
    blobs[MANIFEST] = replace(FORMAT, version=1).write(join.plan.digest(), old)
    join.operator = join._built()


def move(join: DrivenJoin, *counts: int) -> None:
    """Let the state go to other queries with so many buckets each, the last one with one."""
    buckets = [join.store.blobs]
    for count in counts:
        names = tuple(tuple(name for name in blobs if name != MANIFEST) for blobs in buckets)
        rescale = JoinRescale(
            who="new", plan=join.plan, count=count, digest=join.plan.digest(), description=None, blobs=names,
            states=tuple(json.loads(blobs[MANIFEST]) for blobs in buckets),
        )  # fmt: skip
        pieces = [
            piece
            for number, blobs in enumerate(buckets)
            for name in names[number]
            for piece in rescale.cuts(number, name, blobs[name], None)
        ]
        of_buckets = [[piece for piece in pieces if piece.bucket == number] for number in range(count)]
        buckets = [
            {piece.name: piece.blob for piece in some}
            | {MANIFEST: rescale.manifest_with(None, [(piece.name, piece.entry) for piece in some], number)}
            for number, some in enumerate(of_buckets)
        ]
    (join.store.blobs,) = buckets
    join.operator = join._built()


@pytest.mark.parametrize("few_changes", [0, 10**6])  # rewritten, or read from the blobs of 0.3.0 to the end
@pytest.mark.parametrize("moves", [(), (1,), (2, 1)])  # copied, or cut by key
def test_changes_that_0_3_0_wrote_are_continued_and_move(few_changes, moves):
    limits = StateLimits(few_changes=few_changes)
    new, old = (DrivenJoin(latest_plan(), restarts=True, limits=limits) for _ in range(2))
    for join in (new, old):
        for at in range(10):
            join.step(Rows(RIGHT, tuple(Row(key, 1, at, (at,)) for key in "abc")))
    as_of_0_3_0(old)
    assert {name for name in old.store.blobs if "changes-" in name}
    move(old, *moves)
    later = [Rows(LEFT, tuple(Row(key, 1, 9, (time,)) for key in "abc" for time in (-1, 4, 30))), Mark(LEFT, 0, 5)]
    later += [
        Rows(RIGHT, tuple(Row("a", 1, value, (20,)) for value in range(99))),
        Mark(RIGHT, 0, 8),
        Mark(RIGHT, 0, 50),
    ]
    results = [[join.step(step) for step in later] for join in (new, old)]
    assert results[0] == results[1]
    assert sum(map(len, results[0])) == 9
    assert any("changes-" in name for name in old.store.blobs) == (few_changes > 0 and 2 not in moves)
