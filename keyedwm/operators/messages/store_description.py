"""The description of windows that keep their messages: it identifies their state, and is needed to read it.

Rule: limits, and intervals of late panes, may change, since they decide what happens next and not what the state means.
A plan that is made from a description lists the state of an operator of the described plan, and computes nothing. Its
aggregates are only texts, so a user's own functions are not needed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import pyarrow as pa

from keyedwm.core.errors import OutOfTurnError
from keyedwm.operators.messages.contents import KINDS
from keyedwm.operators.messages.functions import FullState
from keyedwm.operators.messages.plan import StorePlan
from keyedwm.operators.messages.retention import MOST, Retention
from keyedwm.operators.messages.windows import AnyWindow, CompletedBy, WindowKind, kind_of
from keyedwm.operators.panes import Early, EveryBy
from keyedwm.operators.plan_checks import FARTHEST_MS
from keyedwm.operators.state.description import KIND, columns, described, schema_of
from keyedwm.operators.state.manifest import ManifestFormat

STORE = "store"
VERSION = 3
FORMAT = ManifestFormat(
    state="window store", version=VERSION, readable=(VERSION,),
    unchanged="windows, by, aggregates, the messages' columns, full, early panes, the kind of late panes and "
    "accumulating",
)  # fmt: skip


def describe(plan: StorePlan) -> dict[str, Any]:
    """Return the description of a plan, ready for JSON."""
    late = {
        "together": plan.late_every_ms is not None, "by_count": plan.late_rows is not None, "by": plan.late_by.value,
    }  # fmt: skip
    return {
        "kind": STORE, "window": describe_window(plan.kind), "full": plan.full.value, "early": described(plan.early),
        "late": late, "accumulating": plan.accumulating, "by": list(plan.by), "time": plan.time,
        "record": list(plan.record), "aggregates": [[name, spec.describe()] for name, spec in plan.aggregates],
        **columns(plan.schema),
    }  # fmt: skip


def plan_of(description: Mapping[str, Any]) -> StorePlan:
    """Return a plan from this description, to list held messages; its retention is a placeholder."""
    window, early, late = read_window(description["window"]), description["early"], description["late"]
    topic, partition, offset = description["record"]
    return StorePlan(
        schema=schema_of(description), by=tuple(description["by"]), window=window, retention=any_retention(window),
        aggregates=tuple((name, DescribedAggregate(text)) for name, text in description["aggregates"]),
        time=description["time"], topic=topic, partition=partition, offset=offset,
        full=CompletedBy(description["full"]),
        early=None if early is None else Early(early["rows"], early["every_ms"], EveryBy(early["by"])),
        late_every_ms=1 if late["together"] else None, late_rows=1 if late["by_count"] else None,
        late_by=EveryBy(late["by"]), accumulating=description["accumulating"],
    )  # fmt: skip


def describe_window(kind: WindowKind) -> dict[str, Any]:
    """Return the description of windows."""
    return {KIND: kind.called, **kind.describe()}


def read_window(description: Mapping[str, Any]) -> AnyWindow:
    """Return the windows of a description."""
    return KINDS[description[KIND]].read({name: value for name, value in description.items() if name != KIND})


def any_retention(window: AnyWindow) -> Retention:
    """Return a retention that such windows can have."""
    return Retention(max_messages=MOST) if kind_of(window).is_rows else Retention(time_ms=FARTHEST_MS)


@dataclass(frozen=True, slots=True)
class DescribedAggregate:
    """An aggregate of which only the description is known; see `functions.FullStateSpec`."""

    text: str

    def inputs(self, _names: Sequence[str]) -> tuple[str, ...]:
        """Return no columns: the text names none."""
        return ()

    def over_messages(self, _schema: pa.Schema) -> FullState:
        """Return a placeholder: a plan of a description computes nothing."""
        return _Unknown()

    def describe(self) -> str:
        """Return the description."""
        return self.text


@dataclass(frozen=True, slots=True)
class _Unknown:
    result = pa.null()

    def over(self, _window: object) -> NoReturn:
        """Raise OutOfTurnError."""
        raise OutOfTurnError("a plan that only lists stored messages computes nothing")

    def of_nothing(self, _count: int) -> NoReturn:
        """Raise OutOfTurnError."""
        raise OutOfTurnError("a plan that only lists stored messages computes nothing")
