"""The stage of a join's side: reading tasks divide its rows by bucket (`stage`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from keyedwm.arrow.schema import US_PER_MS, axis_column
from keyedwm.config.validation import wrong
from keyedwm.core.rows import EVENT_TIME
from keyedwm.operators.join.exchange_side import ExchangeSide
from keyedwm.operators.join.plan import Axis, JoinInputSpec
from pyspark_wm_source.options.stage import (
    STAGE,
    SourceColumns,
    Stage,
    StageSpec,
    are_texts,
    axis_of,
    check_fields,
)

if TYPE_CHECKING:
    from keyedwm.arrow.rows import Events, RowBuilder


@dataclass(frozen=True, kw_only=True)
class SideSpec(StageSpec):
    """The stage of one side of a join in the reading tasks.

    name, number: of the side. columns: the columns of its rows, without event times. on: the keys among them. axes: the
    source's names of the time axes, in the side's order.
    """

    kind = "join"
    name: str
    number: int
    columns: tuple[str, ...]
    on: tuple[str, ...]
    axes: tuple[str, ...]

    def description(self) -> dict[str, Any]:
        """Return all but the kind, ready for JSON."""
        return asdict(self)

    @classmethod
    def of(cls, description: Mapping[str, Any], text: str) -> SideSpec:
        """Return the stage of a description; see `StageSpec`."""
        check_fields(description, [one.name for one in fields(cls)], text)
        lists = {name: description[name] for name in ("columns", "on", "axes")}
        if (
            not isinstance(description["name"], str)
            or not all(map(are_texts, lists.values()))
            or not description["axes"]
        ):
            raise wrong(STAGE, text, "a name, columns, keys and at least one time axis are expected, as texts")
        return cls(**{**description, **{name: tuple(some) for name, some in lists.items()}})

    def stage(self, source: SourceColumns) -> SideStage:
        """Return the step of the reading tasks; see `StageSpec`."""
        axes = tuple(Axis(name or self.name, axis_of(source, name).config.key) for name in self.axes)
        times = [axis_column(EVENT_TIME, name) for name in self.axes]
        available = source.every if source.selected is None else source.selected

        for name in (*self.columns, *times):
            if name not in available.names:
                raise wrong(STAGE, name, f"a column of the source is expected: {', '.join(available.names)}")
        payload = pa.schema([available.field(name) for name in self.columns])
        return SideStage(
            columns=pa.schema([*payload, *(available.field(name) for name in times)]),
            shipped=JoinInputSpec(self.name, payload, self.on, axes).shipped,
            buckets=self.buckets,
            number=self.number,
        )


@dataclass(frozen=True, kw_only=True)
class SideStage(Stage):
    """The stage that returns whole rows of a side. columns: the side's, then the source's columns of event times."""

    shipped: ExchangeSide

    def rows(self, events: Events, builder: RowBuilder) -> pa.RecordBatch:
        """Return the side's columns, then event times in ms. A time outside the range of timestamps is null."""
        rows = builder.events(events)
        first = len(self.columns) - len(self.shipped.times)
        times = [pc.divide(time.cast(pa.int64()), US_PER_MS) for time in rows.columns[first:]]
        return pa.RecordBatch.from_arrays([*rows.columns[:first], *times], schema=self.shipped.schema)
