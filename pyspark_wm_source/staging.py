"""Stage one inside the source: records become partials in the task that reads them (options frame, by, aggregates).

Rule: what leaves is what `aggregate`'s own stage one ships, made by the same code; the options say it all as text. A
plan is written down and read back here, so that both sides have one home.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import pyarrow as pa

from keyedwm.arrow.fields import FieldReader
from keyedwm.arrow.rows import ControlRow, Events, RowBuilder, grouped
from keyedwm.core.errors import OptionError
from keyedwm.core.field import Field
from keyedwm.core.late import LateRule
from keyedwm.core.options import choice, wrong
from keyedwm.core.sessions import Touching
from keyedwm.windows.aggregates import AggregateSpec, aggregate_of
from keyedwm.windows.buckets import bucket_ids
from keyedwm.windows.plan import HIDDEN, Plan, Session, Sliding
from keyedwm.windows.shipping import CONTROL_TOLD, GROUP_BYTES, GROUP_ROWS, ORDER, TIME, shipped

STAGE_OPTIONS = ("frame", "by", "aggregates")
# Under names of their own: a result column may well be called `topic`.
HIDDEN_ORDER = tuple(HIDDEN + name for name in ORDER)
_TIME_FIELD = pa.field(TIME, pa.int64())


def read_fields(
    by: Mapping[str, str], aggregates: Iterable[AggregateSpec], columns: pa.Schema
) -> dict[str, FieldReader]:
    """Return the readers of a plan's input columns. by: result column → field; columns: those of the source."""
    fields = {name: Field(name.removeprefix(HIDDEN)) for name in HIDDEN_ORDER}
    fields |= {name: Field.parse("by", text, columns.names) for name, text in by.items()}
    for text in [spec.column for spec in aggregates if spec.column is not None]:
        field = Field.parse("aggregates", text, columns.names)
        if fields.setdefault(text, field) != field:
            raise OptionError(
                f"option by: a result column cannot be called {text!r}, which is a column of the source that the "
                f"aggregates read; give it another name"
            )
    return {name: FieldReader(field, columns) for name, field in fields.items()}


def plan_schema(readers: Mapping[str, FieldReader]) -> pa.Schema:
    """Of the rows that become partials: the fields, and the event time in ms."""
    return pa.schema([*(pa.field(name, reader.type) for name, reader in readers.items()), _TIME_FIELD])


def stage_options(plan: Plan, by: Mapping[str, str], axis: str, buckets: int) -> dict[str, str]:
    """Write down what `Stage.parse` reads. Raises OptionError for an aggregate that is no text."""
    window = plan.window
    frame: dict[str, Any] = {"axis": axis, "buckets": buckets, "late_rule": plan.late_rule.value}
    if isinstance(window, Session):
        frame |= {"gap_ms": window.gap_ms, "touching": window.touching.value}
    else:
        frame |= {"size_ms": window.slide_ms, "offset_ms": window.offset_ms}
    aggregates = {name: spec.describe() for name, spec in plan.aggregates}
    texts = (frame, dict(by), aggregates)
    return {name: json.dumps(text) for name, text in zip(STAGE_OPTIONS, texts, strict=True)}


@dataclass(frozen=True, kw_only=True)
class Stage:
    """What the reading tasks do to their records. `plan`: over windows of a single frame; `columns`: the source's."""

    plan: Plan
    readers: Mapping[str, FieldReader]
    columns: pa.Schema
    axis: str
    buckets: int

    @staticmethod
    def parse(given: Mapping[str, str], columns: pa.Schema, axes: Sequence[str]) -> Stage:
        """Read the three options (names in lower case); columns: of the source. Raises OptionError."""
        for name in STAGE_OPTIONS:
            if name not in given:
                raise OptionError(
                    f"option {name} is missing: {', '.join(STAGE_OPTIONS)} go together, as keyedwm.spark.aggregate "
                    f"over keyedwm.spark.source writes them"
                )
        frame = _frame(given["frame"], axes)
        by, texts = (_texts(name, given[name]) for name in STAGE_OPTIONS[1:])
        if "gap_ms" in frame:
            window: Sliding | Session = Session(frame["gap_ms"], choice("frame", frame["touching"], Touching))
        else:
            window = Sliding(frame["size_ms"], frame["size_ms"], frame["offset_ms"])
        specs = {name: aggregate_of(text) for name, text in texts.items()}
        readers = read_fields(by, specs.values(), columns)
        plan = Plan(
            schema=plan_schema(readers), by=tuple(by), window=window, aggregates=tuple(specs.items()), time=TIME,
            order=HIDDEN_ORDER, late_rule=choice("frame", frame["late_rule"], LateRule),
        ).trimmed()  # fmt: skip
        used = {name: readers[name] for name in plan.columns if name != TIME}
        names = {reader.field.column for reader in used.values()}
        return Stage(
            plan=replace(plan, schema=plan_schema(used)),
            readers=used,
            columns=pa.schema([field for field in columns if field.name in names]),
            axis=frame["axis"],
            buckets=frame["buckets"],
        )

    @cached_property
    def ids(self) -> list[int]:
        """The ids of the buckets."""
        return bucket_ids(self.buckets)


class StagedRows(RowBuilder):
    """Rows on their way into partials: control rows are kept apart, as texts; events have the plan's columns."""

    def __init__(self, stage: Stage, watermarks: Mapping[str, int | None]) -> None:
        super().__init__(stage.columns, watermarks)
        self._stage = stage
        self._nothing = pa.RecordBatch.from_pylist([], schema=stage.plan.schema)
        self._told: list[str] = []

    def shipped(self, batches: Iterable[pa.RecordBatch], task: int) -> Iterator[pa.RecordBatch]:
        """Yield what the task ships, given all that was laid out here."""
        events = grouped((batch for batch in batches if batch.num_rows), GROUP_ROWS, GROUP_BYTES)
        yield from shipped(self._stage.plan, self._stage.ids, task, events, self._told)

    def events(self, events: Events) -> pa.RecordBatch:
        """Lay out one run of event rows."""
        rows = super().events(events)
        ms, valid = events.event_ms[self._stage.axis]
        arrays = [reader.read(rows) for reader in self._stage.readers.values()]
        return pa.RecordBatch.from_arrays(
            [*arrays, pa.array(ms, mask=None if valid is None else ~valid)], schema=self._stage.plan.schema
        )

    def control(self, control_rows: Sequence[ControlRow]) -> pa.RecordBatch:
        """Keep control rows."""
        self._told += [json.dumps({name: getattr(row, name) for name in CONTROL_TOLD}) for row in control_rows]
        return self._nothing

    def interleave(
        self,
        events: pa.RecordBatch,
        control_rows: Sequence[ControlRow],
        before: Sequence[int],  # noqa: ARG002  what control rows say counts once the batch was read
    ) -> pa.RecordBatch:
        """Keep control rows."""
        self.control(control_rows)
        return events


def _frame(text: str, axes: Sequence[str]) -> dict[str, Any]:
    frame = _object("frame", text)
    window = ("gap_ms", "touching") if "gap_ms" in frame else ("size_ms", "offset_ms")
    names = ("axis", "buckets", "late_rule", *window)
    if set(frame) != set(names):
        raise wrong("frame", text, f"it must have {', '.join(names)} and nothing else")
    numbers = [frame[name] for name in names if name == "buckets" or name.endswith("_ms")]
    if not all(type(number) is int for number in numbers) or frame["buckets"] < 1:
        raise wrong("frame", text, "a whole number of buckets from 1 up is wanted, and whole milliseconds")
    if frame["axis"] not in axes:
        raise wrong("frame", text, f"axis must be one of {', '.join(map(repr, axes))}")
    return frame


def _texts(name: str, text: str) -> dict[str, str]:
    parsed = _object(name, text)
    if not all(isinstance(value, str) for value in parsed.values()):
        raise wrong(name, text, "a JSON object of texts is wanted")
    return parsed


def _object(name: str, text: str) -> dict[str, Any]:
    try:
        parsed = json.loads(text)
    except ValueError:
        parsed = None
    if not isinstance(parsed, dict):
        raise wrong(name, text, "a JSON object is wanted")
    return parsed
