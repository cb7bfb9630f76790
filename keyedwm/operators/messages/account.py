"""What becomes of the messages of a store: counts that add up, and the messages that are given back with a reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import fields

import pyarrow as pa
import pyarrow.compute as pc

from keyedwm.arrow.columns import Ints
from keyedwm.operators.messages.plan import Reason, StorePlan
from keyedwm.operators.messages.retention import StoreCounts


class Account:
    """The counts since the store was new, and what was given back since the last call."""

    def __init__(self, plan: StorePlan, facts: Mapping[str, int]) -> None:
        """facts: as `facts` gave them."""
        self._plan = plan
        self.late_rows = 0
        self._counts = Counter(facts)
        self._rejected: list[pa.Table] = []

    @property
    def counts(self) -> StoreCounts:
        """What became of all messages."""
        return StoreCounts(**{one.name: self._counts[one.name] for one in fields(StoreCounts)})

    def facts(self) -> dict[str, int]:
        """Return what a later instance needs to know, ready for JSON."""
        return {name: count for name, count in sorted(self._counts.items()) if count}

    def add(self, **counts: int) -> None:
        """Count messages; see `StoreCounts`."""
        self._counts.update({name: int(count) for name, count in counts.items()})

    def reject(self, rows: pa.Table, reason: Reason) -> None:
        """Give messages back."""
        if not rows.num_rows:
            return
        self._counts["rejected"] += rows.num_rows
        self.late_rows += rows.num_rows if reason is Reason.RETENTION else 0
        told = pa.repeat(reason.value, rows.num_rows)
        self._rejected.append(
            pa.Table.from_arrays([*rows.columns, told], schema=self._plan.rejected_schema).combine_chunks()
        )

    def with_time(self, rows: pa.Table, numbers: Ints) -> tuple[pa.Table, Ints]:
        """Return the messages that have an event time, with the numbers of theirs; give back the others."""
        missing = rows[self._plan.time].is_null()
        if not rows[self._plan.time].null_count:
            return rows, numbers
        self.reject(rows.filter(missing), Reason.NO_TIME)
        kept = pc.invert(missing)
        return rows.filter(kept), numbers[kept.to_numpy()]

    def rejected(self) -> pa.Table:
        """Return the messages that were given back since the last call (`plan.rejected_schema`)."""
        tables, self._rejected = self._rejected, []
        return pa.concat_tables([self._plan.rejected_schema.empty_table(), *tables])
