"""Records that came back unread, among the rows of any input: they leave as they came, and nothing else changes."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from keyedwm.arrow.schema import REJECTED_TYPE
from keyedwm.core.rows import REJECTED, WATERMARK


class Rejected:
    """What was mixed in and what came out, batch by batch."""

    def __init__(self) -> None:
        self._chance = random.Random("given back")
        self._number = 0
        self._expected: list[dict[str, Any]] = []
        self._actual: list[dict[str, Any]] = []

    def records(self, topic: str = "t") -> list[dict[str, Any]]:
        """Return a few records, none of them equal to another one, that will have to come out."""
        new_records = []
        for _ in range(self._chance.choice([0, 0, 1, 3])):
            self._number += 1
            values = {
                "key": None,
                "value": b"\xff%d" % self._number,
                "topic": topic,
                "partition": 0,
                "offset": self._number,
            }
            new_records.append({**values, "timestamp": None, "timestampType": 0, "headers": None, "reason": "why"})
        self._expected += new_records
        return new_records

    def place(self, rows: int) -> int:
        """Return a place among so many rows."""
        return self._chance.randint(0, rows)

    def among(self, table: pa.Table) -> pa.Table:
        """Return rows as stage one is given them, with records among them: the column before the last is theirs."""
        order: list[int | None] = list(range(table.num_rows))
        records = [None] * table.num_rows
        for record in self.records():
            at = self.place(len(order))
            order.insert(at, None)
            records.insert(at, record)
        rows = table.take(pa.array(order, pa.int64()))
        columns = [*rows.columns[:-1], pa.array(records, REJECTED_TYPE), rows.columns[-1]]
        return pa.table(columns, [str(at) for at in range(len(columns))])

    def out_of(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Take the records out of a result; their rows have nothing else."""
        there = pc.is_valid(rows.column(REJECTED))
        back = rows.filter(there)
        self._actual += back.column(REJECTED).to_pylist()
        others = [name for name in rows.schema.names if name != REJECTED and not name.startswith(WATERMARK)]
        assert all(back.column(name).null_count == back.num_rows for name in others)
        return rows.filter(pc.invert(there)).drop_columns([REJECTED])

    def check(self) -> None:
        """All that was given came, once."""
        assert sorted(one["offset"] for one in self._actual) == sorted(one["offset"] for one in self._expected)
        assert all(one in self._expected for one in self._actual)
        self._expected, self._actual = [], []
