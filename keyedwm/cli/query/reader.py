"""Reads the status of a query from its checkpoint and, with a broker, from its group and its topics.

Rule: it only reads, sends nothing to the query itself, and needs no Spark. So it works from another host and for a
stopped query.
"""

from __future__ import annotations

from dataclasses import dataclass

from keyedwm.cli.query.log import PlannedBatch, is_checkpoint, newest_planned
from keyedwm.cli.query.picture import Picture, Publication
from keyedwm.cli.query.source import SourceReader
from keyedwm.cli.query.target import Target
from keyedwm.core.errors import InputError, KeyedwmError
from keyedwm.kafka.requests.cluster import Cluster
from keyedwm.last_error import last_error
from keyedwm.savepoint_files import Files
from pyspark_wm_source.options.source_options import SourceOptions
from pyspark_wm_source.values.holding import Cause
from pyspark_wm_source.values.offsets import IdleTimeout


@dataclass(frozen=True, slots=True)
class QueryReader:
    """Reads one checkpoint. cluster, options: the connection to its sources' Kafka, None to read the checkpoint only.

    idle_timeout: the timeout to apply, None for the query's own. target: the place where the query publishes, None if
    unknown.
    """

    files: Files
    cluster: Cluster | None = None
    options: SourceOptions | None = None
    idle_timeout: IdleTimeout | None = None
    target: Target | None = None

    def picture(self, taken_ms: int) -> Picture:
        """Take a picture.

        Raises InputError for a checkpoint without a batch or without a keyedwm source, FormatError, UnavailableError.
        """
        return self._picture(
            SourceReader(self.files, self.cluster, self.options, self.idle_timeout, Cause.NOT_ASKED, taken_ms), None
        )

    def picture_without_broker(self, taken_ms: int, broker_error: str) -> Picture:
        """Take a picture while the broker is away. broker_error: why the broker did not answer."""
        return self._picture(
            SourceReader(self.files, None, self.options, self.idle_timeout, Cause.BROKER_AWAY, taken_ms), broker_error
        )

    def _picture(self, reader: SourceReader, broker_error: str | None) -> Picture:
        newest = planned_of(self.files)
        publication, target_error = self._published()
        return Picture(
            checkpoint=self.files.place, taken_ms=reader.now_ms, planned_batch=newest.number,
            committed_batch=newest.committed, committed_ms=newest.committed_ms,
            publication=publication, target_trouble=target_error, trouble=broker_error,
            sources=tuple(reader.picture(newest, number) for number in newest.sources),
            last_error=last_error(self.files, newest.committed),
        )  # fmt: skip

    def _published(self) -> tuple[Publication | None, str | None]:
        """Read the last publication, or return the message of an error: the rest of the query is shown without it."""
        if self.target is None:
            return None, None
        try:
            return self.target.newest(), None
        except KeyedwmError as error:
            return None, error.message


def no_batch_reason(files: Files) -> str | None:
    """Return why there is no batch while the first may still come, else None."""
    names = files.names()
    if names is None and files.exists():  # a file
        return None
    if not names:
        return f"{files.place} {'does not exist' if names is None else 'is no checkpoint'}"
    if not is_checkpoint(files) or newest_planned(files) is not None:
        return None
    error = last_error(files, None)
    why = "there is nothing to see" if error is None else f"its last error was: {error.text}"
    return f"the query of {files.place} has planned no batch yet: {why}"


def planned_of(files: Files) -> PlannedBatch:
    """Return the newest planned batch of a query. Raises InputError if no batch has a source of keyedwm."""
    if not is_checkpoint(files):
        problem = no_batch_reason(files) or f"{files.place} is no checkpoint"
        raise InputError(f"{problem}: the checkpointLocation of a query is expected")
    newest = newest_planned(files)
    if newest is None:
        raise InputError(no_batch_reason(files) or f"the query of {files.place} has planned no batch yet")
    if not newest.sources:
        raise InputError(
            f"{files.place} is the checkpoint of a query without a keyedwm source: name the checkpoint of a query that "
            'reads format("keyedwm")'
        )
    return newest
