"""The driver's commit: the only place that decides what becomes visible.

Rule: check, then publish. A batch is published at most once: its commit carries (query, batch), and fails if another
commit of the same query came before it. A rejected batch leaves nothing visible. Its staged files are deleted if no
append was attempted. After an append the files stay, because deleting a file that a commit names would lose its rows.
They are deleted if the log shows that another attempt published the batch. With two tables (`errorsTo`) the rejected
messages are published first, after the check of the results. If the driver dies in between, the next start sees the
published batch there.
"""

from __future__ import annotations

import hashlib
import logging
import random
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

from keyedwm.core.errors import InputError, KeyedwmError, UnavailableError
from keyedwm.core.watermark import Guarantee
from pyspark_wm_sink.batch.advice import FROM_THE_BEGINNING, Published, begin_behind, new_checkpoint
from pyspark_wm_sink.batch.batch_plan import BatchPlan
from pyspark_wm_sink.batch.record import Record
from pyspark_wm_sink.batch.reports import BatchReport, merge_reports
from pyspark_wm_sink.batch.seal import check_replay, seal
from pyspark_wm_sink.tables.library_errors import one_line, shown_cause
from pyspark_wm_sink.tables.log import (
    NewestBatch,
    TableLog,
    current_record,
    current_records,
    has_attempt,
    is_removed,
    may_have_rows,
    queries_in_doubt,
    record_of,
)
from pyspark_wm_sink.tables.other_queries import check_reads_nothing_again
from pyspark_wm_sink.tables.publication import CurrentTable, Publication
from pyspark_wm_sink.tables.stage import StagedFiles

_MOST_PAUSE_S = 1.0
_log = logging.getLogger("keyedwm.sink")


def publish(
    how: Publication, messages: Sequence[StagedFiles], *, batch: int | None, plan: BatchPlan | None = None
) -> None:
    """Publish one batch; `batch` None for a batch write. plan: the plan of its sources, None if unknown.

    Raises InputError, RegressionError, FencedError or FormatError: nothing was published; the staged files are deleted
    unless an append of them was attempted. Raises UnavailableError: the table did not answer, the same batch can be
    committed again.
    """
    results = _Commit(how, messages, batch, plan)
    if how.errors is not None:
        of_errors = [message.errors for message in messages if message.errors is not None]
        errors = _Commit(how.errors, of_errors, batch, plan)
        with _nothing_left(results, errors):
            results.check()
            errors.publish()
    results.publish()


def _pause(first_s: float, attempt: int) -> None:
    """Wait longer after each attempt, with a random part, so that two writers do not collide again."""
    time.sleep(random.uniform(0, min(first_s * 2**attempt, _MOST_PAUSE_S)))  # noqa: S311 - no secret


@contextmanager
def _nothing_left(*commits: _Commit) -> Iterator[None]:
    """If one of the commits rejects its batch, delete the staged files of all."""
    try:
        yield
    except UnavailableError:
        raise
    except KeyedwmError:
        for commit in commits:
            commit.discard()
        raise


def _lowest(begins: Iterable[Mapping[str, int]]) -> dict[str, int]:
    lowest: dict[str, int] = {}
    for of_task in begins:
        for channel, offset in of_task.items():
            lowest[channel] = min(offset, lowest.get(channel, offset))
    return lowest


class _Commit:
    """One batch's commit; from its first append on, no staged file is deleted, since the log may name it."""

    def __init__(
        self, how: Publication, messages: Sequence[StagedFiles], batch: int | None, plan: BatchPlan | None
    ) -> None:
        self._how = how
        self._files = [file for message in messages for file in message.files]
        begins = _lowest(message.begins for message in messages)
        self._report = replace(merge_reports(messages, batch), begins=begins, plan=plan)
        if self._files:
            # Equal for equal staged files, so that a repeated commit recognizes its own publication.
            names = "\n".join(sorted(file.name for file in self._files))
            self._report = replace(self._report, attempt=hashlib.sha256(names.encode()).hexdigest()[:32])
        self._is_append_attempted = False
        self._came_before = ""

    def publish(self) -> None:
        """Publish the batch, whatever other writers do to the table meanwhile."""
        try:
            for attempt in range(self._how.attempts):
                if self._try_once():
                    return
                _pause(self._how.pause_s, attempt)
        except UnavailableError:
            raise
        except KeyedwmError:
            self.discard()
            raise
        raise UnavailableError(
            f"{self._name} could not be published to the table {self._how.stage.place} in {self._how.attempts} "
            f"attempts: another writer came before it each time, the last one was {self._came_before}"
        )

    def check(self) -> None:
        """Reject the batch if it does not fit the table as it is now; publishes nothing."""
        table = self._how.open()
        newest = self._newest(table)
        if not self._is_published(table, newest):
            self._sealed(table, newest)

    def _newest(self, table: CurrentTable | None) -> NewestBatch | None:
        query = self._report.query
        return None if table is None or query is None else table.log.newest(query)

    def _sealed(self, table: CurrentTable | None, newest: NewestBatch | None) -> Record:
        how = self._how
        changed = None if table is None else table.check_fits()
        if changed is not None:
            raise UnavailableError(
                f"{changed} changed after the rows of {self._name} were staged: start the query again, with the table "
                f"as it is now"
            )
        return seal(self._last(table, newest), self._report, how.mode, how.guarantee)

    def _try_once(self) -> bool:
        """Check against the table as it is now, then publish; False when another writer committed meanwhile."""
        how = self._how
        table = how.open()
        newest = self._newest(table)
        if self._is_published(table, newest):
            return True
        record = self._sealed(table, newest)
        table = table if table is not None else how.created()
        if table is None:
            return False
        try:
            if table.add_missing():
                return False  # look at the table as it is now
            self._check_files()
            self._is_append_attempted = True
            table.append(self._files, record)
        except how.conflicts as error:
            return self._is_conflict(error, table)
        except how.failures as error:
            self._resolve_failed_append(error)
        if record.ignored:
            _log.warning("%s: %d watermark regressions ignored (at-least-once)", self._name, record.ignored)
        return True

    def _is_conflict(self, error: Exception, table: CurrentTable) -> bool:
        """Return False, for another try, if another writer has committed meanwhile. Raises errors of other causes."""
        now = self._how.open()
        if now is None or now.version != table.version:
            self._came_before = "one that deleted the table" if now is None else now.log.newest_commit()
            return False
        if self._how.is_refusal(error):
            raise InputError(
                f"{self._name} could not be published, because {table.where} does not take it: {one_line(error)}"
            ) from shown_cause(error)
        self._resolve_failed_append(error)
        return True

    def _check_files(self) -> None:
        """Reject files that the driver does not see: a local path, and executors on other hosts."""
        stage = self._how.stage
        places = [(file.name, stage.local_path(file.name)) for file in self._files]
        absent = [name for name, place in places if place is not None and not place.is_file()]
        if absent:
            raise InputError(
                f"{len(absent)} of {len(self._files)} files that the tasks staged are not in the table's directory "
                f"{stage.local_directory} on the driver, {absent[0]} is one: {self._how.messages.place} "
                f"is a local directory, so executors on other hosts wrote to their own (use a file system that all "
                f"hosts share); or the directory was removed after they wrote (start the query again)"
            )

    def _last(self, table: CurrentTable | None, newest: NewestBatch | None) -> Record | None:
        """Read the record of this query's newest published batch; reject a table that lacks batches of the query."""
        query, batch = self._report.query, self._report.batch
        if query is not None and batch is not None:
            _check_lacks_nothing(self._how, self._report, table, newest)
        if table is None or query is None:
            return None
        if newest is None:
            self._check_reads_nothing_again(table)
            return None
        if batch is not None and (newest.is_restored_behind or newest.batch >= batch):
            before = record_of(table.log, newest, query, batch - 1)  # a restore removed later batches
            return newest.record if before is None and newest.batch < batch else before
        if newest.record is None:
            _log.warning(
                "the record of batch %d of query %s is no longer in the history of the table: watermarks and "
                "snapshots are not checked against it", newest.batch, query,
            )  # fmt: skip
        return newest.record

    def _check_reads_nothing_again(self, table: CurrentTable) -> None:
        how = self._how
        if not how.is_shared and not how.overwrite:
            others = {name: of for name, of in current_records(table.log).items() if name != self._report.query}
            may_refuse = how.guarantee is Guarantee.EXACTLY_ONCE
            check_reads_nothing_again(others, table.where, self._report, may_refuse=may_refuse)
            in_doubt = [query for query in queries_in_doubt(table.log) if query != self._report.query]
            if in_doubt and may_refuse:
                raise InputError(
                    f"{table.where} was {how.messages.restored} and may have rows of query {in_doubt[0]}, which the "
                    f"new query {self._report.query} would write again: write to another table; if the table has "
                    f"none of these rows, or both are to write here, set sharedTable=true"
                )

    def _is_published(self, table: CurrentTable | None, newest: NewestBatch | None) -> bool:
        """Whether this batch is in the table already; then delete the files if another attempt published it.

        Raises FencedError when the published batch holds other rows: another query has the same id. Raises InputError
        when a restore removed the batch, and the table does not end where the batch begins.
        """
        report = self._report
        query, batch = report.query, report.batch
        if table is None or query is None or newest is None or batch is None:
            return False
        if newest.batch < batch and not newest.is_restored_behind:
            return False
        if is_removed(table.log, newest, query, batch):
            table.check_fits()  # without a branch that was dropped, older rows are the newest ones, too
            _check_follows_restored(self._how, report, query, table, newest)
            return False
        record = record_of(table.log, newest, query, batch)
        if record is None:
            # Whether it names these files cannot be known any more, so they stay.
            _log.warning("batch %d is published, but its record is no longer in the history", batch)
            return True
        if record.attempt == report.attempt:
            return True
        check_replay(
            record,
            report,
            f"the table {self._how.stage.place}",
            self._how.guarantee,
            lambda: begin_behind(Published.of(current_record(table.log, query)), report.plan, "table"),
        )
        self._discard()  # the batch is another attempt's, so no commit can ever name these files
        return True

    def _resolve_failed_append(self, error: Exception) -> None:
        """Check whether an append that raised an error happened all the same; if not, raise UnavailableError."""
        failures: tuple[type[Exception], ...] = (KeyedwmError, *self._how.failures)
        try:
            table = self._how.open()
            is_there = table is not None and has_attempt(table.log, self._report.attempt)
        except failures as unreadable:
            _log.warning("%s: whether its append happened cannot be read: %s", self._name, one_line(unreadable))
            is_there = False
        if not is_there:
            raise UnavailableError(
                f"{self._name} could not be published to the table {self._how.stage.place}: {one_line(error)}"
            ) from shown_cause(error)

    @property
    def _name(self) -> str:
        return "the batch write" if self._report.batch is None else f"batch {self._report.batch}"

    def discard(self) -> None:
        """Delete the staged files, unless a commit can name them."""
        if not self._is_append_attempted:
            self._discard()

    def _discard(self) -> None:
        self._how.stage.discard([file.name for file in self._files])


def _check_lacks_nothing(
    how: Publication, report: BatchReport, table: CurrentTable | None, newest: NewestBatch | None
) -> None:
    """Reject a table that lacks batches of this query: it was deleted, replaced or restored.

    If the table's format forgets batches, a table without any batch of the query is accepted, with a warning: the user
    may have created it for the query.
    """
    query, batch = report.query, report.batch
    if query is None or not batch or how.guarantee is not Guarantee.EXACTLY_ONCE:
        return
    place, messages = how.stage.place, how.messages
    if table is None:
        raise InputError(
            f"there is no {messages.kind} at {place}, but batch {batch} of query {query} follows batches that "
            f"were written before: the table was deleted or moved; restore it, or start with a new checkpoint and "
            f"{FROM_THE_BEGINNING}; to continue without the rows of the earlier batches, create an empty table there"
            f"{'' if messages.forgotten else ', and start once with guarantee=at-least-once'}"
        )
    if newest is None and messages.forgotten is None:
        raise InputError(
            f"the {messages.kind} {place} has no batch of query {query}, and now comes batch {batch}: it was dropped "
            f"and created again; restore it, or start with a new checkpoint and {FROM_THE_BEGINNING}; to continue "
            f"without the rows of earlier batches, start the query once with guarantee=at-least-once"
        )
    if newest is None:
        _log.warning(
            "the %s %s has no batch of query %s, and now comes batch %d: it was made again, or %s; the query continues "
            "in it, without the rows of earlier batches if it was made again", messages.kind, place, query, batch,
            messages.forgotten,
        )  # fmt: skip
    elif not newest.is_restored_behind and newest.batch < batch - 1:
        raise InputError(
            f"the newest batch of query {query} in the {messages.kind} {place} is {newest.batch}, and now comes batch "
            f"{batch}: the table was restored to an older version, or replaced; restore the version that holds batch "
            f"{batch - 1}, or {new_checkpoint(Published.of(current_record(table.log, query)), report.plan, 'table')}"
        )


def _check_follows_restored(
    how: Publication, report: BatchReport, query: str, table: CurrentTable, newest: NewestBatch
) -> None:
    """Reject a batch after a restore, unless the rows in the table end where the batch begins.

    Such a batch comes from a checkpoint that was restored together with the table. A batch that replaces all rows is
    accepted.
    """
    if how.guarantee is not Guarantee.EXACTLY_ONCE or how.overwrite:
        return
    current = Published.of(current_record(table.log, query))
    if _is_continuation(current, report, table.log, query):
        return
    way_on, checkpoint = new_checkpoint(current, report.plan, "table"), ""
    if report.batch is None or newest.batch < report.batch:
        after = f"the newest batch of query {query}, and now comes batch {report.batch}"
    else:
        after = f"batch {report.batch} of query {query} was published, and this batch is replayed"
        if current is not None and current.batch is not None:
            checkpoint = f"restore the checkpoint of batch {current.batch}, or "
    raise InputError(
        f"{table.where} was {how.messages.restored} after {after}: {how.messages.undo}, or {checkpoint}{way_on}; "
        "to continue without the rows that were taken out, start the query once with guarantee=at-least-once"
    )


def _is_continuation(current: Published | None, report: BatchReport, log: TableLog, query: str) -> bool:
    """Whether the batch is known to begin where the newest batch with rows in the table ends."""
    if current is None:
        return report.batch == 0 and not may_have_rows(log, query)
    if current.batch is None or report.batch != current.batch + 1:
        return False
    if report.plan is None or not report.plan.is_all_keyedwm or not current.reads.is_whole:
        return False
    begins = report.plan.begins
    return all(begins.get(channel) == offset for channel, offset in current.reads.furthest().items())
