"""Notes of a query's drivers: small files with a version and a checksum; one note names the drivers so far.

Rule: a note exists as a whole or not at all, and changes only under the lock. A damaged note, or one of a later
version, is an error that names its file, never an empty note.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from keyedwm.core.errors import FormatError
from keyedwm.core.parsing import parse_json
from pyspark_wm_sink.limits import LIMITS, Limits
from pyspark_wm_sink.places.ledger_files import LedgerFiles, ledger_files

VERSION = 1
_MAX_OWNERS = 1_000
T = TypeVar("T")


class DamagedLedgerError(FormatError):
    """A file of the ledger is damaged."""

    advice = "follow the runbook in docs/how-to/runbook.md: the ledger is damaged"


@dataclass(frozen=True, kw_only=True, slots=True)
class Claim:
    """The claim of a driver that starts a writer: the ledger's epoch, None if a later driver owns the ledger.

    is_new: the epoch begins with this claim.
    """

    owner: str
    epoch: int | None
    is_new: bool = False


@dataclass(frozen=True, slots=True)
class LedgerDirectory:
    """Notes in a directory of this machine, or at an address; created with the first note."""

    directory: Path | str
    limits: Limits = LIMITS

    @property
    def files(self) -> LedgerFiles:
        """The files of the notes."""
        return ledger_files(self.directory, self.limits)

    def locked(self) -> AbstractContextManager[None]:
        """Hold the ledger's lock; raises UnavailableError if another process keeps it."""
        return self.files.locked()

    def take_epoch(self, owner: str) -> Claim:
        """Make a new driver the ledger's owner. A driver that a later driver has replaced gets no epoch."""
        epoch, owners = self._epoch()
        if owners and owners[-1] == owner:
            return Claim(owner=owner, epoch=epoch)
        if owner in owners:
            return Claim(owner=owner, epoch=None)
        return self.retake_epoch(owner)

    def retake_epoch(self, owner: str) -> Claim:
        """Make a driver the ledger's owner, even if it was replaced before."""
        epoch, owners = self._epoch()
        others = [other for other in owners if other != owner]
        self.write_note("epoch.json", {"epoch": epoch + 1, "owners": [*others, owner][-_MAX_OWNERS:]})
        return Claim(owner=owner, epoch=epoch + 1, is_new=True)

    def epoch(self) -> int:
        """Return how often the ledger has changed its owner."""
        return self._epoch()[0]

    def _epoch(self) -> tuple[int, list[str]]:
        value = self.read_note("epoch.json")
        if value is None:
            return 0, []
        return self.parsed("epoch.json", lambda: (int(value["epoch"]), [str(owner) for owner in value["owners"]]))

    def write_note(self, name: str, value: Mapping[str, Any]) -> None:
        """Write or replace a note durably; raises UnavailableError if that fails."""
        body = json.dumps({"version": VERSION, **value}, sort_keys=True, separators=(",", ":"))
        self.files.write(name, json.dumps({"checksum": checksum(body), "body": body}))

    def read_note(self, name: str) -> Any:
        """Return a file's body, None if there is none; raises FormatError if it is damaged or of another version."""
        text = self.files.read(name)
        if text is None:
            return None
        outer = self.parsed(name, lambda: parse_json(text))
        body = self.parsed(name, lambda: (outer["body"], outer["checksum"]))
        if self.parsed(name, lambda: checksum(body[0])) != body[1]:
            raise DamagedLedgerError(
                f"the ledger file {self.directory}/{name} is damaged: its checksum does not match; restore it from a "
                f"backup"
            )
        value = self.parsed(name, lambda: parse_json(body[0]))
        version = self.parsed(name, lambda: value.get("version"))
        if version != VERSION:
            raise FormatError(
                f"the ledger file {self.directory}/{name} has format version {version!r}, this keyedwm reads version "
                f"{VERSION}"
            )
        return value

    def parsed(self, name: str, build: Callable[[], T]) -> T:
        """Return the result of `build` for a note's value; raises DamagedLedgerError if it fails."""
        try:
            return build()
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
            raise DamagedLedgerError(
                f"the ledger file {self.directory}/{name} is damaged ({error!r}); restore it from a backup"
            ) from error


def application() -> str | None:
    """Identify this Spark driver by its local directories, whose names are random; None if Spark does not name them."""
    directories = os.environ.get("SPARK_LOCAL_DIRS")
    return None if not directories else hashlib.sha256(directories.encode()).hexdigest()[:16]


def checksum(body: str) -> str:
    """SHA-256 in hex."""
    return hashlib.sha256(body.encode()).hexdigest()
