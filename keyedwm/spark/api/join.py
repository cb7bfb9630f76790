"""`join`: two streams of in-band rows, matched by key and event time; each side keeps its own watermarks.
`join_latest`: each row of a stream with the latest change of its key at or before it.

Rule: every fault of a call is an error here, before a row is read. The plan is rows → rows by bucket
(`stage_one`, for each side) → one group per bucket (`bucket`) → result columns (`unpack`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from keyedwm.config.validation import choice, duration_ms
from keyedwm.core.errors import OptionError
from keyedwm.core.window_rules import LatePolicy
from keyedwm.operators.join.bounds import Bound
from keyedwm.operators.join.plan import HOW_INSTEAD, LEFT, RIGHT, How, JoinPlan
from keyedwm.operators.plan_checks import FARTHEST_MS
from keyedwm.spark.api.common_arguments import CommonArguments
from keyedwm.spark.api.two_sides import check_names, joined, sides_of
from keyedwm.spark.hosting.join_rows import Side
from keyedwm.spark.hosting.source_description import Source

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Ends = tuple[str | None, str | None]


def join(
    left: DataFrame | Source,
    right: DataFrame | Source,
    on: str | Sequence[str] | Mapping[str, str],
    *,
    within: Ends | None = None,
    bounds: Mapping[tuple[str, str], Ends] | None = None,
    how: str = "inner",
    condition: str | None = None,
    late: str = "drop",
    names: tuple[str, str] = ("left", "right"),
    buckets: int | None = None,
    name: str | None = None,
    continue_from: str | None = None,
) -> DataFrame:
    """Join the event rows of two streams that have equal keys and event times close to each other.

    left, right: rows of the keyedwm source, of an aggregate or of another join, control rows included; or a
    `keyedwm.spark.source`. on: key columns, or left column → right column; null equals nothing. within: (least, most),
    how much later the right row's event time is than the left row's, for sides with one time axis each. An example is
    `("-5 minutes", "1 hour")`. bounds: the same for pairs of axes, such as `{("ordered", "shipped"): ("0 seconds", "1
    hour")}`; an end may be None, but some pair must bound each direction. how: `inner`, `left`, `right`, `full`,
    `left_semi` or `left_anti`. condition: the text of a further comparison of columns. late: what becomes of rows below
    their own side's watermark (`drop`, `emit`, `fail`). names: names of the sides, for a time axis without a name and
    for columns of equal names. buckets: how many groups the keys are spread over, by default
    spark.sql.shuffle.partitions; fixed in a checkpoint. name: of the result's channels (`NAME#BUCKET`) and metrics.
    continue_from: a savepoint; the join continues from the state of the savepoint's join of the same name, or of its
    only join.

    Returns the key columns, the other columns of both sides, `event_time_AXIS` of every axis, `watermark_AXIS` of every
    axis that some bound points at, and `control`. So results can be joined, aggregated or sunk. With `late="emit"`
    there is a column `late`, too. Raises OptionError and InputError for what is wrong with the call, in one sentence.
    """
    common = CommonArguments("join", buckets, name, continue_from)
    check_names(names, "join")
    kind = choice("how", how, How, HOW_INSTEAD)
    policy = choice("late", late, LatePolicy)
    pairs_of = _bounds_by_axes(within, bounds)
    axes = [None if pairs_of is None else [pair[side] for pair in pairs_of] for side in (LEFT, RIGHT)]
    sides = sides_of((left, right), names, on, axes, "join")
    bound_of = {(sides[LEFT].only_axis, sides[RIGHT].only_axis): within} if pairs_of is None else pairs_of
    plan = JoinPlan(
        left=sides[LEFT].side,
        right=sides[RIGHT].side,
        bounds=tuple(_bound(sides, pair, ends) for pair, ends in bound_of.items()),
        how=kind,
        condition=condition,
        late=policy,
    )
    return joined(sides, plan, common)


def _bounds_by_axes(within: object, bounds: object) -> Mapping[tuple[str, str], Ends] | None:
    """Return the bounds by pairs of axes, None if `within` is given."""
    if within is not None and bounds is not None:
        raise OptionError(
            "join: within and bounds are both given: give within=(least, most) alone for sides of one time axis each, "
            "or bounds={(left axis, right axis): (least, most)} alone"
        )
    if within is None and bounds is None:
        raise OptionError(
            "join: give either within=(least, most), for sides of one time axis each, or bounds={(left axis, right "
            "axis): (least, most)}: without a bound in time rows could never be forgotten"
        )
    if bounds is None:
        return None
    fits = isinstance(bounds, Mapping) and all(
        isinstance(pair, tuple) and len(pair) == 2 and all(isinstance(axis, str) for axis in pair) for pair in bounds
    )
    if not fits or not bounds:
        raise OptionError(
            f"join: bounds={bounds!r}: a mapping is expected, such as "
            f"{{('ordered', 'shipped'): ('0 seconds', '1 hour')}}"
        )
    return bounds  # type: ignore[return-value]  # checked above


def _bound(sides: Sequence[Side], pair: tuple[str, str], ends: object) -> Bound:
    at = [side.number_of(axis) for side, axis in zip(sides, pair, strict=True)]
    if not isinstance(ends, (tuple, list)) or len(ends) != 2:
        raise OptionError(f"join: the bound of {pair} is {ends!r}, two durations are expected: (least, most)")
    return Bound(at[LEFT], at[RIGHT], *map(_signed_ms, ends))


def _signed_ms(text: object) -> int | None:
    if text is None:
        return None
    plain = str(text).strip()
    return -duration_ms("bound", plain[1:]) if plain.startswith("-") else duration_ms("bound", plain)


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
    change, `inner` does not. axis, changes_axis: the time axis of each side, if it has several; other axes of the
    stream are ordinary columns of the result. A row is emitted when the changes' watermark is above its event time. If
    changes have the same key and event time, the last to arrive counts.

    Returns the key columns, the other columns of both sides, `event_time_AXIS` of both, `watermark_AXIS` of the stream,
    and `control`. Raises OptionError and InputError for what is wrong with the call, in one sentence.
    """
    caller = "join_latest"
    common = CommonArguments(caller, buckets, name, continue_from)
    check_names(names, caller)
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
    return joined(sides, plan, common)
