"""What the state of a join of windows holds of one of its sides, put as an aggregate with a store would: see `held`.

Rule: a side's plan and note become those of a store that holds that side alone, which `held` reads; of sessions, which
hold both sides together, the rows of the other side are left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from keyedwm.core.errors import FormatError, OptionError
from keyedwm.windows.columns import contiguous
from keyedwm.windows.store.held import AXES
from keyedwm.windows.store.join.plan import WindowJoinPlan
from keyedwm.windows.store.join.session_operator import PAYLOAD, RECORD, TIME, topic_prefix
from keyedwm.windows.store.plan import OF_SESSIONS

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
    mine = facts["sides"][side[NUMBER]] if "sides" in facts else {}
    axes = {}
    for channel, marks in mine.get("axes", {}).items():
        gone = marks.get("gone")
        # Windows are held whose first slice is, also those that take messages of the other side alone.
        axes[str(int(channel) * side[AXES] + side[NUMBER])] = {
            "horizon": marks.get("horizon"),
            "floor": None if gone is None else gone + size - step,
        }
    return {"channels": mine.get("channels", []), "axes": axes}


def sessions_of(side: Mapping[str, Any], found: pa.Table) -> pa.Table:
    """Return of sessions, as `held_sessions.windows` lists them, what they hold of this side, with its keys' names."""
    prefix = topic_prefix(side[NUMBER])
    rows = found.filter(pc.starts_with(found["topic"], prefix))
    keys, rest = side["by"], found.column_names[found.column_names.index("start") :]
    rows = rows.select([*found.column_names[: len(keys)], *rest]).rename_columns([*keys, *rest])
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
