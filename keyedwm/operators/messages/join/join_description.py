"""The description of a join of windows; see `messages.description`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from keyedwm.operators.join.plan import How
from keyedwm.operators.messages.join.plan import Emit, Keep, WindowJoinPlan, WindowJoinSide
from keyedwm.operators.messages.store_description import any_retention, describe_window, read_window
from keyedwm.operators.messages.windows import CompletedBy, kind_of
from keyedwm.operators.state.description import columns, schema_of
from keyedwm.operators.state.manifest import ManifestFormat

WINDOW_JOIN = "window_join"
VERSION = 3
FORMAT = ManifestFormat(
    state="window join", version=VERSION, readable=(VERSION,),
    unchanged="windows, sides, their columns, the columns joined on, how, keep, emit, what completes a window, and "
    "whether pairs come early or late ones together",
)  # fmt: skip


def describe(plan: WindowJoinPlan) -> dict[str, Any]:
    """Return the description of a plan, ready for JSON; early, late: whether there is an interval."""
    return {
        "kind": WINDOW_JOIN, "window": describe_window(kind_of(plan.window)), "full": plan.full.value,
        "early": plan.early_every_ms is not None, "late": plan.late_every_ms is not None, "keep": plan.keep.value,
        "how": plan.how.value, "emit": plan.emit.value, "sides": [_described(side) for side in plan.sides],
    }  # fmt: skip


def plan_of(description: Mapping[str, Any]) -> WindowJoinPlan:
    """Return a plan of this description, to list held messages; the retention is not known."""
    left, right = (_side_of(side) for side in description["sides"])
    window = read_window(description["window"])
    return WindowJoinPlan(
        left=left, right=right, window=window, retention=any_retention(window), full=CompletedBy(description["full"]),
        early_every_ms=1 if description["early"] else None, late_every_ms=1 if description["late"] else None,
        keep=Keep(description["keep"]), how=How(description["how"]), emit=Emit(description["emit"]),
    )  # fmt: skip


def _described(side: WindowJoinSide) -> dict[str, Any]:
    return {
        "name": side.name, "unbounded": side.unbounded, "on": list(side.on), "time": side.time,
        "record": list(side.record), **columns(side.schema),
    }  # fmt: skip


def _side_of(description: Mapping[str, Any]) -> WindowJoinSide:
    topic, partition, offset = description["record"]
    return WindowJoinSide(
        name=description["name"], schema=schema_of(description), on=tuple(description["on"]),
        unbounded=description["unbounded"], time=description["time"], topic=topic, partition=partition, offset=offset,
    )  # fmt: skip
