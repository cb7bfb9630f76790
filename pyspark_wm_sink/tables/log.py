"""The log of a table of any format, and the questions that the sink and commands ask it.

Rule: a format yields its commits, and says which batch of a query is the newest. Everything else is decided here.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

from pyspark_wm_sink.batch.record import Published, Record


@dataclass(frozen=True, kw_only=True, slots=True)
class Commit:
    """One commit of a table. version: of Delta, or the id of a snapshot of Iceberg. at_ms: when its writer made
    it.

    name: as messages name it, with the operation and the library. text: the text of its record, None for another
    writer's commit. is_current: its rows are in the table, or were replaced since; no restore has removed them.
    """

    version: int
    at_ms: int | None
    name: str
    text: str | None
    is_current: bool

    @property
    def record(self) -> Record | None:
        """The record; raises FormatError if it is damaged or of a later version."""
        return None if self.text is None else Record.from_json(self.text)

    def record_of(self, query: str) -> Record | None:
        """Return the record if it is this query's, else None; raises FormatError as `record` does."""
        is_of_another = self.text is not None and '"query"' in self.text and json.dumps(query) not in self.text
        record = None if is_of_another else self.record  # most records of other queries are not even parsed
        return record if record is not None and record.query == query else None


@dataclass(frozen=True, kw_only=True, slots=True)
class NewestBatch:
    """A query's newest batch in a table. record, version: its record and commit, None if the log no longer has them.

    is_restored_behind: the table has an older version again, without rows of this batch.
    """

    batch: int
    record: Record | None
    version: int | None
    is_restored_behind: bool = False


class TableLog(ABC):
    """The log of a table as it is at one moment."""

    @abstractmethod
    def commits(self) -> Iterator[Commit]:
        """Yield the commits that the log still has, the newest first."""

    @abstractmethod
    def newest(self, query: str) -> NewestBatch | None:
        """Return the newest batch of a query that was published to the table, None if there is none."""

    def newest_commit(self) -> str:
        """Name the newest commit."""
        return next(self.commits()).name

    def queries(self) -> Iterable[str]:
        """Return the queries that wrote to the table."""
        records = [commit.record for commit in self.commits() if commit.is_current]
        return dict.fromkeys(record.query for record in records if record is not None and record.query is not None)


def record_of(log: TableLog, newest: NewestBatch, query: str, batch: int) -> Record | None:
    """Return the record of one batch, None if the log no longer has it. newest: this query's newest batch."""
    if newest.record is not None and newest.record.batch == batch:
        return newest.record
    records = (commit.record_of(query) for commit in log.commits())
    return next((record for record in records if record is not None and record.batch == batch), None)


def is_removed(log: TableLog, newest: NewestBatch, query: str, batch: int) -> bool:
    """Whether a restore has removed the rows of a published batch. newest: the query's newest batch.

    False also if the log no longer has the commits of the batch.
    """
    if newest.batch == batch:
        return newest.is_restored_behind
    published = [commit.is_current for commit in log.commits() if (record := commit.record_of(query)) is not None
                 and record.batch == batch]  # fmt: skip
    return bool(published) and not any(published)


def current_record(log: TableLog, query: str) -> Record | None:
    """Return the newest record of a query whose rows are in the table now, None if the log has none."""
    newest = log.newest(query)
    if newest is not None and newest.record is not None and not newest.is_restored_behind:
        return newest.record
    return next(filter(None, (commit.record_of(query) for commit in log.commits() if commit.is_current)), None)


def current_records(log: TableLog) -> dict[str, Record]:
    """Return for each query the newest record whose rows are in the table now, as far back as the log reaches."""
    records = {query: current_record(log, query) for query in log.queries()}
    return {query: record for query, record in records.items() if record is not None}


def has_attempt(log: TableLog, attempt: str) -> bool:
    """Whether a commit is the one of this attempt."""
    records = (commit.record for commit in log.commits())
    return any(record is not None and record.attempt == attempt for record in records)


def newest_records(log: TableLog, most: int) -> list[Published]:
    """Return the newest records of keyedwm whose rows are in the table, at most `most`, oldest first.

    If all commits of a query have expired, its record is the one that the table itself keeps.
    """
    commits = (commit for commit in log.commits() if commit.is_current and commit.text is not None)
    records = [
        Published(commit.version, commit.at_ms, record)
        for commit in islice(commits, most)
        if (record := commit.record) is not None
    ]
    if len(records) == most:
        return records[::-1]
    others = set(log.queries()) - {published.record.query for published in records}
    expired = [
        Published(newest.version, None, newest.record)
        for query in sorted(others)
        if (newest := log.newest(query)) is not None and newest.record is not None and newest.version is not None
    ]
    return [*expired, *reversed(records)]
