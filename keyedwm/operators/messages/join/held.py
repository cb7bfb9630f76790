"""What the state of a join of windows holds of one of its sides, put as an aggregate with a store would: see `held`.

Rule: a side's plan and note become those of a store that holds that side alone, which `held` reads; of sessions, which
hold both sides together, the rows of the other side are left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from keyedwm.arrow.columns import contiguous
from keyedwm.core.errors import FormatError, OptionError
from keyedwm.operators.messages.held import AXES, is_rows
from keyedwm.operators.messages.join.plan import WindowJoinPlan
from keyedwm.operators.messages.join.session_operator import PAYLOAD, RECORD, TIME, topic_prefix
from keyedwm.operators.messages.marks import OF_SESSIONS
from keyedwm.operators.messages.windows import Full

SIDES = "sides"
NUMBER = "number"
# The number of the axis in a blob's name. Axes alternate between the sides.
AXIS = "^[a-z]+-([0-9]+)"


def told_of_sides(plan: WindowJoinPlan) -> dict[str, dict[str, Any]]:
    """Return for each side, by its name, what an aggregate with a store tells of its plan, ready for JSON."""
    found = {}
    for number, side in enumerate(plan.sides):
        grid = None if plan.is_sessions else plan.grid_of_side(number)
        found[side.name] = {
            NUMBER: number,
            "store": [str(plan.window), str(plan.is_rows), *([OF_SESSIONS] if plan.is_sessions else [])],
            "grid": grid and [grid.size, grid.step, grid.origin],
            "by": list(side.on),
            "columns": list(side.record),
            AXES: len(plan.sides),
            "full": str(plan.full),
            "both": plan.both_windowed and not plan.is_rows,
            "record": list(RECORD if plan.is_sessions else side.record),
            "time": TIME if plan.is_sessions else side.time,
        }
    return found


def sides_of(told: Mapping[str, Any], who: str) -> dict[str, Any]:
    """Return what the plan of a join tells of its sides, by name; who: the checkpoint and the join, for errors."""
    if SIDES not in told:
        raise FormatError(
            f"{who}: its state does not tell of its sides, so an earlier keyedwm wrote it: let its query run one batch "
            "with this one"
        )
    return dict(told[SIDES])


def told_of(told: Mapping[str, Any], side: str | None, who: str) -> dict[str, Any]:
    """Return what the plan of a join tells of a side; raise OptionError if it has none of that name."""
    sides = sides_of(told, who)
    if side not in sides:
        known = " or ".join(map(repr, sides))
        raise OptionError(f"{who}: side={side!r}: it is a window_join: give the name of one of its sides, {known}")
    return dict(sides[side])


def facts_of(side: Mapping[str, Any], facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return a bucket's note as a store of this side alone would have it; side: as `told_of` gives it."""
    if side["grid"] is None:
        return dict(facts)
    size, step, _ = side["grid"]
    sides = facts.get(SIDES) or [{}] * side[AXES]
    mine, channels = sides[side[NUMBER]], sides[side[NUMBER]].get("channels", [])
    axes = {}
    for channel, marks in mine.get("axes", {}).items():
        gone = marks.get("gone")
        # Windows are held whose first slice is, also those that take messages of the other side alone.
        floors = [] if gone is None else [gone + size - step]
        if side.get("both") and (passed := _passed_by_all(sides, channel)) is not None:
            floors.append(passed)
        axes[str(int(channel) * side[AXES] + side[NUMBER])] = {
            "horizon": _counted(side, channels[int(channel)]) if is_rows(side) else marks.get("horizon"),
            "floor": max(floors, default=None),
        }
    return {"channels": channels, "axes": axes}


def _passed_by_all(sides: Sequence[Mapping[str, Any]], channel: str) -> int | None:
    """The end of the last window that no side takes messages for; None if every one is taken by a side."""
    floors = [one.get("axes", {}).get(channel, {}).get("floor") for one in sides]
    return None if None in floors else min(floors)


def _counted(side: Mapping[str, Any], channel: Sequence[Any]) -> int:
    """How far the offsets of a channel have come, which completes windows of rows: with the message that fills one, or
    with the one past its end.
    """
    return int(channel[3]) - (side.get("full") == str(Full.MESSAGE))


def sessions_of(side: Mapping[str, Any], found: pa.Table) -> pa.Table:
    """Return of sessions, as `held_sessions.windows` lists them, what they hold of this side."""
    prefix = topic_prefix(side[NUMBER])
    rows = found.filter(pc.starts_with(found["topic"], prefix))
    topics = pc.utf8_slice_codeunits(rows["topic"], len(prefix))
    return rows.set_column(rows.column_names.index("topic"), "topic", topics)


def messages_of(side: Mapping[str, Any], rows: pa.Table) -> pa.Table:
    """Return of the messages of sessions those of this side, as they came."""
    number = side[NUMBER]
    mine = contiguous(rows.filter(pc.equal(rows["side"], number))[PAYLOAD[number]])
    return pa.Table.from_arrays(mine.flatten(), schema=pa.schema(list(mine.type)))


def is_half(told: Mapping[str, Any]) -> bool:
    """Return whether this is told of a side whose messages lie among those of the other one."""
    return NUMBER in told and told["grid"] is None
