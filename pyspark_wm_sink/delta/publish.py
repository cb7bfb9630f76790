"""The driver's commit: the only place that decides what becomes visible.

Rule: check, then publish. A batch is published at most once, because its Delta commit carries (query, batch) as an
application transaction. A batch that is refused leaves nothing visible, and no staged file if no append of it was
attempted; once one was, its files stay, because deleting one that a commit names would lose its rows (unless the log
shows that another attempt published the batch). Of two tables (`errorsTo`) the one of rejected messages comes first,
once the results were checked: what was published when the driver died is found by its batch at the next start.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from deltalake import DeltaTable, Schema
from deltalake.exceptions import CommitFailedError, DeltaError

from keyedwm.core.errors import InputError, KeyedwmError, UnavailableError
from keyedwm.core.watermark import Guarantee
from pyspark_wm_sink.batch.record import Record
from pyspark_wm_sink.batch.reports import merge_reports
from pyspark_wm_sink.batch.seal import check_replay, seal
from pyspark_wm_sink.delta import table as delta
from pyspark_wm_sink.delta.library_errors import is_refusal, one_line, shown_cause
from pyspark_wm_sink.delta.other_queries import check_reads_nothing_again
from pyspark_wm_sink.delta.row_rules import row_rules
from pyspark_wm_sink.delta.stage import DeltaStagePlan, StagedFiles
from pyspark_wm_sink.delta.storage import discard
from pyspark_wm_sink.options.sink_options import SnapshotMode
from pyspark_wm_sink.places.paths import local_directory

_ATTEMPTS = 10
_log = logging.getLogger("keyedwm.sink")


@dataclass(frozen=True, kw_only=True, slots=True)
class DeltaPublication:
    """How the batches of one query are published to a Delta table; errors: to another one, of rejected messages."""

    stage: DeltaStagePlan
    mode: SnapshotMode
    guarantee: Guarantee
    overwrite: bool
    merge_schema: bool = False
    is_shared: bool = False
    errors: DeltaPublication | None = None


def publish(how: DeltaPublication, messages: Sequence[StagedFiles], *, batch: int | None) -> None:
    """Publish one batch; `batch` None for a batch write.

    Raises InputError, RegressionError, FencedError or FormatError: nothing was published; the staged files are deleted
    unless an append of them was attempted. Raises UnavailableError: the table did not answer, the same batch can be
    committed again.
    """
    results = _Commit(how, messages, batch)
    if how.errors is not None:
        errors = _Commit(how.errors, [message.errors for message in messages if message.errors is not None], batch)
        with _nothing_left(results, errors):
            results.check()
            errors.publish()
    results.publish()


@contextmanager
def _nothing_left(*commits: _Commit) -> Iterator[None]:
    """Where one refuses its batch, delete what all of them staged."""
    try:
        yield
    except UnavailableError:
        raise
    except KeyedwmError:
        for commit in commits:
            commit.discard()
        raise


def _lowest(begins: Iterable[Mapping[str, int]]) -> dict[str, int]:
    found: dict[str, int] = {}
    for of_task in begins:
        for channel, offset in of_task.items():
            found[channel] = min(offset, found.get(channel, offset))
    return found


class _Commit:
    """One batch's commit; from its first append on, no staged file is deleted, since the log may name it."""

    def __init__(self, how: DeltaPublication, messages: Sequence[StagedFiles], batch: int | None) -> None:
        self._how = how
        self._files = [file for message in messages for file in message.files]
        self._report = merge_reports(messages, batch)
        if self._files:
            # Equal for equal staged files, so that a commit which is repeated recognizes what it has published itself.
            names = "\n".join(sorted(file.name for file in self._files))
            self._report = replace(self._report, attempt=hashlib.sha256(names.encode()).hexdigest()[:32])
        self._begins = _lowest(message.begins for message in messages)
        self._is_append_attempted = False
        self._came_before = ""

    def publish(self) -> None:
        """Publish the batch, whatever other writers do to the table meanwhile."""
        try:
            for _ in range(_ATTEMPTS):
                if self._try_once():
                    return
        except UnavailableError:
            raise
        except KeyedwmError:
            self.discard()
            raise
        raise UnavailableError(
            f"{self._name} could not be published to the table {self._how.stage.path} in {_ATTEMPTS} attempts: "
            f"another writer came before it each time, the last one was {self._came_before}"
        )

    def check(self) -> None:
        """Refuse the batch if the table as it is now does not take it; publishes nothing."""
        table = delta.open_table(self._how.stage.path, self._how.stage.storage)
        if table is None or not self._is_published(table):
            self._sealed(table)

    def _sealed(self, table: DeltaTable | None) -> Record:
        how, stage = self._how, self._how.stage
        if table is not None:
            wanted = delta.delta_schema(stage.schema)
            fitted = delta.check_table(
                table, wanted, stage.partition_by, merge=how.merge_schema, overwrite=how.overwrite
            )
            rules = row_rules(table.schema(), stage.schema, stage.partition_by)
            if delta.columns_of(fitted.schema) != delta.columns_of(wanted) or rules != stage.rules:
                raise UnavailableError(
                    f"the columns of the Delta table {stage.path} or their constraints changed after the rows of "
                    f"{self._name} were staged: start the query again, with the table as it is now"
                )
        return seal(self._last(table), self._report, how.mode, how.guarantee)

    def _try_once(self) -> bool:
        """Check against the table as it is now, then publish; False when another writer committed meanwhile."""
        how = self._how
        schema = delta.delta_schema(how.stage.schema)
        table = delta.open_table(how.stage.path, how.stage.storage)
        if table is not None and self._is_published(table):
            return True
        record = self._sealed(table)
        table = table if table is not None else self._created(schema)
        if table is None:
            return False
        try:
            if how.merge_schema and delta.add_missing(table, schema):
                return False  # look at the table as it is now
            self._check_files()
            self._is_append_attempted = True
            delta.append(table, self._files, record, overwrite=how.overwrite)
        except CommitFailedError as error:
            return self._is_conflict(error, table)
        except (DeltaError, OSError) as error:
            self._resolve_failed_append(error)
        if record.ignored:
            _log.warning("%s: %d watermark regressions ignored (at-least-once)", self._name, record.ignored)
        return True

    def _is_conflict(self, error: CommitFailedError, seen: DeltaTable) -> bool:
        """Return False, for another try, if another writer has committed meanwhile; else the error is not of one."""
        now = delta.open_table(self._how.stage.path, self._how.stage.storage)
        if now is None or now.version() > seen.version():
            self._came_before = "one that deleted the table" if now is None else delta.newest_commit(now)
            return False
        if is_refusal(error):
            raise InputError(
                f"{self._name} could not be published, because the Delta table {self._how.stage.path} does not take "
                f"it: {one_line(error)}"
            ) from shown_cause(error)
        self._resolve_failed_append(error)
        return True

    def _check_files(self) -> None:
        """Refuse files that the driver does not see: a local path, and executors on other hosts."""
        directory = local_directory(self._how.stage.path)
        if directory is None:
            return
        absent = [file.name for file in self._files if not (directory / file.name).is_file()]
        if absent:
            raise InputError(
                f"{len(absent)} of {len(self._files)} files that the tasks staged are not in the table's directory "
                f"{directory} on the driver, {absent[0]} is one: the option path is a local directory, so executors "
                f"on other hosts wrote to their own (use a file system that all hosts share), or the directory was "
                f"removed after they wrote (start the query again)"
            )

    def _created(self, schema: Schema) -> DeltaTable | None:
        """Create the table and open it; None when another writer has created it meanwhile, to check its schema."""
        stage = self._how.stage
        try:
            delta.create(stage.path, stage.storage, schema, stage.partition_by)
        except (DeltaError, OSError) as error:
            if delta.open_table(stage.path, stage.storage) is None:
                raise UnavailableError(
                    f"the Delta table {stage.path} could not be created: {one_line(error)}"
                ) from shown_cause(error)
            return None
        return delta.open_table(stage.path, stage.storage)

    def _last(self, table: DeltaTable | None) -> Record | None:
        """Read the record of this query's newest published batch; refuse a table that lacks batches of the query."""
        query, batch = self._report.query, self._report.batch
        before = None if table is None or query is None else delta.published_batch(table, query)
        if query is not None and batch is not None:
            _check_lacks_nothing(self._how, query, batch, before, is_there=table is not None)
        if table is not None and batch == 0 and before is None:
            self._check_reads_nothing_again(table)
        if table is None or query is None or before is None:
            return None
        _check_not_restored(self._how, query, batch, table)
        record = delta.newest_record(table, query)
        if record is None:
            _log.warning(
                "the record of batch %d of query %s is no longer in the history of the table: watermarks and "
                "snapshots are not checked against it", before, query,
            )  # fmt: skip
        return record

    def _check_reads_nothing_again(self, table: DeltaTable) -> None:
        how = self._how
        if not how.is_shared and not how.overwrite:
            where = f"the Delta table {how.stage.path}"
            may_refuse = how.guarantee is Guarantee.EXACTLY_ONCE
            check_reads_nothing_again(table, where, self._report, self._begins, may_refuse=may_refuse)

    def _is_published(self, table: DeltaTable) -> bool:
        """Whether this batch is in the table already; the files of another attempt at it are then deleted.

        Raises FencedError when the published batch holds other rows: another query has the same id.
        """
        report = self._report
        if report.query is None or report.batch is None:
            return False
        newest = delta.published_batch(table, report.query)
        if newest is None or newest < report.batch:
            return False
        record = delta.newest_record(table, report.query, report.batch)
        if record is None:
            # Whether it names these files cannot be known any more, so they stay.
            _log.warning("batch %d is published, but its record is no longer in the history", report.batch)
            return True
        if record.attempt == report.attempt:
            return True
        check_replay(record, report, f"the table {self._how.stage.path}", self._how.guarantee)
        self._discard()  # the batch is another attempt's, so no commit can ever name these files
        return True

    def _resolve_failed_append(self, error: Exception) -> None:
        """Find out whether an append that raised an error happened all the same; else raise UnavailableError."""
        stage = self._how.stage
        try:
            table = delta.open_table(stage.path, stage.storage)
            found = table is not None and delta.holds_attempt(table, self._report.attempt)
        except (KeyedwmError, DeltaError, OSError) as unreadable:
            _log.warning("%s: whether its append happened cannot be read: %s", self._name, one_line(unreadable))
            found = False
        if not found:
            raise UnavailableError(
                f"{self._name} could not be published to the table {stage.path}: {one_line(error)}"
            ) from shown_cause(error)

    @property
    def _name(self) -> str:
        return "the batch write" if self._report.batch is None else f"batch {self._report.batch}"

    def discard(self) -> None:
        """Delete the staged files, unless a commit can name them."""
        if not self._is_append_attempted:
            self._discard()

    def _discard(self) -> None:
        discard(self._how.stage.path, self._how.stage.storage, [file.name for file in self._files])


def _check_lacks_nothing(how: DeltaPublication, query: str, batch: int, before: int | None, *, is_there: bool) -> None:
    """Refuse to go on where batches of this query are missing: the table was deleted, replaced or restored.

    A table without any batch of the query is accepted if it exists, with a warning: it may be a new one, made for the
    query to go on in, and Delta forgets application transactions where delta.setTransactionRetentionDuration is set.
    """
    if batch == 0 or how.guarantee is not Guarantee.EXACTLY_ONCE:
        return
    if not is_there:
        raise InputError(
            f"there is no Delta table at {how.stage.path}, but batch {batch} of query {query} follows batches that "
            f"were written before: the table was deleted or moved; restore it, or start with a new checkpoint, or "
            f"create an empty table there to go on without the rows of the earlier batches"
        )
    if before is None:
        _log.warning(
            "the Delta table %s has no batch of query %s, and now comes batch %d: it was made again, or forgets "
            "transactions (delta.setTransactionRetentionDuration); the query goes on in it, without the rows of "
            "earlier batches if it was made again", how.stage.path, query, batch,
        )  # fmt: skip
    elif before < batch - 1:
        raise InputError(
            f"the newest batch of query {query} in the Delta table {how.stage.path} is {before}, and now comes batch "
            f"{batch}: the table was restored to an older version, or replaced; restore the version that holds batch "
            f"{batch - 1}, or start with a new checkpoint"
        )


def _check_not_restored(how: DeltaPublication, query: str, batch: int | None, table: DeltaTable) -> None:
    """Refuse a table that was taken back behind batches of this query, unless each batch replaces all rows anyway."""
    if how.guarantee is not Guarantee.EXACTLY_ONCE or how.overwrite or not delta.is_restored_behind(table, query):
        return
    raise InputError(
        f"the Delta table {how.stage.path} was restored to an older version, or to a point in time, after the newest "
        f"batch of query {query}, and now comes batch {batch}: restore the version before that RESTORE, or start with "
        f"a new checkpoint, or, to go on without the rows that were taken out, start the query once with "
        f"guarantee=at-least-once"
    )
