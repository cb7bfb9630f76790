"""The kinds of window that the laws are proved for: windows, the settings of each seed, and the scalar model.

A new kind of window needs one entry in KINDS.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from keyedwm.core.window_rules import Touching
from keyedwm.operators.frames.plan import SessionWindow, SlidingWindow
from keyedwm.operators.messages.on_demand import OnDemandWindow
from keyedwm.operators.messages.plan import StorePlan
from keyedwm.operators.messages.retention import Retention
from keyedwm.operators.messages.windows import (
    CompletedBy,
    HoppingWindow,
    KeyRowWindow,
    RowWindow,
    SessionRowWindow,
    session_rows,
)
from keyedwm.operators.panes import Early, EveryBy
from tests.operators.laws.grid import GridModel, RowGridModel
from tests.operators.laws.key_rows import KeyRowModel, SessionRowModel
from tests.operators.laws.on_demand import OnDemandModel
from tests.operators.laws.scalar import ScalarModel
from tests.operators.laws.sessions import SessionModel
from tests.operators.stored import KEEP_ALL, plan_of, random_messages, split_steps

# A step: the name of a call, its argument, and the wall clock then.
Step = tuple[str, Any, int]
Settings = dict[str, Any]


@dataclass(frozen=True)
class Kind:
    """settings: of a seed, for the law of the model. retention: of plans
    that are compared with themselves."""

    name: str
    model: Callable[[StorePlan], ScalarModel]
    windows: Sequence[Any]
    settings: Callable[[int, Any], Settings]
    retention: Retention
    fulls: Sequence[CompletedBy] = (CompletedBy.WATERMARK,)
    by_key: bool = False  # each key has windows of its own
    by_channel: bool = False  # each topic and partition has windows of its own
    joins: bool = False  # windows become one when a message lies between them

    def plan(self, seed: int, window: object, full: CompletedBy) -> StorePlan:
        return plan_of(
            window, **({} if full is CompletedBy.WATERMARK else {"full": full}), **self.settings(seed, window)
        )


def grid(seed: int, _window: object) -> Settings:
    limits = (KEEP_ALL, Retention(time_ms=15), Retention(max_windows=3), Retention(max_messages=12, time_ms=30))
    panes: Settings = {"early": Early(rows=2)} if seed % 2 else {}
    panes |= ({"late_every_ms": 9}, {"late_rows": 2}, {})[seed % 3]
    return {"retention": limits[seed % 4], "accumulating": seed % 5 > 1, **panes}


def rows(seed: int, _window: object) -> Settings:
    limits = (KEEP_ALL, Retention(max_windows=2), Retention(max_messages=7), Retention(max_windows=3, max_messages=9))
    return {"retention": limits[seed % 4], **({"early": Early(rows=2)} if seed % 3 == 1 else {})}


def rows_of_key(seed: int, _window: object) -> Settings:
    return {
        "retention": (KEEP_ALL, Retention(max_messages=9), Retention(max_messages=6), Retention(max_bytes=400))[
            seed % 4
        ]
    }


def sessions(seed: int, _window: object) -> Settings:
    limits = (
        KEEP_ALL, Retention(time_ms=15), Retention(max_messages=12), Retention(max_windows=4),
        Retention(time_ms=60, max_messages=25), Retention(max_bytes=500),
    )  # fmt: skip
    panes: tuple[Settings, ...] = (
        {}, {"early": Early(rows=2)}, {"late_rows": 2}, {"late_every_ms": 9, "late_by": EveryBy.EVENT},
        {"late_every_ms": 7}, {"early": Early(every_ms=5)}, {"early": Early(every_ms=5, by=EveryBy.EVENT)},
    )  # fmt: skip
    return {"retention": limits[seed % len(limits)], **panes[seed % len(panes)]}


def on_demand(seed: int, window: OnDemandWindow) -> Settings:
    return {"retention": Retention(time_ms=window.size_ms + (0, 8, 60)[seed % 3])}


GRIDS = (
    HoppingWindow(10, 10),
    HoppingWindow(10, 5, 2),
    HoppingWindow(10, 3),  # the step does not divide the size
    HoppingWindow(4, 10, 1),  # there are gaps
    SlidingWindow(12, 4, 1),
)
ROWS = (RowWindow(4, 4), RowWindow(5, 3), RowWindow(2, 5), RowWindow(1, 1))
KEY_ROWS = tuple(KeyRowWindow(size, step) for size, step in ((3, 3), (4, 2), (5, 3), (2, 5), (1, 1)))
SESSIONS = tuple(SessionWindow(gap, touching) for touching in Touching for gap in (1, 4, 12))
SESSION_ROWS: tuple[SessionRowWindow, ...] = tuple(session_rows(between) for between in (0, 1, 2, 5, 20))
ON_DEMAND = tuple(OnDemandWindow(size_ms, f"n >= {least}") for size_ms, least in ((10, 6), (1, 4), (7, 3), (25, 8)))

KINDS = (
    Kind("grid", GridModel.of, GRIDS, grid, Retention(time_ms=20), tuple(CompletedBy)),
    Kind("rows", RowGridModel.of, ROWS, rows, KEEP_ALL, tuple(CompletedBy), by_channel=True),
    Kind(
        "rows of a key",
        KeyRowModel.of,
        KEY_ROWS,
        rows_of_key,
        KEEP_ALL,
        tuple(CompletedBy),
        by_key=True,
        by_channel=True,
    ),
    Kind("session", SessionModel.of, SESSIONS, sessions, Retention(time_ms=30), by_key=True, joins=True),
    Kind("session of rows", SessionRowModel.of, SESSION_ROWS, rows_of_key, KEEP_ALL, by_key=True, by_channel=True),
    Kind("on demand", OnDemandModel.of, ON_DEMAND, on_demand, Retention(time_ms=30), by_key=True),
)
CASES = [(kind, window, full) for kind in KINDS for window in kind.windows for full in kind.fulls]


def case_id(part: object) -> str:
    """Of a part of a case, for the names of tests."""
    return getattr(part, "name", None) or str(part)


def steps(seed: object, count: int, *, has_clock: bool = True, channels: int = 3) -> list[Step]:
    """Messages and watermarks, and the wall clock beside, which moves with the messages, by less or more."""
    rng, now_ms, clock_steps = random.Random(f"clock {seed}"), 0, []
    for name, argument in split_steps(f"{seed}", random_messages(f"{seed}", count, channels=channels), watermarks=True):
        now_ms += rng.choice([0, 1, 3, 10])
        clock_steps.append((name, argument, now_ms))
        if has_clock and rng.random() < 0.3:
            now_ms += 1
            clock_steps.append(("timeout", now_ms, now_ms))
    return clock_steps
