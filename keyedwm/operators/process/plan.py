"""The plan of a user's own operator: its inputs and keys, and the columns that the processor emits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from keyedwm.arrow.columns import as_key, contiguous
from keyedwm.core.errors import OptionError
from keyedwm.operators.exchange_input import ExchangeInput
from keyedwm.operators.keyed.per_key import PerKey
from keyedwm.operators.operator_spec import OperatorSpec
from keyedwm.operators.plan_checks import check_key_type, check_named_once
from keyedwm.operators.process.processor import KEY_WATERMARK, RISEN, Processor
from keyedwm.operators.results import HIDDEN_PREFIX
from keyedwm.operators.state.description import described, typed

# The columns with the partition of a row.
PARTITION = ("topic", "partition")


@dataclass(frozen=True, kw_only=True)
class ProcessInput(ExchangeInput):
    """One input. schema: the columns of its rows. by: key columns, none for all rows together. time: the column with
    the event time in ms, which a processor does not see. owners: the key columns by which rows are spread, by default
    all.
    """

    schema: pa.Schema
    by: tuple[str, ...]
    time: str
    owners: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_named_once("process: by", self.by)
        object.__setattr__(self, "owners", self.owners or self.by)
        for name in self.by:
            check_key_type(name, self.schema.field(name).type, "process: ")

    @property
    def spread_by(self) -> tuple[str, ...]:
        """The key columns by which rows are spread."""
        return self.owners

    def exchange_rows(self, rows: pa.Table) -> pa.Table:
        """Return the rows that are shipped: rows with an event time; equal keys have equal representations."""
        rows = rows.filter(pc.is_valid(rows[self.time]))
        for name in self.by:
            rows = rows.set_column(rows.column_names.index(name), rows.field(name), as_key(contiguous(rows[name])))
        return rows


@dataclass(frozen=True, kw_only=True)
class ProcessPlan(OperatorSpec):
    """One operator. inputs: in the order of their numbers. make: returns a processor. result: columns of the result
    without times. called, version: the processor's name and version. key_watermark: the settings of keys' own
    watermarks. short_name: the prefix of the generated name, if the user gave none.
    """

    kind = "process"
    inputs: tuple[ProcessInput, ...]
    make: Callable[[], Processor]
    result: pa.Schema
    called: str
    version: int
    key_watermark: PerKey | None = None
    short_name: str = kind

    def __post_init__(self) -> None:
        first = self.inputs[0]
        if self.key_watermark is not None:
            check_per_key(self.inputs, self.key_watermark)
        for number, other in enumerate(self.inputs):
            for name in first.by:
                here, there = first.schema.field(name).type, other.schema.field(name).type
                if here != there:
                    raise OptionError(
                        f"process: the key column {name!r} is of type {here} in input 0 and {there} in input {number}, "
                        f"so equal keys would not meet: cast one of them"
                    )

    @property
    def owners(self) -> tuple[str, ...]:
        """The key columns by which keys are spread over buckets: those that own a watermark, by default all."""
        return self.inputs[0].owners

    @property
    def owner_fields(self) -> list[pa.Field]:
        """The key columns that own a watermark, with their Arrow types."""
        return [self.inputs[0].schema.field(name) for name in self.owners]

    @property
    def channel(self) -> tuple[str, ...]:
        """The columns with the partition of a row, if a key's watermark follows its slowest partition."""
        return PARTITION if self.key_watermark is not None and self.key_watermark.slowest else ()

    @property
    def result_schema(self) -> pa.Schema:
        """The columns that the operator emits."""
        return self.result

    @property
    def by_clock(self) -> bool:
        """Whether the processor is called by the wall clock."""
        return self.make().uses_clock

    @cached_property
    def _description(self) -> dict[str, Any]:
        inputs = [{"name": f"input {at}", "schema": typed(one.schema)} for at, one in enumerate(self.inputs)]
        by = list(self.inputs[0].by)
        description = {"kind": self.kind, "processor": self.called, "version": self.version, "by": by, "inputs": inputs}
        return description | ({} if self.key_watermark is None else {"key_watermark": described(self.key_watermark)})

    def description(self) -> dict[str, Any]:
        """Return the plan's description, which decides whether a state belongs to it."""
        return self._description


def check_per_key(inputs: Sequence[ProcessInput], per_key: PerKey) -> None:
    """Raise OptionError for inputs whose keys cannot have their own watermarks."""
    if len(inputs) > 1:
        raise OptionError(
            f"process: key_watermark with {len(inputs)} inputs: a key has one watermark, over rows of one input: put "
            "the inputs together before, or leave key_watermark out"
        )
    (only,) = inputs
    per_key.check_plan(only.by, 0, None)
    names = only.schema.names
    missing = [name for name in PARTITION if name not in names] if per_key.slowest else []
    if missing:
        raise OptionError(
            f"process: key_watermark follows the partitions of a key, and the frame has no column {missing[0]!r}: keep "
            "topic and partition as the source has them, or give per_key(..., partitions='fastest')"
        )
    reserved_key = next((name for name in only.owners if name.startswith(HIDDEN_PREFIX)), None)
    if reserved_key is not None:
        raise OptionError(
            f"process: with key_watermark a key column cannot be called {reserved_key!r}: names that begin with "
            f"{HIDDEN_PREFIX} are taken by the state of each key; rename it"
        )
    reserved = next((name for name in (KEY_WATERMARK, *(set(RISEN) & set(only.owners))) if name in names), None)
    if reserved is not None:
        raise OptionError(
            f"process: with key_watermark a column cannot be called {reserved!r}: the processor gets one of that name; "
            "rename it"
        )
