"""The operations that the driver's commit needs from a format of tables: read the present table, and append to it.

Rule: `publish` has the order of a commit and its checks for all formats, and reads the log of a table.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from keyedwm.core.watermark import Guarantee
from pyspark_wm_sink.batch.record import Record
from pyspark_wm_sink.options.sink_options import SnapshotMode
from pyspark_wm_sink.tables.log import TableLog
from pyspark_wm_sink.tables.stage import StagedFile, StagePlan


@dataclass(frozen=True, kw_only=True, slots=True)
class TableMessages:
    """The parts of messages that depend on the format of tables.

    forgotten: why a table may lack all batches of a query that wrote to it; None if it then must have been created
    again.
    """

    kind: str
    restored: str
    undo: str
    place: str
    forgotten: str | None


class CurrentTable(ABC):
    """A table as it is at one moment. where: as messages name it, with its kind. version: differs after each commit."""

    def __init__(self, where: str, version: object, log: TableLog) -> None:
        self.where, self.version, self.log = where, version, log

    @abstractmethod
    def check_fits(self) -> str | None:
        """Reject rows that do not fit the table; return what changed in the table since they were staged, or None."""

    def add_missing(self) -> bool:
        """Add the columns that the table lacks, in a separate commit; return whether there were any."""
        return False

    @abstractmethod
    def append(self, files: Sequence[StagedFile], record: Record) -> None:
        """Publish: files and record in one commit; raises one of the publication's `conflicts` or `failures`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Publication(ABC):
    """How the batches of one query are published to a table. errors: the publication of its rejected messages.

    is_shared: other queries write rows of the same input to the table.
    """

    stage: StagePlan
    mode: SnapshotMode
    guarantee: Guarantee
    overwrite: bool
    is_shared: bool = False
    errors: Publication | None = None

    conflicts: ClassVar[tuple[type[Exception], ...]]  # errors of an append after another commit
    failures: ClassVar[tuple[type[Exception], ...]]  # errors of an append that may have happened all the same
    messages: ClassVar[TableMessages]
    attempts: ClassVar[int] = 10  # the most tries against other writers
    pause_s: ClassVar[float] = 0.0  # the first pause between two attempts; later pauses are longer

    @abstractmethod
    def open(self) -> CurrentTable | None:
        """Read the table; None if there is none."""

    @abstractmethod
    def created(self) -> CurrentTable | None:
        """Create the table; None if another writer has created it meanwhile."""

    def is_refusal(self, error: Exception) -> bool:  # noqa: ARG002 - a format says
        """Whether the error of a conflict means that the same commit will never succeed."""
        return False
