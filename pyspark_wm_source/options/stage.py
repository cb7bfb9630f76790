"""The options frame, by and aggregates: stage one of `aggregate` inside the reading tasks, as values.

Rule: `StageSpec` is what was asked for and crosses Spark as text; `Stage` is the plan that a reading task runs.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import pyarrow as pa

from keyedwm.arrow.fields import FieldReader
from keyedwm.config.places import field_of
from keyedwm.config.validation import choice, wrong
from keyedwm.core.errors import OptionError
from keyedwm.core.field import Field
from keyedwm.core.late import LateRule
from keyedwm.core.touching import Touching
from keyedwm.operators.aggregates.functions import AggregateSpec, aggregate_of
from keyedwm.operators.buckets import bucket_ids
from keyedwm.operators.frames.plan import FrameWindow, SessionWindow, SlidingWindow, WindowPlan
from keyedwm.operators.frames.zoned import ZonedWindow
from keyedwm.operators.names import HIDDEN
from keyedwm.operators.shuffle import ORDER, SHIPPED, TIME
from pyspark_wm_source.options.json_option import json_object

STAGE_OPTIONS = ("frame", "by", "aggregates")
# Under names of their own: a result column may well be called `topic`.
HIDDEN_ORDER = tuple(HIDDEN + name for name in ORDER)
_TIME_FIELD = pa.field(TIME, pa.int64())


def read_fields(
    by: Mapping[str, str], aggregates: Iterable[AggregateSpec], columns: pa.Schema
) -> dict[str, FieldReader]:
    """Return the readers of a plan's input columns. by: result column → field; columns: those of the source."""
    fields = {name: Field(name.removeprefix(HIDDEN)) for name in HIDDEN_ORDER}
    fields |= {name: field_of("by", text, columns.names) for name, text in by.items()}
    for text in [name for spec in aggregates for name in spec.inputs(())]:
        field = field_of("aggregates", text, columns.names)
        if fields.setdefault(text, field) != field:
            raise OptionError(
                f"option by: a result column cannot be called {text!r}, which is a column of the source that the "
                f"aggregates read; give it another name"
            )
    return {name: FieldReader(field, columns) for name, field in fields.items()}


def plan_schema(readers: Mapping[str, FieldReader]) -> pa.Schema:
    """Of the rows that become partials: the fields, and the event time in ms."""
    return pa.schema([*(pa.field(name, reader.type) for name, reader in readers.items()), _TIME_FIELD])


@dataclass(frozen=True, kw_only=True)
class StageSpec:
    """What `aggregate` asks of the reading tasks. `window`: a session, or single frames; by: result column → field.

    It crosses Spark as three options: `as_options` writes them and `parse` reads them, and nothing else does.
    """

    window: FrameWindow | SessionWindow
    late_rule: LateRule
    by: Mapping[str, str]
    aggregates: Mapping[str, AggregateSpec]
    axis: str
    buckets: int

    def as_options(self) -> dict[str, str]:
        """Return the three options. Raises OptionError for an aggregate that has no text."""
        frame: dict[str, Any] = {"axis": self.axis, "buckets": self.buckets, "late_rule": self.late_rule.value}
        if isinstance(self.window, SessionWindow):
            frame |= {"gap_ms": self.window.gap_ms, "touching": self.window.touching.value}
        elif isinstance(self.window, ZonedWindow):
            frame |= {"size_ms": self.window.slide_ms, "offset_ms": self.window.offset_ms}
            frame |= {"zone": self.window.zone, "months": self.window.slide_months, "rules": self.window.rules_digest}
        else:
            frame |= {"size_ms": self.window.slide_ms, "offset_ms": self.window.offset_ms}
        aggregates = {name: spec.describe() for name, spec in self.aggregates.items()}
        texts = (frame, dict(self.by), aggregates)
        return {name: json.dumps(text) for name, text in zip(STAGE_OPTIONS, texts, strict=True)}

    @staticmethod
    def parse(given: Mapping[str, str], axes: Sequence[str]) -> StageSpec:
        """Read the three options (names in lower case); axes: names of the source's. Raises OptionError."""
        for name in STAGE_OPTIONS:
            if name not in given:
                raise OptionError(
                    f"option {name} is missing: {', '.join(STAGE_OPTIONS)} go together, as keyedwm.spark.aggregate "
                    f"over keyedwm.spark.source writes them"
                )
        frame = _frame(given["frame"], axes)
        by, texts = (_texts(name, given[name]) for name in STAGE_OPTIONS[1:])
        return StageSpec(
            window=_window(frame),
            late_rule=choice("frame", frame["late_rule"], LateRule),
            by=by,
            aggregates={name: aggregate_of(text) for name, text in texts.items()},
            axis=frame["axis"],
            buckets=frame["buckets"],
        )


@dataclass(frozen=True, kw_only=True)
class Stage:
    """What the reading tasks do to their records. `plan`: over windows of a single frame; `columns`: the source's."""

    plan: WindowPlan
    readers: Mapping[str, FieldReader]
    columns: pa.Schema
    axis: str
    buckets: int
    shipped: pa.Schema = SHIPPED

    @staticmethod
    def of(spec: StageSpec, columns: pa.Schema) -> Stage:
        """Plan what was asked for; columns: of the source. Raises OptionError for a field that it does not have."""
        readers = read_fields(spec.by, spec.aggregates.values(), columns)
        plan = WindowPlan(
            schema=plan_schema(readers), by=tuple(spec.by), window=spec.window,
            aggregates=tuple(spec.aggregates.items()), time=TIME, order=HIDDEN_ORDER, late_rule=spec.late_rule,
        ).trimmed()  # fmt: skip
        used = {name: readers[name] for name in plan.columns if name != TIME}
        names = {reader.field.column for reader in used.values()}
        return Stage(
            plan=replace(plan, schema=plan_schema(used)),
            readers=used,
            columns=pa.schema([field for field in columns if field.name in names]),
            axis=spec.axis,
            buckets=spec.buckets,
        )

    @cached_property
    def ids(self) -> list[int]:
        """The ids of the buckets."""
        return bucket_ids(self.buckets)


def _window(frame: Mapping[str, Any]) -> FrameWindow | SessionWindow:
    """The session, or the windows of a single frame."""
    if "gap_ms" in frame:
        return SessionWindow(frame["gap_ms"], choice("frame", frame["touching"], Touching))
    if "zone" not in frame:
        return SlidingWindow(frame["size_ms"], frame["size_ms"], frame["offset_ms"])
    window = ZonedWindow(frame["zone"], frame["size_ms"], frame["months"], 1, frame["offset_ms"])
    if window.rules_digest != frame["rules"]:
        raise OptionError(
            f"option frame: the time zone {frame['zone']!r} has other rules on this machine than where the plan was "
            "made: install the same tzdata on driver and workers, or load() the source"
        )
    return window


def _frame(text: str, axes: Sequence[str]) -> dict[str, Any]:
    frame = json_object("frame", text)
    window = ("gap_ms", "touching") if "gap_ms" in frame else ("size_ms", "offset_ms")
    zone = ("zone", "months", "rules") if "zone" in frame and "gap_ms" not in frame else ()
    names = ("axis", "buckets", "late_rule", *window, *zone)
    if set(frame) != set(names):
        raise wrong("frame", text, f"it must have {', '.join(names)} and nothing else")
    numbers = [frame[name] for name in names if name in {"buckets", "months"} or name.endswith("_ms")]
    if not all(type(number) is int for number in numbers) or frame["buckets"] < 1:
        raise wrong("frame", text, "a whole number of buckets from 1 up is expected, and whole milliseconds")
    if frame["axis"] not in axes:
        raise wrong("frame", text, f"axis must be one of {', '.join(map(repr, axes))}")
    return frame


def _texts(name: str, text: str) -> dict[str, str]:
    parsed = json_object(name, text)
    if not all(isinstance(value, str) for value in parsed.values()):
        raise wrong(name, text, "a JSON object of texts is expected")
    return parsed
