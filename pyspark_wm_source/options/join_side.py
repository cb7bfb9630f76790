"""The option joinSide: a side of a join is divided by bucket inside the reading tasks, as values.

Rule: `SideSpec` is what `join` asked for and crosses Spark as text; `SideStage` is what a reading task does.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import pyarrow as pa

from keyedwm.arrow.schema import axis_column
from keyedwm.config.validation import wrong
from keyedwm.core.rows import EVENT_TIME
from keyedwm.operators.buckets import bucket_ids
from keyedwm.operators.join.plan import Axis, JoinSide
from keyedwm.operators.shuffle import SHIPPED
from pyspark_wm_source.options.json_option import json_object

if TYPE_CHECKING:
    from pyspark_wm_source.options.axes import TimeAxis

JOIN_SIDE = "joinSide"


@dataclass(frozen=True, kw_only=True)
class SideSpec:
    """What a join asks of the reading tasks of one side.

    name, number: of the side. columns: what its rows hold beside event times. on: the keys among them. axes: the time
    axes as the source calls them, in the side's order. buckets: how many the keys are spread over.
    """

    name: str
    number: int
    columns: tuple[str, ...]
    on: tuple[str, ...]
    axes: tuple[str, ...]
    buckets: int

    def as_options(self) -> dict[str, str]:
        """Return the option."""
        return {JOIN_SIDE: json.dumps(asdict(self))}

    @staticmethod
    def parse(text: str) -> SideSpec:
        """Read the option's text. Raises OptionError."""
        wanted = "what keyedwm.spark.join over keyedwm.spark.source writes is expected"
        found = json_object(JOIN_SIDE, text, SideSpec.__dataclass_fields__, wanted)
        lists = {name: found[name] for name in ("columns", "on", "axes")}
        texts = [found["name"], *(one for some in lists.values() if isinstance(some, list) for one in some)]
        fits = all(isinstance(some, list) for some in lists.values()) and all(isinstance(one, str) for one in texts)
        numbers = [found["number"], found["buckets"]]
        if not fits or not all(type(one) is int for one in numbers) or found["number"] not in (0, 1):
            raise wrong(JOIN_SIDE, text, "texts, side 0 or 1, and a whole number of buckets are expected")
        if found["buckets"] < 1 or not found["axes"]:
            raise wrong(JOIN_SIDE, text, "at least one bucket and one time axis are expected")
        return SideSpec(**{**found, **{name: tuple(some) for name, some in lists.items()}})


@dataclass(frozen=True, kw_only=True)
class SideStage:
    """What the reading tasks do to their records. columns: the side's and, behind them, the event times as the source
    has them, in the order of `side.times`."""

    side: JoinSide
    number: int
    columns: pa.Schema
    buckets: int
    shipped: pa.Schema = SHIPPED

    @staticmethod
    def of(spec: SideSpec, columns: pa.Schema, axes: Mapping[str, TimeAxis]) -> SideStage:
        """Plan what was asked for. columns, axes: of the source. Raises OptionError for what it does not have."""
        for name in spec.axes:
            if name not in axes:
                raise wrong(JOIN_SIDE, name, f"a time axis of the source is expected: {', '.join(map(repr, axes))}")
        times = [axis_column(EVENT_TIME, name) for name in spec.axes]
        for name in (*spec.columns, *times):
            if name not in columns.names:
                raise wrong(JOIN_SIDE, name, f"a column of the source is expected: {', '.join(columns.names)}")
        payload = pa.schema([columns.field(name) for name in spec.columns])
        known = tuple(Axis(name or spec.name, axes[name].config.key) for name in spec.axes)
        return SideStage(
            side=JoinSide(spec.name, payload, spec.on, known),
            number=spec.number,
            columns=pa.schema([*payload, *(columns.field(name) for name in times)]),
            buckets=spec.buckets,
        )

    @cached_property
    def ids(self) -> list[int]:
        """The ids of the buckets."""
        return bucket_ids(self.buckets)
