"""Random joins: plans over one table shape, steps of rows and watermarks, and the answer by brute force."""

from __future__ import annotations

import contextlib
import random
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from typing import Any

import pyarrow as pa

from keyedwm.core.errors import OptionError
from keyedwm.core.window_rules import LatePolicy
from keyedwm.operators.join.bounds import Bound
from keyedwm.operators.join.exchange_side import HASH, key_hashes
from keyedwm.operators.join.plan import LEFT, RIGHT, Axis, How, JoinInputSpec, JoinPlan
from keyedwm.operators.protocol import Operator, operator_of
from keyedwm.operators.state.store import MemoryStore, StateLimits
from tests.operators.laws.small import SMALL

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
SCHEMAS = (
    pa.schema([("k", pa.string()), ("n", pa.int64()), ("v", pa.int64())]),
    pa.schema([("k", pa.string()), ("n", pa.int64()), ("w", pa.int64())]),
)
CONDITIONS = (None, None, "v < w", "NOT v = w OR v IS NULL")


@dataclass(frozen=True)
class Row:
    k: str | None
    n: int
    value: int | None
    times: tuple[int | None, ...]


@dataclass(frozen=True)
class Rows:
    side: int
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class Mark:
    side: int
    key: int
    time_ms: int


Step = Rows | Mark


def plan_of(
    bounds: Sequence[Bound], axes: tuple[int, int] = (1, 1), on: Sequence[str] = ("k",), **settings: Any
) -> JoinPlan:
    """A plan over SCHEMAS; axes: how many each side has, called l0, l1 and r0, r1."""
    sides = [
        JoinInputSpec(name, schema, tuple(on), tuple(Axis(f"{name[0]}{at}", at) for at in range(count)))
        for name, schema, count in zip(("left", "right"), SCHEMAS, axes, strict=True)
    ]
    return JoinPlan(left=sides[0], right=sides[1], bounds=tuple(bounds), **settings)


def random_plan(rng: random.Random) -> JoinPlan:
    """A plan whose bounds do not contradict each other."""
    plan = None
    while plan is None:
        with contextlib.suppress(OptionError):  # bounds that contradict each other
            plan = _random_plan(rng)
    return plan


def _random_plan(rng: random.Random) -> JoinPlan:
    axes = rng.choice([(1, 1), (1, 1), (2, 1), (1, 2), (2, 2)])
    low = rng.randrange(-12, 8)
    bounds = {(0, 0): Bound(0, 0, low, low + rng.choice([0, 1, 5, 12]))}
    for pair in {(axes[0] - 1, 0), (0, axes[1] - 1), (axes[0] - 1, axes[1] - 1)} - {(0, 0)}:
        ends = sorted(rng.randrange(-15, 15) for _ in range(2))
        bounds[pair] = Bound(*pair, rng.choice([None, ends[0]]), rng.choice([None, ends[1]]))
    settings = {
        "how": rng.choice(list(How)),
        "condition": rng.choice(CONDITIONS),
        "late": rng.choice([LatePolicy.DROP, LatePolicy.EMIT]),
        "on": rng.choice([("k",), ("n",), ("k", "n"), ()]),
    }
    return plan_of(list(bounds.values()), axes, **settings)


def random_steps(rng: random.Random, plan: JoinPlan, count: int) -> list[Step]:
    """Rows about a time that goes on, each side at its own pace, some late; a side may stop sending watermarks."""
    steps: list[Step] = []
    now = [0, rng.choice([0, 0, 15])]
    idle = rng.choice([None, None, None, LEFT, RIGHT])
    for at in range(count):
        side = rng.randrange(2)
        now[side] += rng.randrange(6)
        if rng.random() < 0.6:
            steps.append(Rows(side, tuple(_row(rng, plan, side, now[side]) for _ in range(rng.randrange(1, 6)))))
        elif side != idle or at < count // 2:
            key = rng.choice(plan.sides[side].axes).key
            steps.append(Mark(side, key, now[side] - rng.randrange(8)))
    return steps


def _row(rng: random.Random, plan: JoinPlan, side: int, now: int) -> Row:
    times = tuple(None if rng.random() < 0.02 else now - rng.randrange(-3, 9) for _ in plan.sides[side].axes)
    return Row(rng.choice([None, *"aabbcd"]), rng.randrange(3), rng.choice([None, 1, 2, 3]), times)


def table(plan: JoinPlan, side: int, rows: Sequence[Row]) -> pa.Table:
    """Rows as they come to the operator."""
    one = plan.sides[side]
    columns = {
        "k": pa.array([row.k for row in rows], pa.string()),
        "n": pa.array([row.n for row in rows], pa.int64()),
        one.schema.names[2]: pa.array([row.value for row in rows], pa.int64()),
    }
    keys = [columns[name].fill_null("" if name == "k" else 0) for name in one.on]
    is_null = [any(columns[name][at].as_py() is None for name in one.on) for at in range(len(rows))]
    hashes = pa.array(key_hashes(keys, len(rows)))
    columns[HASH] = pa.array([None if null else value for null, value in zip(is_null, hashes.to_pylist(), strict=True)])
    for at, name in enumerate(one.times):
        columns[name] = pa.array([row.times[at] for row in rows], pa.int64())
    schema = one.exchange_schema
    return pa.table([columns[field.name].cast(field.type) for field in schema], schema=schema)


class DrivenJoin:
    """An operator over a store; `restarts`: it is built anew before every step."""

    def __init__(self, plan: JoinPlan, *, restarts: bool = False, limits: StateLimits = SMALL) -> None:
        self.plan, self._restarts = plan, restarts
        self.store = MemoryStore(limits=limits)
        self.operator = self._built()
        self.late_rows = 0

    def step(self, step: Step) -> list[dict[str, Any]]:
        late_before = self.operator.late_rows
        if isinstance(step, Rows):
            outputs = list(self.operator.on_rows(step.side, table(self.plan, step.side, step.rows), None))
        else:
            outputs = list(self.operator.on_watermark(step.side, step.key, step.time_ms))
        self.late_rows += self.operator.late_rows - late_before
        if self._restarts:
            self.restart()
        return [row for one in outputs for row in one.rows.to_pylist()]

    def restart(self) -> None:
        self.drain()
        self.operator = self._built()

    def _built(self) -> Operator:
        return operator_of(self.plan, self.store)

    def drain(self) -> None:
        changes = self.operator.drain()
        for name in changes.removed:
            del self.store.blobs[name]
        self.store.blobs.update(changes.blobs)

    def end(self) -> list[dict[str, Any]]:
        return [row for one in self.operator.on_end() for row in one.rows.to_pylist()]


def expected(plan: JoinPlan, steps: Iterable[Step]) -> Counter:
    """By brute force: every row is late or not when it comes; then all pairs, and who is in none."""
    on_time: list[list[Row]] = [[], []]
    expected_rows: Counter = Counter()
    watermarks_ms: dict[tuple[int, int], int] = {}
    for step in steps:
        if isinstance(step, Mark):
            at = step.side, step.key
            watermarks_ms[at] = max(step.time_ms, watermarks_ms.get(at, step.time_ms))
            continue
        for row in step.rows:
            late = any(
                time is not None and time < watermarks_ms.get((step.side, at), time)
                for at, time in enumerate(row.times)
            )
            if not late:
                on_time[step.side].append(row)
            elif plan.late is LatePolicy.EMIT and (step.side == LEFT or plan.pairs_leave):
                expected_rows[_result_row(plan, *_with_null_side(step.side, row), late=True)] += 1
    matched_rows: list[set[int]] = [set(), set()]
    for at_left, left in enumerate(on_time[LEFT]):
        for at_right, right in enumerate(on_time[RIGHT]):
            if _fits(plan, left, right):
                matched_rows[LEFT].add(at_left)
                matched_rows[RIGHT].add(at_right)
                if plan.pairs_leave:
                    expected_rows[_result_row(plan, left, right)] += 1
    for side in (LEFT, RIGHT):
        for at, row in enumerate(on_time[side]):
            semi = side == LEFT and plan.how is How.LEFT_SEMI and at in matched_rows[LEFT]
            if semi or (plan.pads(side) and at not in matched_rows[side]):
                expected_rows[_result_row(plan, *_with_null_side(side, row))] += 1
    return expected_rows


def _fits(plan: JoinPlan, left: Row, right: Row) -> bool:
    if any(getattr(left, name) is None or getattr(left, name) != getattr(right, name) for name in plan.left.on):
        return False
    if None in left.times or None in right.times:
        return False
    for bound in plan.bounds:
        apart = right.times[bound.right] - left.times[bound.left]
        if (bound.low_ms is not None and apart < bound.low_ms) or (bound.high_ms is not None and apart > bound.high_ms):
            return False
    v, w = left.value, right.value
    if plan.condition == "v < w":
        return v is not None and w is not None and v < w
    if plan.condition is not None:
        return v is None or (w is not None and v != w)
    return True


def _with_null_side(side: int, row: Row) -> tuple[Row | None, Row | None]:
    return (row, None) if side == LEFT else (None, row)


def _result_row(plan: JoinPlan, left: Row | None, right: Row | None, *, late: bool = False) -> tuple:
    values = []
    for one, left_name, right_name in plan.columns:
        row, name = (left, left_name) if left is not None and left_name is not None else (right, right_name)
        values.append((one.name, None if row is None or name is None else _value(row, name)))
    if plan.late is LatePolicy.EMIT:
        values.append(("late", late))
    for axis in plan.result_axes:
        row = left if axis < len(plan.left.axes) else right
        time = None if row is None else row.times[axis - plan.first_axis(int(axis >= len(plan.left.axes)))]
        values.append((f"event_time_{plan.axes[axis].name}", time))
    return tuple(values)


def _value(row: Row, name: str) -> Any:
    return row.value if name in "vw" else getattr(row, name)


def row_counts(rows: Iterable[dict[str, Any]]) -> Counter:
    """Results as they are compared: times in ms."""
    return Counter(
        tuple(
            (name, (value - EPOCH) // timedelta(milliseconds=1) if isinstance(value, datetime) else value)
            for name, value in row.items()
        )
        for row in rows
    )


def split_steps(rng: random.Random, steps: Sequence[Step]) -> Iterator[Step]:
    """The same steps, rows cut into runs at random."""
    for step in steps:
        if isinstance(step, Mark):
            yield step
            continue
        rest_rows = list(step.rows)
        while rest_rows:
            count = rng.randrange(1, len(rest_rows) + 1)
            yield replace(step, rows=tuple(rest_rows[:count]))
            rest_rows = rest_rows[count:]
