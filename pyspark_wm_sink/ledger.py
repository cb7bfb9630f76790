"""The ledger: which transactions of which batch are to be committed, written down before the first of them is.

Rule: an entry that can be read is a decision, and a decision is carried out, by whoever finds it. Files appear whole or
not at all (written aside, fsync, rename, fsync of the directory), carry a version and a checksum, and change only under
the ledger's lock. Format version 1:

    BATCH.decided.json     the decision; renamed to
    BATCH.published.json   when every transaction is committed
    run.json               the query, the runs that have written here, and the run's fence in the cluster
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from keyedwm.core.errors import FormatError, InputError, UnavailableError
from keyedwm.kafka.transactions import Transaction
from pyspark_wm_sink.record import Record

VERSION = 1
KEPT = 100  # published entries, for inspection; the newest alone is needed
_LOCK_PATIENCE_S = 60.0
_NAME = re.compile(r"(\d+)\.(decided|published)\.json")


class DamagedLedgerError(FormatError):
    """A file of the ledger is not as it was written."""

    advice = "follow the runbook in docs/delivery.md: the ledger is damaged"


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """One batch's decision; `control`: the transaction of its control rows, which is ended after the others."""

    batch: int
    record: Record
    transactions: tuple[Transaction, ...]
    control: tuple[Transaction, ...] = ()
    published: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Runs:
    """Who has written here: the query, its runs, the latest last, and that run's place in the cluster's fence."""

    query: str
    runs: tuple[str, ...]
    fence: Transaction


@dataclass(frozen=True, slots=True)
class Ledger:
    """A directory of decisions; made when the first one is written."""

    directory: Path

    def check_place(self) -> None:
        """Refuse a place where no ledger can be made, before a row is written."""
        there = next(path for path in (self.directory, *self.directory.parents) if path.exists())
        if not there.is_dir() or not os.access(there, os.W_OK):
            raise InputError(f"the ledger {self.directory} cannot be written: {there} is no writable directory")

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the ledger alone; raises UnavailableError if another process does not let go of it."""
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            handle = os.open(self.directory / "lock", os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise InputError(f"the ledger {self.directory} cannot be written: {error}") from error
        try:
            self._take(handle)
            yield
        finally:
            os.close(handle)

    def _take(self, handle: int) -> None:
        over_at = time.monotonic() + _LOCK_PATIENCE_S
        while not _has_taken(handle):
            if time.monotonic() > over_at:
                raise UnavailableError(
                    f"the ledger {self.directory} was held by another process for {_LOCK_PATIENCE_S:g} s"
                )
            time.sleep(0.05)

    def newest(self, up_to: int | None = None) -> Entry | None:
        """Return the newest entry, or the newest one of batch `up_to` or before."""
        batches = [batch for batch in self._files() if up_to is None or batch <= up_to]
        return self._entry(max(batches)) if batches else None

    def entries(self, most: int) -> list[Entry]:
        """Return the newest entries, at most so many, oldest first."""
        return [self._entry(batch) for batch in sorted(self._files())[-most:]]

    def decide(self, entry: Entry) -> None:
        """Write a decision durably; raises UnavailableError if that cannot be done, and then nothing is decided."""
        value = {
            "batch": entry.batch,
            "record": entry.record.to_json(),
            "transactions": [list(transaction) for transaction in entry.transactions],
            "control": [list(transaction) for transaction in entry.control],
        }
        self._write(_name(entry.batch, published=False), value)

    def mark_published(self, entry: Entry) -> Entry:
        """Note that all transactions of an entry are committed, and forget entries that nobody needs any more."""
        source = self.directory / _name(entry.batch, published=False)
        try:
            source.rename(self.directory / _name(entry.batch, published=True))
            self._sync()
            for batch in sorted(self._files())[:-KEPT]:
                (self.directory / _name(batch, published=True)).unlink(missing_ok=True)
        except OSError as error:
            raise UnavailableError(f"the ledger {self.directory} cannot be written: {error}") from error
        return replace(entry, published=True)

    def runs(self) -> Runs | None:
        """Return who has written here; None in a new ledger."""
        path = self.directory / "run.json"
        if not path.exists():
            return None
        value = _read(path)
        return _built(
            path, lambda: Runs(query=value["query"], runs=tuple(value["runs"]), fence=_transaction(value["fence"]))
        )

    def write_runs(self, runs: Runs) -> None:
        """Write down who writes here from now on."""
        self._write("run.json", {"query": runs.query, "runs": list(runs.runs), "fence": list(runs.fence)})

    def _files(self) -> dict[int, bool]:
        """Every batch that has an entry, and whether it is published."""
        try:
            names = sorted(path.name for path in self.directory.iterdir()) if self.directory.exists() else []
        except OSError as error:
            raise InputError(f"the ledger {self.directory} cannot be read: {error}") from error
        matches = [match for name in names if (match := _NAME.fullmatch(name))]
        return {int(match[1]): match[2] == "published" for match in matches}

    def _entry(self, batch: int) -> Entry:
        published = self._files()[batch]
        path = self.directory / _name(batch, published=published)
        value = _read(path)
        return _built(
            path,
            lambda: Entry(
                batch=value["batch"],
                record=Record.from_json(value["record"]),
                transactions=tuple(_transaction(part) for part in value["transactions"]),
                control=tuple(_transaction(part) for part in value.get("control", ())),
                published=published,
            ),
        )

    def _write(self, name: str, value: Mapping[str, Any]) -> None:
        body = json.dumps({"version": VERSION, **value}, sort_keys=True, separators=(",", ":"))
        text = json.dumps({"checksum": _checksum(body), "body": body})
        aside = self.directory / f".{name}"
        try:
            with aside.open("w") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            aside.replace(self.directory / name)
            self._sync()
        except OSError as error:
            raise UnavailableError(f"the ledger {self.directory} cannot be written: {error}") from error

    def _sync(self) -> None:
        handle = os.open(self.directory, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _has_taken(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _name(batch: int, *, published: bool) -> str:
    return f"{batch:012d}.{'published' if published else 'decided'}.json"


def _read(path: Path) -> Any:
    """Return a file's body; raises FormatError if it is damaged or of another version."""
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"the ledger file {path} cannot be read: {error}") from error
    outer = _built(path, lambda: json.loads(text))
    body = _built(path, lambda: (outer["body"], outer["checksum"]))
    if _checksum(body[0]) != body[1]:
        raise DamagedLedgerError(
            f"the ledger file {path} is damaged: its checksum does not fit; restore it from a backup"
        )
    value = _built(path, lambda: json.loads(body[0]))
    if value.get("version") != VERSION:
        raise FormatError(
            f"the ledger file {path} has format version {value.get('version')!r}, this keyedwm reads version {VERSION}"
        )
    return value


def _built(path: Path, build: Any) -> Any:
    try:
        return build()
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise DamagedLedgerError(f"the ledger file {path} is damaged ({error!r}); restore it from a backup") from error


def _transaction(value: Any) -> Transaction:
    name, producer_id, epoch = value
    return Transaction(str(name), int(producer_id), int(epoch))


def _checksum(body: str) -> str:
    return hashlib.sha256(body.encode()).hexdigest()
