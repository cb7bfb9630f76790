"""The plan of running aggregates, and their state for each key: last event time, number of rows, accumulators so far.

Rule: the log has a row for each key and batch that changed it; the newest row of a key counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar

import numpy as np
import pyarrow as pa

from keyedwm.arrow.columns import Column, Flags, Ints, concat, sorted_distinct, to_arrow, values_at
from keyedwm.core.errors import OptionError
from keyedwm.core.lateness import is_behind
from keyedwm.core.rows import EVENT_TIME, WATERMARK
from keyedwm.core.window_rules import LatePolicy
from keyedwm.operators.aggregates.aggregate_function import AggregateFunction, Groups, Spans
from keyedwm.operators.aggregates.kept_values import ListAggregate, TopN
from keyedwm.operators.aggregates.spec import AggregateSpec
from keyedwm.operators.kernels import add_by_span
from keyedwm.operators.plan_checks import check_key_columns, check_length, check_named_once, check_result_names
from keyedwm.operators.results import HIDDEN_PREFIX
from keyedwm.operators.state.entries import (
    EntryRows,
    accumulator_fields,
    merged,
)
from keyedwm.operators.state.key_dictionary import KeyDictionary
from keyedwm.operators.state.keyed_log import newest

RECORD = ("topic", "partition", "offset")
# An added column: the number of a row among the rows of one record, as explode makes them.
WITHIN = f"{HIDDEN_PREFIX}within"


@dataclass(frozen=True, kw_only=True)
class RunningPlan:
    """Running aggregates over rows of `schema`, which has the columns of RECORD; time: the column of event times.

    keep_ms: after a gap of this length in a key's event times, the key's aggregates start from zero. A key without rows
    for this time is removed. None: never. late: what becomes of rows below the watermark, `drop` or `fail`.
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
        check_named_once("running: by", self.by)
        result_names = [name for name, _ in self.aggregates]
        reserved = next((name for name in result_names if name.lower() in (EVENT_TIME, WATERMARK)), None)
        if reserved is not None:
            raise OptionError(
                f"running: a result column cannot be called {reserved!r}: rows have one; give another name"
            )
        names = [name for name in self.schema.names if name != EVENT_TIME]
        check_result_names([*names, *result_names], has_aggregates=bool(self.aggregates))
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
        """The key columns."""
        return [pa.field(name, self.schema.field(name).type) for name in self.by]

    @cached_property
    def result_schema(self) -> pa.Schema:
        """The columns of the results, besides `event_time`: the columns of the row, and one for each aggregate."""
        fields = [pa.field(name, of.result) for (name, _), of in zip(self.aggregates, self.functions, strict=True)]
        return pa.schema([*(one for one in self.schema if one.name != EVENT_TIME), *fields])

    @cached_property
    def accumulator_fields(self) -> list[pa.Field]:
        """The hidden columns that hold the accumulators, aggregate by aggregate."""
        return accumulator_fields(self.functions)

    @property
    def called(self) -> str:
        """The texts of the aggregates: with keys and columns, they identify the state.

        `late` and `keep_ms` may change.
        """
        aggregates = ", ".join(f"{name} {spec.describe()}" for name, spec in self.aggregates)
        return f"running aggregates {aggregates}"


@dataclass(frozen=True, slots=True)
class Elements(EntryRows):
    """Rows, or the state of keys: an entry and the last event time in ms of each."""

    COLUMNS: ClassVar[tuple[str, ...]] = (f"{HIDDEN_PREFIX}last",)
    times: Ints

    @property
    def keys(self) -> Ints:
        """The keys by number."""
        return self.entries.keys


class RunningKeys:
    """The keys of one bucket, for one batch."""

    def __init__(self, plan: RunningPlan, tables: Sequence[pa.Table]) -> None:
        """tables: the rows of the log, oldest first."""
        self._plan = plan
        self._keys = KeyDictionary(plan.key_fields)
        self._changed = np.empty(0, np.int64)
        known = Elements.of_tables(plan, self._keys, tables)
        self.elements = known.take_rows(newest([known.keys]))

    def numbers_of(self, rows: pa.Table) -> Ints:
        """Return the number of each row's key."""
        return self._keys.numbers_of(rows)

    def go_on(self, rows: Elements) -> list[pa.Array]:
        """Return the aggregates of rows, which are in order of event time; update the state of their keys."""
        before = self._of(sorted_distinct(rows.keys))
        both = Elements.together(self._plan, [before, rows])
        order = np.argsort(both.keys, kind="stable")
        both = both.take_rows(order)
        begins = np.diff(both.keys, prepend=-1) != 0
        last = np.append(np.flatnonzero(begins)[1:], len(both)) - 1  # of each key
        if self._plan.keep_ms is not None:
            begins |= np.diff(both.times, prepend=0) > self._plan.keep_ms
        first = np.maximum.accumulate(np.where(begins, np.arange(len(both)), 0))
        self._learn(both, first, last)
        row_places = np.flatnonzero(order >= len(before))
        counts = add_by_span(both.entries.rows, first[row_places], row_places + 1)
        back = pa.array(np.argsort(order[row_places]))
        return [
            to_arrow(function.finish(_up_to(function, columns, first, row_places), counts)).take(back)
            for function, columns in zip(self._plan.functions, both.entries.accumulators, strict=True)
        ]

    def live(self, watermark_ms: int) -> Elements:
        """Return the last elements of keys that later rows may continue."""
        keep_ms = self._plan.keep_ms
        if keep_ms is None:
            return self.elements
        return self.elements.take_rows(np.flatnonzero(~is_behind(self.elements.times + keep_ms, watermark_ms)))

    def changed(self) -> pa.Table:
        """Return the changes of `go_on` as a table of the log."""
        return self.table(self._of(sorted_distinct(self._changed)))

    def table(self, some: Elements) -> pa.Table:
        """Return the elements of some keys as a table of the log."""
        return some.table(self._plan, self._keys)

    def _learn(self, both: Elements, first: Ints, last: Ints) -> None:
        """Store the accumulators of each key from its beginning to its last row."""
        newest = np.repeat(first[last], np.diff(last, prepend=-1))
        of_key = np.repeat(np.arange(len(last)), np.diff(last, prepend=-1))
        places = np.flatnonzero(np.arange(len(both)) >= newest)
        groups = Groups(of_key[places], len(last))
        entries = merged(self._plan, both.entries.take_rows(places), groups, both.keys[last])
        self._replace(Elements(entries, both.times[last]))
        self._changed = np.concatenate([self._changed, both.keys[last]])

    def _replace(self, newer: Elements) -> None:
        """Replace the state of these keys, which ascend."""
        places, known = self._places(newer.keys)
        order, behind = np.arange(len(self.elements)), len(self.elements) + np.arange(len(newer))
        order[places[known]] = behind[known]
        self.elements = Elements.together(self._plan, [self.elements, newer]).take_rows(
            np.insert(order, places[~known], behind[~known])
        )

    def _places(self, keys: Ints) -> tuple[Ints, Flags]:
        """Return the places of these keys among the known keys, and which of them are known."""
        places = np.searchsorted(self.elements.keys, keys)
        known = places < len(self.elements)
        known[known] = self.elements.keys[places[known]] == keys[known]
        return places, known

    def _of(self, keys: Ints) -> Elements:
        """Return the state of the known keys among these, in their order."""
        places, known = self._places(keys)
        return self.elements.take_rows(places[known])


def _up_to(function: AggregateFunction, columns: Sequence[Column], first: Ints, row_places: Ints) -> Sequence[Column]:
    """Return for each requested element the merged elements from its `first` up to it, for `finish`."""
    if not isinstance(function, ListAggregate):
        return function.spans(columns, Spans(first[row_places], row_places + 1))
    places, step = (
        np.arange(len(first)),
        1,
    )  # lists of each range would be quadratic: merge neighbours, then farther ones
    while (reach := np.flatnonzero(places - step >= first)).size:
        both = [concat([column, values_at(column, reach - step)]) for column in columns]
        columns = function.merge(both, Groups(np.concatenate([places, reach]), len(first)))
        step *= 2
    return [values_at(column, row_places) for column in columns]
