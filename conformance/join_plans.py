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
_STREAMS, _WORDS = ("orders", "shipments"), ("left", "right")
_RECORD = {"time": pa.int64(), "topic": pa.string(), "partition": pa.int32(), "offset": pa.int64()}


@dataclass(frozen=True, slots=True)
class Windows:
    """The windows of one side."""

    unit: str
    size: int
    advance: int
    align: int

    @classmethod
    def of(cls, told: Mapping) -> Windows | None:
        """Return what is told of a side; None if it is unbounded."""
        if "size" not in told:
            return None
        advance = told.get("advance", told["size"])
        return cls(told.get("unit", "time"), told["size"], advance, told.get("align", 0) % advance)

    @property
    def is_rows(self) -> bool:
        """Whether offsets are counted."""
        return self.unit == "tuple"


@dataclass(frozen=True, slots=True)
class JoinConfig:
    """A vector's configuration and the fields of its steps."""

    told: Mapping[str, Any]
    steps: Sequence[Mapping]

    @property
    def wants_pairs(self) -> bool:
        """Whether two streams are joined; else a vector tells of one side's messages and windows alone."""
        return "left" in self.told

    @property
    def sides(self) -> tuple[Windows | None, Windows | None]:
        """The windows of left and right."""
        left = Windows.of(self.told["left"] if self.wants_pairs else self.told)
        return left, Windows.of(self.told.get("right", {}))

    @property
    def windows(self) -> Windows | None:
        """The windows of the join; None if the sides have different ones, or neither has any."""
        found = {one for one in self.sides if one is not None}
        return found.pop() if len(found) == 1 else None

    @property
    def names(self) -> tuple[str, str]:
        """What the sides are called."""
        left, right = (self.told.get(word, {}).get("stream", name) for word, name in zip(_WORDS, _STREAMS, strict=True))
        return left, right

    def side_of(self, step: Mapping) -> int | None:
        """Return the number of the side whose message a step is, None if it is another step."""
        for number, words in enumerate(zip(_WORDS, _STREAMS, self.names, strict=True)):
            if step["do"] in words:
                return number
        return 0 if step["do"] == "add_message" else None

    def interval_ms(self, policy: str) -> int | None:
        """Return how often pairs come by a policy, early or late; None: at once, as by default."""
        words = self.told.get(policy, self.told.get("emit", ""))
        if (named_ms := interval_ms(words)) is not None:
            return named_ms
        return _NEVER if "disabled" in words else None

    @property
    def beat_ms(self) -> int:
        """Where the beat of the wall clock begins: with the first message if the words say so, else at 0."""
        words = self.told.get("early", self.told.get("emit", ""))
        walls = [step["wall"] for step in self.steps if "wall" in step]
        return walls[0] if "from" in words and walls else 0

    def retention(self, windows: Windows) -> tuple[Retention, str]:
        """Return how long messages are kept, and a rule of the product if it cannot be so short."""
        time_ms, count = self.told.get("retention_time"), self.told.get("retention_size")
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
        wanted = [name for name in self.told.get("select", ("id", "value", "cost")) if name not in on]
        made = []
        for number in range(2):
            mine = [step for step in self.steps if self.side_of(step) == number]
            names = [*on, *(name for name in wanted if any(name in step for step in mine))]
            is_text = {name: any(isinstance(step.get(name), str) for step in self.steps) for name in names}
            kinds = [(name, pa.string() if is_text[name] else pa.int64()) for name in names]
            made.append(pa.schema([*kinds, *_RECORD.items()]))
        return made

    @property
    def on(self) -> tuple[str, ...]:
        """The columns joined on."""
        on = self.told.get("on", "id")
        return (on,) if isinstance(on, str) else tuple(on)

    def plan(self, windows: Windows) -> WindowJoinPlan:
        """Return the plan of the product."""
        left, right = (
            WindowJoinSide(name=name, schema=schema, on=self.on, time="time", unbounded=mine is None)
            for name, schema, mine in zip(self.names, self.schemas(), self.sides, strict=True)
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
            how=How(self.told.get("how", "inner")),
        )


def row_of(schema: pa.Schema, told: Mapping) -> pa.Table:
    """Return a message as a table of one row; what is not told of a key is 0, of other columns null."""
    row = {**dict.fromkeys(schema.names), "id": 0, "topic": "t", "partition": 0, **told}
    return pa.table([[row[name]] for name in schema.names], schema=schema)
