"""The driver's commit: the one place of decision (DESIGN section 8).

Rule: check, then publish. A batch is published at most once, because its Delta commit carries (query, batch) as an
application transaction; a batch that is refused leaves nothing visible and no staged file; a batch whose commit may or
may not have happened keeps its files, because removing one that a commit names would lose its rows.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from deltalake import DeltaTable, Schema
from deltalake.exceptions import CommitFailedError, DeltaError

from keyedwm.core.errors import KeyedwmError, UnavailableError
from keyedwm.core.watermark import Guarantee
from pyspark_wm_sink import table as delta
from pyspark_wm_sink.options import SnapshotMode
from pyspark_wm_sink.record import Record
from pyspark_wm_sink.seal import Brought, check_replay, seal
from pyspark_wm_sink.stage import Staged, StagedFile, StagePlan
from pyspark_wm_sink.storage import discard
from pyspark_wm_sink.task import gather

_TRIES = 10
_log = logging.getLogger("keyedwm.sink")


@dataclass(frozen=True, kw_only=True, slots=True)
class Publication:
    """How the batches of one query are published."""

    stage: StagePlan
    mode: SnapshotMode
    guarantee: Guarantee
    overwrite: bool
    merge_schema: bool = False


def publish(how: Publication, messages: Sequence[Staged], *, batch: int | None) -> None:
    """Publish one batch; `batch` None for a batch write.

    Raises InputError, RegressionError, FencedError or FormatError: nothing was published and the staged files are gone.
    Raises UnavailableError: the table did not answer, the same batch can be committed again.
    """
    brought = gather(messages, batch)
    files = [file for message in messages for file in message.files]
    try:
        for _ in range(_TRIES):
            if _try_once(how, brought, files):
                return
    except UnavailableError:
        raise
    except KeyedwmError:
        _discard(how, files)
        raise
    raise UnavailableError(
        f"{_named(batch)} could not be published to the table {how.stage.path} in {_TRIES} tries: "
        f"other writers changed it each time"
    )


def _try_once(how: Publication, brought: Brought, files: Sequence[StagedFile]) -> bool:
    """Check against the table as it is now, then publish; False when another writer came between."""
    schema = delta.delta_schema(how.stage.schema)
    table = delta.open_table(how.stage.path, how.stage.storage)
    if table is not None and _is_published(table, how, brought, files):
        return True
    if table is not None:
        delta.check_table(table, schema, how.stage.partition_by, merge=how.merge_schema, overwrite=how.overwrite)
    record = seal(_last(table, brought), brought, how.mode, how.guarantee)
    table = table if table is not None else _created(how, schema)
    if table is None:
        return False
    try:
        if how.merge_schema and delta.add_missing(table, schema):
            return False  # look at the table as it is now
        delta.append(table, files, record, overwrite=how.overwrite)
    except CommitFailedError:
        return False
    except (DeltaError, OSError) as error:
        return _after_doubt(how, brought, error)
    if record.swallowed:
        _log.warning("batch %s: %d watermark rows that did not increase were let pass", brought.batch, record.swallowed)
    return True


def _created(how: Publication, schema: Schema) -> DeltaTable | None:
    """Create the table and open it; None when another writer was faster, so that its schema is looked at first."""
    try:
        delta.create(how.stage.path, how.stage.storage, schema, how.stage.partition_by)
    except (DeltaError, OSError) as error:
        if delta.open_table(how.stage.path, how.stage.storage) is None:
            raise UnavailableError(
                f"the Delta table {how.stage.path} could not be created: {delta.one_line(error)}"
            ) from error
        return None
    return delta.open_table(how.stage.path, how.stage.storage)


def _last(table: DeltaTable | None, brought: Brought) -> Record | None:
    """Read back what the previous batch of this query left."""
    if table is None or brought.query is None:
        return None
    before = delta.published_batch(table, brought.query)
    if before is None:
        return None
    record = delta.newest_record(table, brought.query)
    if record is None:
        _log.warning(
            "the record of batch %d of query %s is no longer in the history of the table: checks start anew",
            before,
            brought.query,
        )
    return record


def _is_published(table: DeltaTable, how: Publication, brought: Brought, files: Sequence[StagedFile]) -> bool:
    """Whether this batch is in the table already; then this attempt's files go, unless they are the ones published.

    Raises FencedError when the published batch ended at other offsets: another query goes by the same id.
    """
    if brought.query is None or brought.batch is None:
        return False
    newest = delta.published_batch(table, brought.query)
    if newest is None or newest < brought.batch:
        return False
    record = delta.newest_record(table, brought.query, brought.batch)
    if record is not None and record.attempt == brought.attempt:
        return True
    if record is None:
        _log.warning("batch %d is published, but its record is no longer in the history", brought.batch)
    else:
        check_replay(record, brought, f"the table {how.stage.path}")
    _discard(how, files)
    return True


def _after_doubt(how: Publication, brought: Brought, error: Exception) -> bool:
    """Look whether a commit that failed happened all the same; raises UnavailableError if it did not."""
    table = delta.open_table(how.stage.path, how.stage.storage)
    if table is not None and brought.query is not None:
        record = delta.newest_record(table, brought.query, brought.batch)
        if record is not None and record.attempt == brought.attempt:
            return True
    raise UnavailableError(
        f"{_named(brought.batch)} could not be published to the table {how.stage.path}: {delta.one_line(error)}"
    ) from error


def _named(batch: int | None) -> str:
    return "the batch write" if batch is None else f"batch {batch}"


def _discard(how: Publication, files: Sequence[StagedFile]) -> None:
    discard(how.stage.path, how.stage.storage, [file.name for file in files])
