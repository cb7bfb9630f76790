"""The product's windows answer every step of a vector; a scalar model answers too and must say the same.

Rule: after each watermark the engine is put away as blobs and built anew from them; beside a built-in aggregate runs
the same one as a user's own.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from datetime import datetime, timedelta, timezone

import pyarrow as pa

from conformance.aggregates import AGGREGATES
from conformance.disagreement import DisagreementError
from conformance.driver import DrivenOperator
from conformance.models.results import Late, WindowResult
from conformance.models.sessions import Session, SessionConfig, Sessions, SessionState
from conformance.models.sliding import Sliding, SlidingConfig, SlidingState
from keyedwm.core.aggregate import AccumulatorFunctions
from keyedwm.core.throttle import floor_frame
from keyedwm.core.window_rules import LatePolicy
from keyedwm.operators.aggregates import functions as aggregates
from keyedwm.operators.frames.partials import combine_rows
from keyedwm.operators.frames.plan import SessionWindow, SlidingWindow, WindowPlan
from keyedwm.operators.panes import PaneTiming
from keyedwm.operators.results import END, LAST, PANE, ROWS, START, WINDOW
from keyedwm.operators.state.manifest import MANIFEST, manifest_of

Results = list[WindowResult | Late]
_BUILT_IN = {
    "sum": aggregates.sum("value"),
    "sum_nodeduct": aggregates.sum("value"),
    "min": aggregates.min("value"),
    "max": aggregates.max("value"),
    "avg": aggregates.avg("value"),
    "mean": aggregates.avg("value"),
    "count": aggregates.count(),
}
# Two key columns: whole numbers come before text, as in the scalar reference.
_SCHEMA = pa.schema(
    [
        ("number", pa.int64()),
        ("text", pa.string()),
        ("event_time", pa.int64()),
        ("value", pa.int64()),
        ("pickled", pa.binary()),
    ]
)
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


class Engine:
    """The vectorised operator, an event at a time. `name` is the aggregate's among the vectors' aggregates."""

    def __init__(self, config: SlidingConfig | SessionConfig, name: str, aggregate: AccumulatorFunctions) -> None:
        own = aggregates.Aggregate(
            column="pickled",
            result=pa.binary(),
            create=aggregate.create,
            accumulate=lambda accumulator, value: aggregate.accumulate(accumulator, pickle.loads(value)),  # type: ignore[arg-type]  # noqa: S301  pickled below
            combine=aggregate.combine,
            deduct=aggregate.deduct,
            finish=lambda accumulator: pickle.dumps(aggregate.finish(accumulator)),
        )
        built_in = (("built_in", _BUILT_IN[name]),) if name in _BUILT_IN else ()
        self._plan = WindowPlan(
            schema=_SCHEMA,
            by=("number", "text"),
            window=_window_of(config),
            aggregates=(*built_in, ("own", own)),
            late=LatePolicy.EMIT,
            late_rule=config.late_rule,
            lateness_ms=config.lateness_ms,
        )
        self._counts = name == "count"
        self._operator = DrivenOperator(self._plan)

    def event(self, event_ms: int, key: object, value: object) -> Results:
        """Take an event."""
        number = value if isinstance(value, int) else None
        columns = [*_key(key), event_ms, number, pickle.dumps(value)]
        return _results(self._operator.take(combine_rows(self._plan, _row(columns, _SCHEMA))))

    def add_accumulator(self, start_ms: int, end_ms: int, key: object, accumulator: object) -> Results:
        """Take a partial result."""
        facts: dict[str, object] = {START: start_ms, END: end_ms, LAST: end_ms - 1}
        facts |= dict(zip(("number", "text"), _key(key), strict=True))
        facts[ROWS] = accumulator if self._counts else 1
        inner = {
            "total": accumulator,
            "values": 1,
            "high": accumulator >> 63 if isinstance(accumulator, int) else 0,
            "order": accumulator,
            "missing": 0,
        }
        inner["accumulator"] = pickle.dumps(accumulator)
        schema = self._plan.partial_schema
        columns = [facts[name] if name in facts else inner[name.split("_")[-1]] for name in schema.names]
        return _results(self._operator.take(_row(columns, schema)))

    def watermark(self, time_ms: int) -> Results:
        """Close windows, then start anew from blobs."""
        results = _results(self._operator.advance(time_ms))
        self._operator = DrivenOperator(self._plan, self._operator.snapshot())
        return results

    def stand_at(self, watermark_ms: int | None) -> None:
        """Take this for the last watermark, whatever is held."""
        manifest = manifest_of(self._plan, {"watermark_ms": watermark_ms, "due_ms": None})
        self._operator = DrivenOperator(self._plan, self._operator.snapshot() | {MANIFEST: manifest})

    def complete(self) -> Results:
        """Close every window."""
        return _results(self._operator.complete())


def windows_of(event_ms: int, config: SlidingConfig) -> list[list[int]]:
    """The windows [start, end] that one event comes out in."""
    engine = Engine(config, "count", AGGREGATES["count"])
    engine.event(event_ms, "", 1)
    return [[one.start_ms, one.end_ms] for one in engine.complete() if isinstance(one, WindowResult)]


class BothSliding(Sliding):
    """Sliding windows, played twice."""

    def __init__(
        self, config: SlidingConfig, name: str, aggregate: AccumulatorFunctions, state: SlidingState | None = None
    ) -> None:
        super().__init__(config, aggregate, state)
        self._engine = Engine(config, name, aggregate)
        frames: Mapping[int, Mapping[object, object]] = state.frames if state else {}
        for end_ms, entries in frames.items():
            for key, accumulator in entries.items():
                self._engine.add_accumulator(self._frame_of(end_ms - 1), end_ms, key, accumulator)
        if state:
            self._engine.stand_at(state.watermark_ms)

    def event(self, event_ms: int, key: object, value: object) -> Results:
        """See Sliding."""
        return _agreed(super().event(event_ms, key, value), self._engine.event(event_ms, key, value))

    def frame(self, end_ms: int, key: object, accumulator: object) -> Results:
        """See Sliding."""
        start_ms = floor_frame(end_ms - 1, self._config.slide_ms, self._config.offset_ms)
        engine = self._engine.add_accumulator(start_ms, end_ms, key, accumulator)
        return _agreed(super().frame(end_ms, key, accumulator), engine)

    def watermark(self, time_ms: int) -> Results:
        """See Sliding."""
        return _agreed(super().watermark(time_ms), self._engine.watermark(time_ms))

    def complete(self) -> Results:
        """See Sliding."""
        return _agreed(super().complete(), self._engine.complete())

    def flush(self) -> Results:
        """See Sliding: of a first stage, whose windows are its frames."""
        watermark_ms = self._watermark_ms
        results = _agreed(super().flush(), self._engine.complete())
        self._engine.stand_at(watermark_ms)
        return results


class BothSessions(Sessions):
    """Sessions, played twice."""

    def __init__(
        self, config: SessionConfig, name: str, aggregate: AccumulatorFunctions, state: SessionState | None = None
    ) -> None:
        super().__init__(config, aggregate, state)
        self._engine = Engine(config, name, aggregate)
        sessions_by_key: Mapping[object, tuple[Session, ...]] = state.sessions if state else {}
        for key, sessions in sessions_by_key.items():
            for one in sessions:
                self._engine.add_accumulator(one.start_ms, one.end_ms, key, one.accumulator)
        if state:
            self._engine.stand_at(state.watermark_ms)

    def event(self, event_ms: int, key: object, value: object) -> Results:
        """See Sessions."""
        return _agreed(super().event(event_ms, key, value), self._engine.event(event_ms, key, value))

    def watermark(self, time_ms: int) -> Results:
        """See Sessions."""
        return _agreed(super().watermark(time_ms), self._engine.watermark(time_ms))

    def complete(self) -> Results:
        """See Sessions."""
        return _agreed(super().complete(), self._engine.complete())


def _window_of(config: SlidingConfig | SessionConfig) -> SlidingWindow | SessionWindow:
    if isinstance(config, SessionConfig):
        return SessionWindow(config.gap_ms, config.touching)
    return SlidingWindow(config.size_ms, config.slide_ms, config.offset_ms)


def _agreed(scalar: Results, engine: Results) -> Results:
    if scalar != engine:
        raise DisagreementError(f"the scalar reference says {scalar}, the vectorised engine {engine}")
    return engine


def _key(key: object) -> list[object]:
    return [key, None] if isinstance(key, int) else [None, key]


def _row(values: list, schema: pa.Schema) -> pa.Table:
    return pa.table([pa.array([value], field.type) for value, field in zip(values, schema, strict=True)], schema=schema)


def _results(table: pa.Table) -> Results:
    results: Results = []
    for row in table.to_pylist():
        own = pickle.loads(row["own"])  # noqa: S301  pickled above
        if row.get("built_in", own) != own:
            raise DisagreementError(f"the built-in aggregate says {row['built_in']}, the user's own {own}")
        if row[PANE]["timing"] == PaneTiming.EXPIRED.value:
            results.append(Late())
            continue
        start_ms, end_ms = ((row[WINDOW][edge] - _EPOCH) // timedelta(milliseconds=1) for edge in ("start", "end"))
        key = row["text"] if row["number"] is None else row["number"]
        results.append(WindowResult(start_ms, end_ms, key, own))
    return results
