"""A side of a join from a frame: its time axes, its other columns, and the rows that it ships to the buckets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from keyedwm.arrow.schema import CONTROL_TYPE, axis_column
from keyedwm.core.errors import InputError, OptionError
from keyedwm.core.rows import AXIS_KEY, CONTROL, EVENT_TIME, REJECTED, VALUE, WATERMARK
from keyedwm.core.text import nearest
from keyedwm.operators.join.plan import LEFT, RIGHT, Axis, JoinInputSpec
from keyedwm.operators.panes import RepeatedTotals
from keyedwm.operators.results import HIDDEN_PREFIX
from keyedwm.operators.shuffle import EXCHANGE_SCHEMA
from keyedwm.spark.arguments import analysed
from keyedwm.spark.hosting.lineage import check_lineage
from keyedwm.spark.hosting.source_description import Source, fields_read
from keyedwm.spark.hosting.stage_one import CONTROL_TEXT, StageOne
from keyedwm.spark.hosting.staged_rows import (
    arrow_schema,
    check_collation,
    columns_of,
    rejected_type,
    ship,
    timed_rows,
    unnamed,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True)
class Side:
    """A frame and its side of a join. axes: the side's axes in order, named as in the frame's columns.

    read: the source that the frame loads, None for another frame: the tasks of a read divide the rows by bucket.
    panes: why the rows cannot be added up, None if they can.
    """

    frame: DataFrame
    side: JoinInputSpec
    axes: tuple[str, ...]
    read: Source | None = None
    panes: RepeatedTotals | None = None

    @property
    def only_axis(self) -> str:
        """The name of the one axis; raise OptionError if there are several."""
        if len(self.axes) > 1:
            raise OptionError(
                f"join: the {self.side.name} side has several time axes ({', '.join(self.axes)}), so within= does not "
                f"say which is meant: give bounds={{(left axis, right axis): (least, most)}}"
            )
        return self.side.axes[0].name

    def number_of(self, axis: str) -> int:
        """Return the number of an axis within the side. The side's name is that of an axis without a name."""
        names = self.axes if axis in self.axes else [one.name for one in self.side.axes]
        return list(names).index(axis)

    def shipped(self, number: int, ids: Sequence[int]) -> DataFrame:
        """Return the side's rows for the shuffle. number: the side's. ids: the buckets'."""
        times = dict(zip(self.side.times, self.axes, strict=True))
        return ship(self.read or self.frame, self.side.shipped, times, ids, number=number)


def shipped_rows(sides: Sequence[Side], ids: Sequence[int]) -> DataFrame:
    """Return the rows of both sides for the shuffle; a frame that is joined with itself is read once."""
    left, right = sides
    if left.frame is not right.frame:
        return left.shipped(LEFT, ids).union(right.shipped(RIGHT, ids))
    from pyspark.sql.pandas.types import from_arrow_schema

    times = {
        axis: f"{HIDDEN_PREFIX}time{number}" for number, axis in enumerate(dict.fromkeys([*left.axes, *right.axes]))
    }
    timed = timed_rows(left.frame, {name: axis for axis, name in times.items()})
    each = [(*one.side.schema.names, *(times[axis] for axis in one.axes)) for one in sides]
    back = [REJECTED] if rejected_type(left.frame) else []
    names = list(dict.fromkeys([*each[LEFT], *each[RIGHT], *back, CONTROL_TEXT]))
    inputs = {number: one.side.shipped for number, one in enumerate(sides)}
    stage = StageOne(inputs, tuple(ids), bool(back), tuple(tuple(map(names.index, of_side)) for of_side in each))
    return unnamed(timed, names).mapInArrow(stage, from_arrow_schema(EXCHANGE_SCHEMA))


def side_of(
    data: DataFrame | Source, called: str, on: Sequence[str], axis_names: Sequence[str] | None, *, takes_panes: bool
) -> Side:
    """Return the side of a frame, or of a read that is not loaded.

    called: the side's name. axis_names: the side's axes, None for all; the frame's other axes are ordinary columns.
    takes_panes: whether the rows may be early or late panes.

    Raises InputError or OptionError for a frame that cannot be joined.
    """
    read = data if isinstance(data, Source) else None
    frame = data.load() if isinstance(data, Source) else data
    panes = _check_rows(frame, called, takes_panes=takes_panes)
    known = _known_axes(frame, called)
    side_axes = (
        known if axis_names is None else list(dict.fromkeys(_axis_of(axis, known, called) for axis in axis_names))
    )
    reserved = {
        CONTROL,
        *([REJECTED] if rejected_type(frame) else []),
        *(axis_column(WATERMARK, axis) for axis in known),
    }
    reserved |= {axis_column(EVENT_TIME, axis) for axis in side_axes}
    payload = columns_of(frame, [name for name in frame.columns if name not in reserved])
    _check_on(frame, payload.columns, called, on)
    axes = tuple(
        Axis(axis or called, frame.schema[axis_column(WATERMARK, axis)].metadata.get(AXIS_KEY, 0)) for axis in side_axes
    )
    for axis in side_axes:
        _check_axis(frame, axis, called)
    side = JoinInputSpec(called, arrow_schema(payload), tuple(on), axes, () if read is None else fields_read(read))
    return Side(frame, side, tuple(side_axes), read, panes)


def _check_rows(frame: DataFrame, called: str, *, takes_panes: bool) -> RepeatedTotals | None:
    from pyspark.sql.pandas.types import from_arrow_type

    if not analysed(lambda: frame.isStreaming, "join"):
        raise InputError(
            f"join: the {called} side is a batch read, which has no watermarks: read it with spark.readStream (and "
            f"trigger(availableNow=True)), or join it with Spark's own join"
        )
    panes = check_lineage(frame, f"join: the {called} side", takes_panes=takes_panes)
    if CONTROL not in frame.columns or frame.schema[CONTROL].dataType != from_arrow_type(CONTROL_TYPE):
        raise InputError(
            f"join: the {called} side has no control rows (columns {', '.join(frame.columns)}): it must be rows of the "
            f"keyedwm source, read as a stream with emitControl=true and the column {CONTROL!r} kept"
        )
    return panes


def _known_axes(frame: DataFrame, called: str) -> list[str]:
    """Return the axes of a frame, "" for one without a name."""
    names = [name for name in frame.columns if name == WATERMARK or name.startswith(f"{WATERMARK}_")]
    axes = [name.removeprefix(WATERMARK).removeprefix("_") for name in names]
    known = [axis for axis in axes if axis_column(EVENT_TIME, axis) in frame.columns]
    if not known:
        raise InputError(
            f"join: the {called} side has no time axis, that is no columns {EVENT_TIME} and {WATERMARK} (it has "
            f"{', '.join(frame.columns)}): keep them when columns are chosen"
        )
    return known


def _axis_of(axis: str, known: Sequence[str], called: str) -> str:
    """Return the axis as the columns name it. The side's name means its only axis, if this has no name."""
    if not isinstance(axis, str):
        raise OptionError(f"join: {axis!r} of the {called} side: the name of a time axis is expected, as text")
    if axis in known:
        return axis
    if axis == called and list(known) == [""]:
        return ""
    names = [one or called for one in known]
    hint = nearest(axis, names)
    advice = f"did you mean {hint!r}?" if hint else f"it has {', '.join(names)}"
    raise OptionError(f"join: the {called} side has no time axis {axis!r}; {advice}")


def _check_axis(frame: DataFrame, axis: str, called: str) -> None:
    column = axis_column(WATERMARK, axis)
    if axis and AXIS_KEY not in frame.schema[column].metadata:
        raise InputError(
            f"join: column {column!r} of the {called} side does not know its watermark key: keep the source's own "
            f"column, not a copy or an expression"
        )
    type_name = frame.schema[axis_column(EVENT_TIME, axis)].dataType.typeName()
    if type_name != "timestamp":
        raise InputError(
            f"join: the column {axis_column(EVENT_TIME, axis)!r} of the {called} side is of type {type_name}, it must "
            "be a timestamp, as the source has it"
        )


def _check_on(frame: DataFrame, payload: Sequence[str], called: str, on: Sequence[str]) -> None:
    for column in on:
        if column in payload:
            check_collation(frame, column, f"join: {column!r} of the {called} side")
            continue
        if column in frame.columns:
            raise OptionError(
                f"join: {column!r} of the {called} side is a time or control column, which cannot be a key"
            )
        hint = nearest(column, payload)
        advice = f"did you mean {hint!r}?" if hint else f"it has {', '.join(payload)}"
        if VALUE in payload:
            advice += "; fields of JSON are columns that the source's option columns names, such as json:$.id"
        raise OptionError(f"join: the {called} side has no column {column!r} to join on; {advice}")
