"""The plan of a user's own operator: what comes in, by which keys, and what the processor emits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from keyedwm.arrow.columns import as_key, contiguous
from keyedwm.core.errors import OptionError
from keyedwm.operators.process.processor import Processor
from keyedwm.operators.state.description import digest_of, typed


@dataclass(frozen=True, kw_only=True)
class ProcessInput:
    """One input. schema: of its rows; by: key columns, none for all rows together; time: the column with the event time
    in ms, which a processor does not see.
    """

    schema: pa.Schema
    by: tuple[str, ...]
    time: str

    def __post_init__(self) -> None:
        for name in self.by:
            if pa.types.is_nested(self.schema.field(name).type):
                raise OptionError(
                    f"process: the key column {name!r} is of type {self.schema.field(name).type}, which cannot be a key"
                )

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that are shipped."""
        return tuple(self.schema.names)

    def staged(self, rows: pa.Table) -> pa.Table:
        """Return the rows that are shipped: those with an event time, keys such that equal ones are alike."""
        rows = rows.filter(pc.is_valid(rows[self.time]))
        for name in self.by:
            rows = rows.set_column(rows.column_names.index(name), rows.field(name), as_key(contiguous(rows[name])))
        return rows


@dataclass(frozen=True, kw_only=True)
class ProcessPlan:
    """One operator. inputs: in the order of their numbers; make: gives a processor; result: columns of the result but
    for its times; called, version: of the processor.
    """

    inputs: tuple[ProcessInput, ...]
    make: Callable[[], Processor]
    result: pa.Schema
    called: str
    version: int

    def __post_init__(self) -> None:
        first = self.inputs[0]
        for number, other in enumerate(self.inputs):
            for name in first.by:
                here, there = first.schema.field(name).type, other.schema.field(name).type
                if here != there:
                    raise OptionError(
                        f"process: the key column {name!r} is of type {here} in input 0 and {there} in input {number}, "
                        f"so equal keys would not meet: cast one of them"
                    )

    @property
    def earlier_digests(self) -> tuple[str, ...]:
        """None: a processor was never known by its code."""
        return ()

    @property
    def result_schema(self) -> pa.Schema:
        """Of what the operator emits."""
        return self.result

    @property
    def by_clock(self) -> bool:
        """Whether the processor is told the wall clock."""
        return self.make().uses_clock

    @cached_property
    def _description(self) -> dict[str, Any]:
        inputs = [{"name": f"input {at}", "schema": typed(one.schema)} for at, one in enumerate(self.inputs)]
        by = list(self.inputs[0].by)
        return {"kind": "process", "processor": self.called, "version": self.version, "by": by, "inputs": inputs}

    def description(self) -> dict[str, Any]:
        """Return the plan's description: what decides whose state it is."""
        return self._description

    def digest(self) -> str:
        """Return a short text that differs when the state of one plan cannot be used by the other."""
        return digest_of(self._description)
