"""The plan of running aggregates: which rows, keys and aggregates, and how long a silent key is remembered."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import pyarrow as pa

from keyedwm.core.errors import OptionError
from keyedwm.core.rows import EVENT_TIME, WATERMARK
from keyedwm.core.window_rules import LatePolicy
from keyedwm.operators.aggregates.aggregate_function import AggregateFunction
from keyedwm.operators.aggregates.functions import AggregateSpec
from keyedwm.operators.aggregates.kept_values import TopN
from keyedwm.operators.aggregates.lists import ListAggregate
from keyedwm.operators.names import HIDDEN
from keyedwm.operators.plan_checks import check_key_columns, check_length, check_result_names
from keyedwm.operators.state.entries import accumulator_fields

RECORD = ("topic", "partition", "offset")
# A column beside those of the plan: the number of a row among those of one record, as explode makes them.
WITHIN = f"{HIDDEN}within"


@dataclass(frozen=True, kw_only=True)
class RunningPlan:
    """Running aggregates over rows of `schema`, which has the columns of RECORD; time: the column of event times.

    keep_ms: behind so long a gap in the event times of a key its aggregates begin anew, and a key that is silent for so
    long is forgotten; None: never. late: what becomes of rows below the watermark, `drop` or `fail`.
    """

    schema: pa.Schema
    by: tuple[str, ...]
    aggregates: tuple[tuple[str, AggregateSpec], ...]
    time: str = EVENT_TIME
    keep_ms: int | None = None
    late: LatePolicy = LatePolicy.DROP
    functions: tuple[AggregateFunction, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_key_columns(self.schema, (*self.by, self.time, *RECORD), self.by)
        made = [name for name, _ in self.aggregates]
        taken = next((name for name in made if name.lower() in (EVENT_TIME, WATERMARK)), None)
        if taken is not None:
            raise OptionError(f"running: a result column cannot be called {taken!r}: rows have one; give another name")
        names = [name for name in self.schema.names if name != EVENT_TIME]
        check_result_names([*names, *made], has_aggregates=bool(self.aggregates))
        ordered, order = self.schema.append(pa.field(WITHIN, pa.int64())), (*RECORD, WITHIN)
        object.__setattr__(self, "functions", tuple(spec.bind(ordered, order) for _, spec in self.aggregates))
        for (name, spec), function in zip(self.aggregates, self.functions, strict=True):
            if isinstance(function, ListAggregate) and not isinstance(function, TopN):
                raise OptionError(
                    f"running: {name!r} is {spec.describe()}, which keeps every value, and a running aggregate never "
                    "ends: take it over windows, with aggregate"
                )
        if self.keep_ms is not None:
            if self.keep_ms < 1:
                raise OptionError(f"running: keep={self.keep_ms} ms, it must be 1 ms or more")
            check_length("keep of running aggregates", self.keep_ms)
        if self.late is LatePolicy.EMIT:
            raise OptionError(
                "running: late='emit': a late row has no place among results that have left; choose 'drop' or 'fail'"
            )

    @cached_property
    def key_fields(self) -> list[pa.Field]:
        """The by columns."""
        return [pa.field(name, self.schema.field(name).type) for name in self.by]

    @cached_property
    def result_schema(self) -> pa.Schema:
        """Of the results beside `event_time`: the columns of the row, and one for each aggregate."""
        made = [pa.field(name, of.result) for (name, _), of in zip(self.aggregates, self.functions, strict=True)]
        return pa.schema([*(one for one in self.schema if one.name != EVENT_TIME), *made])

    @cached_property
    def accumulator_fields(self) -> list[pa.Field]:
        """The hidden columns that hold the accumulators, aggregate by aggregate."""
        return accumulator_fields(self.functions)

    @property
    def called(self) -> str:
        """The aggregates: beside keys and columns they decide whose state it is. `late` and `keep_ms` may change."""
        aggregates = ", ".join(f"{name} {spec.describe()}" for name, spec in self.aggregates)
        return f"running aggregates {aggregates}"
