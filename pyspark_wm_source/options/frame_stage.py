"""Stage one of `aggregate` inside the reading tasks: it turns records into partials of frames (`stage`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from keyedwm.arrow.places import FieldReader, read_fields
from keyedwm.config.places import field_of
from keyedwm.config.validation import choice, wrong
from keyedwm.core.errors import OptionError
from keyedwm.core.places import Field
from keyedwm.core.window_rules import LateRule, Touching
from keyedwm.operators.aggregates.spec import AggregateSpec, aggregate_of
from keyedwm.operators.frames.plan import FrameWindow, SessionWindow, SlidingWindow, WindowPlan
from keyedwm.operators.frames.zoned import ZonedWindow
from keyedwm.operators.keyed.per_key import Partitions, PerKey
from keyedwm.operators.results import HIDDEN_PREFIX
from keyedwm.operators.shuffle import ORDER, TIME
from pyspark_wm_source.options.stage import STAGE, SourceColumns, Stage, StageSpec, axis_of, check_fields, is_whole

if TYPE_CHECKING:
    from keyedwm.arrow.rows import Events, RowBuilder

# Under names of their own: a result column may well be called `topic`.
HIDDEN_ORDER = tuple(HIDDEN_PREFIX + name for name in ORDER)
_TIME_FIELD = pa.field(TIME, pa.int64())


def plan_readers(
    by: Mapping[str, str], aggregates: Iterable[AggregateSpec], columns: pa.Schema, selected_fields: Mapping[str, Field]
) -> dict[str, FieldReader]:
    """Return the readers of a plan's input columns.

    by: result column → field. columns: the source's columns. selected_fields: those of the option `columns`.
    """
    fields = {name: Field(name.removeprefix(HIDDEN_PREFIX)) for name in HIDDEN_ORDER}
    fields |= {name: field_of("by", text, columns.names, selected_fields) for name, text in by.items()}
    for text in [name for spec in aggregates for name in spec.inputs(())]:
        field = field_of("aggregates", text, columns.names, selected_fields)
        if fields.setdefault(text, field) != field:
            raise OptionError(
                f"option by: a result column cannot be called {text!r}, which is a column of the source that the "
                f"aggregates read; give it another name"
            )
    return {name: FieldReader(field, columns) for name, field in fields.items()}


def plan_schema(readers: Mapping[str, FieldReader]) -> pa.Schema:
    """Return the schema of the rows that become partials: the fields, and the event time in ms."""
    return pa.schema([*(pa.field(name, reader.type) for name, reader in readers.items()), _TIME_FIELD])


@dataclass(frozen=True, kw_only=True)
class FrameSpec(StageSpec):
    """The stage of `aggregate` in the reading tasks. window: a session, or frames; by: result column → field."""

    kind = "frames"
    window: FrameWindow | SessionWindow
    late_rule: LateRule
    by: Mapping[str, str]
    aggregates: Mapping[str, AggregateSpec]
    axis: str
    key_watermark: PerKey | None = None

    def description(self) -> dict[str, Any]:
        """Return all but the kind, ready for JSON."""
        return {
            "axis": self.axis,
            "buckets": self.buckets,
            "late_rule": self.late_rule.value,
            "by": dict(self.by),
            "aggregates": {name: spec.describe() for name, spec in self.aggregates.items()},
            **_window_description(self.window),
            **_key_watermark_description(self.key_watermark),
        }

    @classmethod
    def of(cls, description: Mapping[str, Any], text: str) -> FrameSpec:
        """Return the stage of a description; see `StageSpec`."""
        window = ("gap_ms", "touching") if "gap_ms" in description else ("size_ms", "offset_ms")
        zone = ("zone", "months", "rules") if "zone" in description and "gap_ms" not in description else ()
        per_key = ["key_watermark"] if "key_watermark" in description else []
        check_fields(description, ("axis", "buckets", "late_rule", "by", "aggregates", *window, *zone, *per_key), text)
        if not all(is_whole(description[name]) for name in description if name == "months" or name.endswith("_ms")):
            raise wrong(STAGE, text, "whole milliseconds are expected")
        texts = [description["by"], description["aggregates"]]
        if not all(isinstance(one, dict) and all(isinstance(value, str) for value in one.values()) for one in texts):
            raise wrong(STAGE, text, "by and aggregates as JSON objects of texts are expected")
        return cls(
            window=_window(description),
            late_rule=choice(STAGE, description["late_rule"], LateRule),
            by=description["by"],
            aggregates={name: aggregate_of(one) for name, one in description["aggregates"].items()},
            axis=description["axis"],
            buckets=description["buckets"],
            key_watermark=_key_watermark(description.get("key_watermark"), text),
        )

    def stage(self, source: SourceColumns) -> FrameStage:
        """Return the plan that the tasks run; see `StageSpec`."""
        if source.selected is not None and not source.fields:
            raise OptionError(
                "option columns has no effect on windows over a source that is not loaded, which reads the fields of "
                "by and aggregates: remove the option"
            )
        axis_of(source, self.axis)
        readers = plan_readers(self.by, self.aggregates.values(), source.every, source.fields)
        plan = WindowPlan(
            schema=plan_schema(readers), by=tuple(self.by), window=self.window,
            aggregates=tuple(self.aggregates.items()), time=TIME, order=HIDDEN_ORDER, late_rule=self.late_rule,
            key_watermark=self.key_watermark,
        ).trimmed()  # fmt: skip
        used_readers = {name: readers[name] for name in plan.columns if name != TIME}
        names = {reader.field.column for reader in used_readers.values()}
        return FrameStage(
            columns=pa.schema([field for field in source.every if field.name in names]),
            shipped=replace(plan, schema=plan_schema(used_readers)),
            buckets=self.buckets,
            readers=tuple(used_readers.values()),
            axis=self.axis,
        )


@dataclass(frozen=True, kw_only=True)
class FrameStage(Stage):
    """The stage that turns records into partials of frames.

    readers: read the plan's columns. axis: the time axis of the plan's event times.
    """

    axis: str

    def rows(self, events: Events, builder: RowBuilder) -> pa.RecordBatch:
        """Return the columns of the plan, then the event time in ms."""
        rows = builder.events(events)
        ms, valid = events.event_ms[self.axis]
        time = pa.array(ms, mask=None if valid is None else ~valid)
        return pa.RecordBatch.from_arrays(
            [*read_fields(self.readers, rows.column, events.decoded), time], schema=self.shipped.schema
        )


def _window_description(window: FrameWindow | SessionWindow) -> dict[str, Any]:
    if isinstance(window, SessionWindow):
        return {"gap_ms": window.gap_ms, "touching": window.touching.value}
    frame = {"size_ms": window.slide_ms, "offset_ms": window.offset_ms}
    if isinstance(window, ZonedWindow):
        return {**frame, "zone": window.zone, "months": window.slide_months, "rules": window.rules_digest}
    return frame


def _key_watermark_description(per_key: PerKey | None) -> dict[str, Any]:
    return {} if per_key is None else {"key_watermark": asdict(per_key) | {"partitions": per_key.partitions.value}}


def _key_watermark(description: Any, text: str) -> PerKey | None:
    if description is None:
        return None
    names = {one.name for one in fields(PerKey)}
    if not isinstance(description, dict) or set(description) != names:
        raise wrong(STAGE, text, f"key_watermark with exactly the fields {', '.join(sorted(names))} is expected")
    by = None if description["by"] is None else tuple(description["by"])
    return PerKey(**{**description, "by": by, "partitions": choice(STAGE, description["partitions"], Partitions)})


def _window(description: Mapping[str, Any]) -> FrameWindow | SessionWindow:
    """Return the session, or the window of a single frame."""
    if "gap_ms" in description:
        return SessionWindow(description["gap_ms"], choice(STAGE, description["touching"], Touching))
    if "zone" not in description:
        return SlidingWindow(description["size_ms"], description["size_ms"], description["offset_ms"])
    window = ZonedWindow(
        description["zone"], description["size_ms"], description["months"], 1, description["offset_ms"]
    )
    if window.rules_digest != description["rules"]:
        raise OptionError(
            f"option {STAGE}: the rules of the time zone {description['zone']!r} differ between this machine and the "
            "driver: install the same tzdata on driver and workers, or load() the source"
        )
    return window
