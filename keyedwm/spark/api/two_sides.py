"""Shared by `join` and `join_latest`: their arguments, and the steps from the rows of both sides to the results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from keyedwm.config.validation import whole
from keyedwm.core.errors import OptionError
from keyedwm.core.rows import AXIS_KEY
from keyedwm.operators.buckets import bucket_ids
from keyedwm.operators.join.plan import LEFT, RIGHT, JoinPlan
from keyedwm.spark.hosting.bucket_batch import BucketLayout
from keyedwm.spark.hosting.build_plan import build_results
from keyedwm.spark.hosting.join_rows import Side, shipped_rows, side_of
from keyedwm.spark.hosting.lineage import marked
from keyedwm.spark.hosting.source_description import Source, stream_of
from keyedwm.spark.setup.conf import PARTITIONS, check_provider

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def joined(
    sides: Sequence[Side], plan: JoinPlan, buckets: int | None, name: str | None, savepoint: str | None
) -> DataFrame:
    """Return the results of a plan over the rows of both sides; buckets, name, savepoint: as they were given."""
    bucket_count = sides[LEFT].frame.sparkSession.conf.get(PARTITIONS) if buckets is None else buckets
    count = whole("buckets", str(bucket_count)) if plan.left.on else 1  # without keys there is one bucket
    layout = BucketLayout(
        name=name or f"{'latest' if plan.latest else 'join'}-{plan.digest()[:6]}",
        ids=tuple(bucket_ids(count)),
        axes=tuple(tuple(axis.key for axis in side.axes) for side in plan.sides),
        kind=plan.kind,
        called=tuple(f"{side.name} side" for side in plan.sides),
    )
    result = build_results(shipped_rows(sides, layout.ids), plan, layout, savepoint, [side.frame for side in sides])
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
    """Return both sides; on: as it was given. Raises OptionError and InputError for what cannot be joined."""
    streams = [stream_of(one, called, caller) for one, called in zip(streams_or_frames, names, strict=True)]
    first = streams[LEFT]
    check_provider(first.spark if isinstance(first, Source) else first.sparkSession, caller)
    keys = keys_of(on, caller)
    takes_panes = caller == "join_latest"  # a row each of the stream; of changes at one event time the last counts
    return [side_of(streams[at], names[at], keys[at], axes[at], takes_panes=takes_panes) for at in (LEFT, RIGHT)]


def keys_of(on: object, caller: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the key columns of both sides."""
    if isinstance(on, Mapping):
        left, right = tuple(on), tuple(on.values())
    else:
        left = right = (on,) if isinstance(on, str) or not isinstance(on, Sequence) else tuple(on)
    for one in (*left, *right):
        if not isinstance(one, str):
            raise OptionError(f"{caller}: on={one!r}: the names of columns are expected; compute others before")
    if isinstance(on, Mapping) and not on:
        raise OptionError(f"{caller}: on={{}} names no column: give {{left: right}}, or () for rows of every key")
    twice = next((one for names in (left, right) for one in names if names.count(one) > 1), None)
    if twice is not None:
        raise OptionError(f"{caller}: on={on!r} names the column {twice!r} twice: name it once")
    return left, right


def check_names(names: object, name: object, savepoint: object, caller: str) -> None:
    """Raise OptionError for names of sides, of the join and of a savepoint that are none."""
    fits = isinstance(names, (tuple, list)) and len(names) == 2 and all(isinstance(one, str) and one for one in names)
    if not fits or names[0].lower() == names[1].lower():  # type: ignore[index]
        raise OptionError(
            f"{caller}: names={names!r}: two different texts are expected, such as ('orders', 'shipments')"
        )
    if any("`" in one or "." in one for one in names):  # type: ignore[attr-defined]
        raise OptionError(
            f"{caller}: names={names!r}: columns are called by them, so they cannot hold a backtick or a dot"
        )
    if name is not None and not (isinstance(name, str) and name):
        raise OptionError(f"{caller}: name={name!r}: a text is expected, or leave it out")
    if savepoint is not None and not isinstance(savepoint, str):
        raise OptionError(f"{caller}: continue_from={savepoint!r}: the place of a savepoint is expected, or none")
