"""What a query keeps, day by day: its entry in the offset log, its states, its records at the target, its memory.

Rule: none of it grows with the days, only with the partitions. The driver's memory is the number of objects that its
reader, its writer and its clients refer to; the world's own are not counted.
"""

from __future__ import annotations

import gc
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import TYPE_CHECKING, Any

from keyedwm.kafka.requests import cluster as cluster_module
from keyedwm.testing.simulated_kafka.brokers import Brokers
from tests.system.world.faults import Faults
from tests.system.world.query import Query
from tests.system.world.targets import Target
from tests.system.world.wire import SimulatedConnection

if TYPE_CHECKING:
    from tests.system.world.week import Week

_EARLY_DAYS = 3
_MORE = 1.3  # what may come from chance
_SLACK = 250  # bytes, objects
_BOUNDED = ("entry", "states", "state bytes", "records", "objects")
_NOT_COUNTED = (
    type, ModuleType, FunctionType, BuiltinFunctionType, MethodType, Brokers, Faults, Query, Target,
    SimulatedConnection,
)  # fmt: skip


def objects(roots: Iterable[Any]) -> int:
    """How many objects can be reached from these."""
    reached_ids: set[int] = set()
    pending = list(roots)
    while pending:
        value = pending.pop()
        if id(value) not in reached_ids and not isinstance(value, _NOT_COUNTED):
            reached_ids.add(id(value))
            pending += gc.get_referents(value)
    return len(reached_ids)


def measured(week: Week) -> dict[str, int]:
    """The sizes of today."""
    query = week.queries[0]
    offsets, life = query.checkpoint.offsets, query.current
    group = week.brokers.groups.get(json.loads(offsets[-1])["group"], {}) if offsets else {}
    return {
        "partitions": len(week.feeder.records),
        "batches": sum(len(one.checkpoint.offsets) for one in (*week.moved, query)),
        "entry": len(offsets[-1]) if offsets else 0,
        "states": len(group),
        "state bytes": sum(len(text) for _, text in group.values()),
        "records": week.target.kept(query.checkpoint.query),
        "objects": objects([life._reader, life._writer, cluster_module._shared]) if life else 0,
    }


@dataclass(slots=True)
class Table:
    """A line for each day."""

    days: list[dict[str, int]] = field(default_factory=list)

    def add(self, week: Week) -> None:
        self.days.append(measured(week))

    def lines(self) -> tuple[str, ...]:
        names = list(self.days[0])
        rows = [["day", *names], *([str(day), *map(str, sizes.values())] for day, sizes in enumerate(self.days, 1))]
        return tuple("  ".join(text.rjust(len(name)) for text, name in zip(row, rows[0], strict=True)) for row in rows)

    def growth(self) -> list[str]:
        """Sentences about what has grown in the later days, beyond the partitions and chance."""
        early, later = self.days[:_EARLY_DAYS], self.days[_EARLY_DAYS:]
        sentences = []
        for name in _BOUNDED:
            most = max(day[name] / day["partitions"] for day in early) * _MORE
            sentences += [
                f"{name} grows: {[sizes[name] for sizes in self.days]} over the days"
                for day in later
                if day[name] > most * day["partitions"] + _SLACK
            ][:1]
        return sentences
