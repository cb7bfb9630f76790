"""The configuration of a join of windows in the design's words, as a plan of the product.

Rule: the words are exchanged, nothing is computed but units: the design counts the retention from the start of the
current window to those of others, and the product from the highest event time to their ends.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from conformance.store_plans import KEEP, ROWS_BY_NUMBER, interval_ms
from keyedwm.operators.join.plan import How
from keyedwm.operators.messages.join.plan import WindowJoinPlan, WindowJoinSide
from keyedwm.operators.messages.retention import Retention
from keyedwm.operators.messages.windows import CompletedBy, hopping, hopping_rows

_NEVER = 1 << 40
EQUAL_WINDOWS = "both sides of a join have the same windows, or one of them is unbounded"
_WHOLE_WINDOW = "a retention is not shorter than a window"
_STREAMS, _SIDE_NAMES = ("orders", "shipments"), ("left", "right")
_RECORD = {"time": pa.int64(), "topic": pa.string(), "partition": pa.int32(), "offset": pa.int64()}


@dataclass(frozen=True, slots=True)
class Windows:
    """The windows of one side."""

    unit: str
    size: int
    advance: int
    align: int

    @classmethod
    def of(cls, config: Mapping) -> Windows | None:
        """Return what is told of a side; None if it is unbounded."""
        if "size" not in config:
            return None
        advance = config.get("advance", config["size"])
        return cls(config.get("unit", "time"), config["size"], advance, config.get("align", 0) % advance)

    @property
    def is_rows(self) -> bool:
        """Whether offsets are counted."""
        return self.unit == "tuple"


@dataclass(frozen=True, slots=True)
class JoinConfig:
    """A vector's configuration and the fields of its steps."""

    settings: Mapping[str, Any]
    steps: Sequence[Mapping]

    @property
    def wants_pairs(self) -> bool:
        """Whether two streams are joined; else a vector tells of one side's messages and windows alone."""
        return "left" in self.settings

    @property
    def sides(self) -> tuple[Windows | None, Windows | None]:
        """The windows of left and right."""
        left = Windows.of(self.settings["left"] if self.wants_pairs else self.settings)
        return left, Windows.of(self.settings.get("right", {}))

    @property
    def windows(self) -> Windows | None:
        """The windows of the join; None if the sides have different ones, or neither has any."""
        different = {one for one in self.sides if one is not None}
        return different.pop() if len(different) == 1 else None

    @property
    def names(self) -> tuple[str, str]:
        """What the sides are called."""
        left, right = (
            self.settings.get(word, {}).get("stream", name) for word, name in zip(_SIDE_NAMES, _STREAMS, strict=True)
        )
        return left, right

    def side_of(self, step: Mapping) -> int | None:
        """Return the number of the side whose message a step is, None if it is another step."""
        for number, side_names in enumerate(zip(_SIDE_NAMES, _STREAMS, self.names, strict=True)):
            if step["do"] in side_names:
                return number
        return 0 if step["do"] == "add_message" else None

    def interval_ms(self, policy: str) -> int | None:
        """Return how often pairs come by a policy, early or late; None: at once, as by default."""
        policy_text = self.settings.get(policy, self.settings.get("emit", ""))
        if (named_ms := interval_ms(policy_text)) is not None:
            return named_ms
        return _NEVER if "disabled" in policy_text else None

    @property
    def beat_ms(self) -> int:
        """Where the beat of the wall clock begins: with the first message if the words say so, else at 0."""
        policy_text = self.settings.get("early", self.settings.get("emit", ""))
        walls = [step["wall"] for step in self.steps if "wall" in step]
        return walls[0] if "from" in policy_text and walls else 0

    def retention(self, windows: Windows) -> tuple[Retention, str]:
        """Return how long messages are kept, and a rule of the product if it cannot be so short."""
        time_ms, count = self.settings.get("retention_time"), self.settings.get("retention_size")
        if windows.is_rows:
            return KEEP if count is None else Retention(max_windows=count), "" if time_ms is None else ROWS_BY_NUMBER
        # A number of windows counts those that are empty, so it is a time from start to start.
        spans = [
            span for span in (time_ms, None if count is None else (count - 1) * windows.advance) if span is not None
        ]
        if not spans:
            return KEEP, ""
        kept_ms = (min(spans) // windows.advance + 1) * windows.advance - windows.size
        return Retention(time_ms=max(kept_ms, windows.size)), _WHOLE_WINDOW if kept_ms < windows.size else ""

    def schemas(self) -> list[pa.Schema]:
        """Return the columns of each side: those joined on, and what its steps carry of the columns that are wanted."""
        on = self.on
        selection = [name for name in self.settings.get("select", ("id", "value", "cost")) if name not in on]
        schemas = []
        for number in range(2):
            side_steps = [step for step in self.steps if self.side_of(step) == number]
            names = [*on, *(name for name in selection if any(name in step for step in side_steps))]
            is_text = {name: any(isinstance(step.get(name), str) for step in self.steps) for name in names}
            kinds = [(name, pa.string() if is_text[name] else pa.int64()) for name in names]
            schemas.append(pa.schema([*kinds, *_RECORD.items()]))
        return schemas

    @property
    def on(self) -> tuple[str, ...]:
        """The columns joined on."""
        on = self.settings.get("on", "id")
        return (on,) if isinstance(on, str) else tuple(on)

    def plan(self, windows: Windows) -> WindowJoinPlan:
        """Return the plan of the product."""
        left, right = (
            WindowJoinSide(name=name, schema=schema, on=self.on, time="time", unbounded=side_windows is None)
            for name, schema, side_windows in zip(self.names, self.schemas(), self.sides, strict=True)
        )
        size, advance = windows.size, windows.advance
        return WindowJoinPlan(
            left=left,
            right=right,
            window=hopping_rows(size, advance) if windows.is_rows else hopping(size, advance, windows.align),
            retention=self.retention(windows)[0],
            full=CompletedBy.MESSAGE,
            early_every_ms=self.interval_ms("early"),
            late_every_ms=None if windows.is_rows else self.interval_ms("late"),
            how=How(self.settings.get("how", "inner")),
        )


def row_of(schema: pa.Schema, values: Mapping) -> pa.Table:
    """Return a message as a table of one row; what is not told of a key is 0, of other columns null."""
    row = {**dict.fromkeys(schema.names), "id": 0, "topic": "t", "partition": 0, **values}
    return pa.table([[row[name]] for name in schema.names], schema=schema)
