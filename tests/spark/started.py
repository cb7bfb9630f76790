"""A running query, driven by hand: records in, what came out since the last time."""

from __future__ import annotations

import math
import threading
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from keyedwm.spark import start_in_turn
from tests.tools import PATIENCE_S, Record, produce, wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row

# The steering partition: with idleTimeout=none the coalesced watermark is its own, once the others are far ahead.
EVENTS, STEERING = 0, 1
BASE_MS = 1_000_000 * 27_720
FAR_MS = 1_500_000_000_000


def steer(ms: int) -> Record:
    """A record that moves the coalesced watermark to `ms` above the base."""
    return Record(STEERING, BASE_MS + ms, None, b"steering")


def event(ms: int, key: str = "", value: int = 1) -> Record:
    """An event at `ms` above the base."""
    return Record(EVENTS, BASE_MS + ms, b"%d" % value, key.encode())


# Ahead of everything, so that the partition of events never holds the watermark.
AHEAD = Record(EVENTS, FAR_MS, None, b"steering")


def keyed(rows: DataFrame) -> DataFrame:
    """Source rows with `k` and `v`; the steering records are filtered, control rows are not."""
    events = rows.where("control IS NOT NULL OR cast(key as string) <> 'steering'")
    return events.selectExpr("*", "cast(key as string) k", "cast(cast(value as string) as bigint) v")


class Started:
    """The query, its rows and its progress."""

    def __init__(self, bootstrap: str, frame: Callable[[], DataFrame], directory: Path, *, later: bool = False) -> None:
        self.bootstrap, self._frame = bootstrap, frame
        self._checkpoint = str(directory / uuid.uuid4().hex)
        self.progress: list[Any] = []
        self.rows: dict[int, list[Row]] = {}
        self._seen = -1
        self._may_end = threading.Condition()
        self._last_to_end = math.inf
        self.query: Any = None
        self._runs = False
        if not later:
            self._start()

    def _start(self) -> None:
        writer = self._frame().writeStream.foreachBatch(self._collect)
        (self.query,) = start_in_turn(writer.option("checkpointLocation", self._checkpoint))
        self._runs = True

    def _collect(self, batch: DataFrame, number: int) -> None:
        """A batch that was interrupted comes again, under the same number."""
        rows = batch.collect()
        with self._may_end:
            self.rows[number] = rows
            self._may_end.wait_for(lambda: number <= self._last_to_end, PATIENCE_S)

    def next_batch(self) -> list[Row]:
        """Let the batch that waits end, and return the rows of the one behind it, which waits for its end in turn.

        The query is started if it does not run.
        """
        with self._may_end:
            before = self._last_to_end = max(self.rows, default=-1)
            self._may_end.notify_all()
        if not self._runs:
            self._start()
        wait_until(lambda: before + 1 in self.rows or not self.query.isActive, "the next batch")
        assert before + 1 in self.rows, self.query.exception()
        self._seen = before + 1
        return self.rows[before + 1]

    def _let_go(self) -> None:
        """Let a batch that waits end, and those behind it."""
        with self._may_end:
            waits, self._last_to_end = self._last_to_end != math.inf, math.inf
            self._may_end.notify_all()
        if waits and self.query.isActive:
            self.query.processAllAvailable()

    @property
    def checkpoint(self) -> str:
        """Where the query notes how far it has come."""
        return self._checkpoint

    def restart(self) -> None:
        """Stop, and continue from the checkpoint."""
        self.stop()
        self._start()

    def give(self, topic: str, records: Sequence[Record]) -> list[Row]:
        """Produce records, wait until they are worked off, and return the rows that came out."""
        if records:
            produce(self.bootstrap, topic, records)
        self.query.processAllAvailable()
        fresh = {number: rows for number, rows in self.rows.items() if number > self._seen}
        self._seen = max(self.rows, default=-1)
        self.batches = {number for number, rows in fresh.items() if any(row["control"] is None for row in rows)}
        return [row for rows in fresh.values() for row in rows]

    @property
    def last_batch(self) -> int:
        """The number of the last batch that came out of `give`."""
        return self._seen

    def metrics(self) -> dict[str, Any]:
        """The aggregate's observed metrics, late and timeless rows added up over batches, the rest as of the last."""
        self._let_go()
        found: dict[str, Any] = {}
        for progress in [*self.progress, *(self.query.recentProgress if self._runs else ())]:
            for observed in progress.observedMetrics.values():
                for name, value in observed.asDict().items():
                    found[name] = (value or 0) + found.get(name, 0) if name.endswith("_rows") else value or 0
        return found

    def stop(self) -> None:
        """Stop, when a batch that waits has ended."""
        if not self._runs:
            return
        self._let_go()
        self.progress += self.query.recentProgress
        self.query.stop()
        self._runs = False


def in_one_batch(queries: Sequence[Started], given: Sequence[tuple[str, Sequence[Record]]]) -> list[list[Row]]:
    """Let each query take all of it in one batch; return what came out of each.

    Which panes and pairs are early or late depends on the cut, and a query that runs may begin a batch while records
    are produced: so they are produced while a batch waits for its end, or before the query starts.
    """
    for topic, records in given:
        produce(queries[0].bootstrap, topic, records)
    return [query.next_batch() for query in queries]


def panes(rows: Sequence[Row]) -> list[tuple[int, int, Any, Any]]:
    """Result rows as (start, end, key, n), times above the base; control rows left out."""
    return [
        (_ms(row["window"]["start"]), _ms(row["window"]["end"]), getattr(row, "k", None), row["n"])
        for row in rows
        if getattr(row, "control", None) is None
    ]


def _ms(moment: Any) -> int:
    return round(moment.timestamp() * 1_000) - BASE_MS
