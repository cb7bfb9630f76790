"""`join_latest`: each row of a stream with the latest change of its key at or before it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from keyedwm.config.validation import choice
from keyedwm.core.errors import OptionError
from keyedwm.core.window_rules import LatePolicy
from keyedwm.operators.join.bounds import Bound
from keyedwm.operators.join.plan import LEFT, RIGHT, How, JoinPlan
from keyedwm.operators.plan_checks import FARTHEST_MS
from keyedwm.spark.api.two_sides import check_names, joined, sides_of
from keyedwm.spark.hosting.source_description import Source

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_HOW = (How.LEFT, How.INNER)


def join_latest(
    stream: DataFrame | Source,
    changes: DataFrame | Source,
    on: str | Sequence[str] | Mapping[str, str],
    *,
    how: str = "left",
    axis: str = "",
    changes_axis: str = "",
    late: str = "drop",
    names: tuple[str, str] = ("stream", "changes"),
    buckets: int | None = None,
    name: str | None = None,
    continue_from: str | None = None,
) -> DataFrame:
    """Join each event row of a stream with the latest change of its key at or before the row's event time.

    stream, changes, on, late, names, buckets, name, continue_from: as for `join`. how: `left` keeps rows that have no
    change, `inner` does not. axis, changes_axis: the time axis of each side, when it has several; other axes of the
    stream are ordinary columns of the result. A row leaves when the changes' watermark is above its event time; of
    changes of one key and event time the one that came last counts.

    Returns the key columns, the other columns of both sides, `event_time_AXIS` of both, `watermark_AXIS` of the stream,
    and `control`. Raises OptionError and InputError for what is wrong with the call, in one sentence.
    """
    caller = "join_latest"
    check_names(names, name, continue_from, caller)
    kind = choice("how", how, How)
    if kind not in _HOW:
        raise OptionError(f"join_latest: how={how!r}: left or inner is expected")
    axes = [None if one == "" else [one] for one in (axis, changes_axis)]
    sides = sides_of((stream, changes), names, on, axes, caller)
    for one, argument in zip(sides, ("axis", "changes_axis"), strict=True):
        if len(one.axes) > 1:
            raise OptionError(
                f"join_latest: {one.side.name} has several time axes ({', '.join(one.axes)}): say which by {argument}="
            )
    plan = JoinPlan(
        left=sides[LEFT].side,
        right=sides[RIGHT].side,
        bounds=(Bound(0, 0, -FARTHEST_MS, 0),),
        how=kind,
        late=choice("late", late, LatePolicy),
        latest=True,
    )
    return joined(sides, plan, buckets, name, continue_from)
