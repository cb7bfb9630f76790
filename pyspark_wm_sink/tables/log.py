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
    writer's commit. is_current: its rows are in the table, or were replaced since; no restore has removed them. None:
    unknown, because the log does not show what a restore led to.
    """

    version: int
    at_ms: int | None
    name: str
    text: str | None
    is_current: bool | None

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

    is_restored_behind: the table has an older version again, without rows of this batch, or this is unknown.
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
        """Return the queries that wrote to the table, without those whose rows a restore removed."""
        records = [commit.record for commit in self.commits() if commit.is_current is not False]
        return dict.fromkeys(record.query for record in records if record is not None and record.query is not None)


def record_of(log: TableLog, newest: NewestBatch, query: str, batch: int) -> Record | None:
    """Return the record of one batch, None if the log no longer has it. newest: this query's newest batch.

    A batch can have several records: a restore removed its rows, and it was published again. One of rows that are in
    the table comes first.
    """
    if newest.record is not None and newest.record.batch == batch and not newest.is_restored_behind:
        return newest.record
    commits = list(_commits_of(log, query, batch))
    commit = next((one for one in commits if one.is_current), commits[0] if commits else None)
    return None if commit is None else commit.record


def _commits_of(log: TableLog, query: str, batch: int) -> Iterator[Commit]:
    for commit in log.commits():
        record = commit.record_of(query)
        if record is not None and record.batch == batch:
            yield commit


def is_removed(log: TableLog, newest: NewestBatch, query: str, batch: int) -> bool:
    """Whether a restore has removed, or may have removed, the rows of a batch. newest: the query's newest batch."""
    if newest.batch == batch and not newest.is_restored_behind:
        return False
    states = [commit.is_current for commit in _commits_of(log, query, batch)]
    if True in states:
        return False
    if not newest.is_restored_behind:
        return False in states and None not in states
    if states:
        return True
    current = current_record(log, query)  # the log no longer has the commits of the batch
    return current is None or current.batch is None or batch > current.batch


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


def queries_in_doubt(log: TableLog) -> list[str]:
    """Return the queries of which the table may have rows, although the log does not show which batches."""
    return [query for query in log.queries() if current_record(log, query) is None and may_have_rows(log, query)]


def may_have_rows(log: TableLog, query: str) -> bool:
    """Whether a table without a current record of a query may have rows of it: its commits are unknown or expired."""
    states = [commit.is_current for commit in log.commits() if commit.record_of(query) is not None]
    return None in states or not states


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
