"""`aggregate(..., store=Store(...))`: windows that keep their messages (docs/reference/window-store.md).

Rule: arguments that a store cannot be combined with are errors here, before a row is read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from keyedwm.arrow.schema import axis_column
from keyedwm.config.validation import choice, duration_ms, whole
from keyedwm.core.errors import OptionError
from keyedwm.core.rows import EVENT_TIME
from keyedwm.core.window_rules import LateRule
from keyedwm.operators.aggregates.functions import check_aggregate
from keyedwm.operators.frames.zoned import refuse_zoned
from keyedwm.operators.messages import functions
from keyedwm.operators.messages.bucket_store import BucketStore
from keyedwm.operators.messages.functions import QuantileSpec, WindowFunction
from keyedwm.operators.messages.plan import StorePlan
from keyedwm.operators.messages.retention import Retention
from keyedwm.operators.messages.windows import CompletedBy, RowKind, WindowKind
from keyedwm.operators.panes import EveryBy
from keyedwm.spark.arguments import check_sendable
from keyedwm.spark.hosting.lineage import streams_of
from keyedwm.spark.hosting.read_messages import message_fields
from keyedwm.spark.hosting.source_description import Source
from keyedwm.spark.hosting.staged_rows import axis_key, check_keys, check_rows, message_columns, ship

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType

# By their classes: a column of Spark has an attribute of every name.
_OVER_MESSAGES = (WindowFunction, QuantileSpec)
_NO_SESSION = "SESSION_OR_CONTEXT_NOT_EXISTS"  # Spark's


@dataclass(frozen=True, kw_only=True, slots=True)
class Store:
    """How long the messages of windows are kept; at least one limit is given, and the first that is reached counts.

    retention: how long after its end, in event time, a window accepts late messages. max_windows: the most windows that
    hold a message. max_messages, max_bytes: the most messages of the query, and their most bytes as Arrow counts them;
    each bucket has an equal share. full: what completes a window, the `watermark` or the first `message` past its end.
    late_every: late messages are shown together, this long after the first of them. late_by: whether late_every is
    wall-clock time (`clock`) or `event` time. late_rows: late messages are shown after this number of them for a key
    and window; the rest when the window is dropped. Without late_every and late_rows, late messages are shown at once.
    """

    retention: str | None = None
    max_windows: int | None = None
    max_messages: int | None = None
    max_bytes: int | None = None
    full: str = CompletedBy.WATERMARK.value
    late_every: str | None = None
    late_rows: int | None = None
    late_by: str = EveryBy.CLOCK.value

    def __post_init__(self) -> None:
        self.limits(1)
        choice("full", self.full, CompletedBy)
        choice("late_by", self.late_by, EveryBy)
        self.late_every_ms()
        self.late_count()

    def limits(self, buckets: int) -> Retention:
        """Return the limits of one bucket. buckets: how many there are."""
        limits = {name: getattr(self, name) for name in ("max_windows", "max_messages", "max_bytes")}
        parsed = {name: None if limit is None else whole(name, str(limit)) for name, limit in limits.items()}
        shared = {name: -(-limit // buckets) for name, limit in parsed.items() if limit and name != "max_windows"}
        kept_for = None if self.retention is None else duration_ms("retention", self.retention)
        return Retention(time_ms=kept_for, **{**parsed, **shared})

    def late_every_ms(self) -> int | None:
        """Return the interval of late panes."""
        return None if self.late_every is None else duration_ms("late_every", self.late_every)

    def late_count(self) -> int | None:
        """Return after how many late messages there is a pane."""
        return None if self.late_rows is None else whole("late_rows", str(self.late_rows))


def window_function(
    function: Callable[[pa.Table], Any], result: pa.DataType | DataType | str, version: int = 1
) -> WindowFunction:
    """An aggregate of one's own over a store: `function` is given the Arrow table of each key and window.

    The messages come in order of event time, topic, partition and offset; `function` returns one value. result: its
    type, in Arrow or Spark, or as Spark's text of one (`double`). version: raise it when the function computes
    something else; a checkpoint of another version is an error.
    """
    aggregate = functions.window_function(function, _type(result), version)
    check_sendable(function, f"window_function: {getattr(function, '__qualname__', function)}")
    return aggregate


def _check_needs_none(window: object, aggs: Mapping[str, Any]) -> None:
    """Raise OptionError for windows and aggregates that are computed over kept messages."""
    for name, spec in aggs.items():
        if isinstance(spec, _OVER_MESSAGES):
            raise OptionError(
                f"aggregate: {name!r} is computed over all messages of a window, which a store keeps: give "
                "store=Store(retention=...)"
            )
        check_aggregate(name, spec)
    if isinstance(window, WindowKind):
        raise OptionError(f"aggregate: {window.why_kept}")


def check_store(store: object, settings: Mapping[str, Any]) -> None:
    """Raise OptionError for settings that a store cannot serve, or that need a store; settings: as for a plan."""
    window, aggs = settings["window"], dict(settings["aggregates"])
    if store is None:
        _check_needs_none(window, aggs)
        return
    if not isinstance(store, Store):
        raise OptionError(f"aggregate: store={store!r}: keyedwm.spark.Store(retention=...) is expected")
    refuse_zoned(window, "aggregate")
    if isinstance(window, RowKind) and (store.late_every is not None or store.late_rows is not None):
        raise OptionError(
            "aggregate: late_every and late_rows have no effect on windows of rows: offsets never come late; leave "
            "them out"
        )
    for name, (instead, is_default) in _INSTEAD.items():
        if not is_default(settings):
            raise OptionError(f"aggregate: {name} has no effect on a store: {instead}")
    for name, spec in aggs.items():
        if not isinstance(spec, _OVER_MESSAGES):
            check_aggregate(name, spec)


_INSTEAD: dict[str, tuple[str, Callable[[Mapping[str, Any]], bool]]] = {
    "lateness": (
        "its retention says how long windows take late messages",
        lambda settings: not settings["lateness_ms"],
    ),
    "late_rule": (
        "a message is late when all its windows are gone",
        lambda settings: settings["late_rule"] is LateRule.WINDOW,
    ),
    "max_rows_per_batch": ("leave it out", lambda settings: settings["most_rows"] is None),
}


def check_one_source(df: DataFrame, window: object, caller: str) -> None:
    """Raise OptionError for windows of rows over a union: two sources may read one partition."""
    if not isinstance(window, RowKind):
        return
    streams = streams_of(df)
    if streams > 1:
        raise OptionError(
            f"{caller}: windows of rows count the offsets of one source, and the frame is made of {streams} streams: "
            f"read all topics with one source (subscribe='a,b'), or give each its own {caller.partition(',')[0]}"
        )


def ship_messages(
    df: DataFrame | Source, settings: Mapping[str, Any], axis: str, ids: Sequence[int]
) -> tuple[DataFrame, BucketStore, int]:
    """Return the shipped rows, the plan, and the watermark key of the axis; settings: as for a plan."""
    frame = df.load() if isinstance(df, Source) else df
    check_rows(frame, axis)
    check_one_source(frame, settings["window"], "aggregate")
    schema = message_columns(frame, "aggregate")
    keys, fields, read_from = tuple(settings["by"]), None, tuple[str, ...]()
    if isinstance(df, Source):
        messages = message_fields(df, settings["by"], settings["aggregates"], schema.names)
        schema, keys, fields, read_from = messages.schema, messages.keys, messages.fields, messages.read_from
    else:
        check_keys(frame, keys)
    store_plan = _store_plan(schema, keys, settings, axis, len(ids))
    plan = BucketStore(plan=store_plan, late=settings["late"], read_from=read_from)
    return ship(df, plan.inputs[0], {}, ids, fields=fields), plan, axis_key(frame, axis)


def _store_plan(
    schema: pa.Schema, keys: tuple[str, ...], settings: Mapping[str, Any], axis: str, buckets: int
) -> StorePlan:
    """Return the plan of one bucket. settings: the plan's other fields. buckets: how many there are."""
    store: Store = settings["store"]
    return StorePlan(
        schema=schema, by=keys, window=settings["window"], aggregates=settings["aggregates"],
        retention=store.limits(buckets), time=axis_column(EVENT_TIME, axis),
        full=choice("full", store.full, CompletedBy),
        early=settings["early"], late_every_ms=store.late_every_ms(), late_rows=store.late_count(),
        late_by=choice("late_by", store.late_by, EveryBy), accumulating=settings["accumulating"],
    )  # fmt: skip


def _type(result: object) -> pa.DataType:
    """Return the Arrow type, as Spark stores it, of a type in Arrow, in Spark, or as text."""
    from pyspark.errors import PySparkException
    from pyspark.sql.pandas.types import from_arrow_type, to_arrow_type
    from pyspark.sql.types import DataType, StructType

    try:
        if isinstance(result, DataType):
            kind = result
        elif isinstance(result, pa.DataType):
            kind = from_arrow_type(result)
        else:
            (field,) = getattr(StructType.fromDDL(f"value {result}"), "fields", [None])
            kind = field.dataType
        return to_arrow_type(kind, timezone="UTC")
    except (PySparkException, ValueError) as error:
        why = error.getCondition() if isinstance(error, PySparkException) else "several values"
        if isinstance(result, (DataType, pa.DataType)):
            why = "Spark has no such type"
        elif why == _NO_SESSION:
            why = "text needs a session, which there is not"
        raise OptionError(
            f"window_function: result={result!r} ({why}): the type of one value is expected, in Arrow, or where there "
            "is a session as text such as 'double'"
        ) from error
