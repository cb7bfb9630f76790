"""A running query, driven by hand: records in, what came out since the last time."""

from __future__ import annotations

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

    def __init__(self, bootstrap: str, frame: Callable[[], DataFrame], directory: Path) -> None:
        self.bootstrap, self._frame = bootstrap, frame
        self._checkpoint = str(directory / uuid.uuid4().hex)
        self.progress: list[Any] = []
        self.rows: dict[int, list[Row]] = {}
        self._seen = -1
        self._may_end, self._waits = threading.Event(), False
        self._may_end.set()
        self._start()

    def _start(self) -> None:
        writer = self._frame().writeStream.foreachBatch(self._collect)
        (self.query,) = start_in_turn(writer.option("checkpointLocation", self._checkpoint))

    def _collect(self, batch: DataFrame, number: int) -> None:
        """A batch that was interrupted comes again, under the same number."""
        self.rows[number] = batch.collect()
        self._waits = True
        self._may_end.wait(PATIENCE_S)
        self._waits = False

    def hold(self) -> None:
        """Let the next batch end when `let_go` is called, and no batch begin before."""
        self._may_end.clear()

    def held(self) -> bool:
        """Whether a batch waits."""
        return self._waits and not self._may_end.is_set()

    def let_go(self) -> None:
        """Go on after `hold`."""
        self._may_end.set()

    @property
    def checkpoint(self) -> str:
        """Where the query notes how far it has come."""
        return self._checkpoint

    def restart(self) -> None:
        """Stop, and go on from the checkpoint."""
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
        found: dict[str, Any] = {}
        for progress in [*self.progress, *self.query.recentProgress]:
            for observed in progress.observedMetrics.values():
                for name, value in observed.asDict().items():
                    found[name] = (value or 0) + found.get(name, 0) if name.endswith("_rows") else value or 0
        return found

    def stop(self) -> None:
        self.progress += self.query.recentProgress
        self.query.stop()


def in_one_batch(
    queries: Sequence[Started], given: Sequence[tuple[str, Sequence[Record]]], before: Record = AHEAD
) -> list[list[Row]]:
    """Let each query take all of it in one batch, behind one of `before` alone; return what came out of each.

    Which panes and pairs are early or late depends on the cut, and a query that runs may begin a batch while records
    are produced: so they are produced while a batch waits for its end.
    """
    for query in queries:
        query.query.processAllAvailable()
        query.hold()
    try:
        produce(queries[0].bootstrap, given[0][0], [before])
        for query in queries:
            wait_until(query.held, "the batch before")
        for topic, records in given:
            produce(queries[0].bootstrap, topic, records)
    finally:
        for query in queries:
            query.let_go()
    return [query.give("", []) for query in queries]


def panes(rows: Sequence[Row]) -> list[tuple[int, int, Any, Any]]:
    """Result rows as (start, end, key, n), times above the base; control rows left out."""
    return [
        (_ms(row["window"]["start"]), _ms(row["window"]["end"]), getattr(row, "k", None), row["n"])
        for row in rows
        if getattr(row, "control", None) is None
    ]


def _ms(moment: Any) -> int:
    return round(moment.timestamp() * 1_000) - BASE_MS
