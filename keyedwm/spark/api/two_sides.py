"""Shared by `join` and `join_latest`: their arguments, and the steps from the rows of both sides to the results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from keyedwm.core.errors import OptionError
from keyedwm.core.rows import AXIS_KEY
from keyedwm.operators.join.plan import LEFT, RIGHT, JoinPlan
from keyedwm.spark.api.common_arguments import CommonArguments, check_each
from keyedwm.spark.hosting.join_rows import Side, shipped_rows, side_of
from keyedwm.spark.hosting.lineage import marked
from keyedwm.spark.hosting.source_description import stream_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def joined(sides: Sequence[Side], plan: JoinPlan, common: CommonArguments) -> DataFrame:
    """Return the results of a plan over the rows of both sides."""
    ids = common.bucket_ids(sides[LEFT].frame, one=not plan.left.on)
    axes = tuple(tuple(axis.key for axis in side.axes) for side in plan.sides)
    called = tuple(f"{side.name} side" for side in plan.sides)
    frames = [side.frame for side in sides]
    result = common.results(shipped_rows(sides, ids), plan, ids, axes, frames, called=called)
    for axis, column in zip(plan.passed_on, plan.watermark_columns, strict=True):
        result = result.withMetadata(column, {AXIS_KEY: axis})
    return marked(result, sides[LEFT].panes)


def sides_of(
    streams_or_frames: Sequence[object],
    names: Sequence[str],
    on: object,
    axes: Sequence[Sequence[str] | None],
    caller: str,
) -> list[Side]:
    """Return both sides. on: the user's argument. Raises OptionError and InputError for sides that cannot be joined."""
    streams = [stream_of(one, called, caller) for one, called in zip(streams_or_frames, names, strict=True)]
    keys = keys_of(on, caller)
    takes_panes = caller == "join_latest"  # each pane is a row; of changes at one event time the last counts
    return [side_of(streams[at], names[at], keys[at], axes[at], takes_panes=takes_panes) for at in (LEFT, RIGHT)]


def keys_of(on: object, caller: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the key columns of both sides."""
    if isinstance(on, Mapping):
        left, right = tuple(on), tuple(on.values())
    else:
        left = right = (on,) if isinstance(on, str) or not isinstance(on, Sequence) else tuple(on)
    check_each("on", (*left, *right), caller)
    if isinstance(on, Mapping) and not on:
        raise OptionError(f"{caller}: on={{}} names no column: give {{left: right}}, or () for rows of every key")
    twice = next((one for names in (left, right) for one in names if names.count(one) > 1), None)
    if twice is not None:
        raise OptionError(f"{caller}: on={on!r} names the column {twice!r} twice: name it once")
    return left, right


def check_names(names: object, caller: str) -> None:
    """Raise OptionError unless these are two names that sides can have."""
    fits = isinstance(names, (tuple, list)) and len(names) == 2 and all(isinstance(one, str) and one for one in names)
    if not fits or names[0].lower() == names[1].lower():  # type: ignore[index]
        raise OptionError(
            f"{caller}: names={names!r}: two different texts are expected, such as ('orders', 'shipments')"
        )
    if any("`" in one or "." in one for one in names):  # type: ignore[attr-defined]
        raise OptionError(
            f"{caller}: names={names!r}: columns are called by them, so they cannot hold a backtick or a dot"
        )
