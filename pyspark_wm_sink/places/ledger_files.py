"""Where a ledger's files are: a directory of this machine, or an address in an object store or HDFS.

Rule: a file is there as a whole or not at all. On this machine files are written atomically (temporary file, fsync,
rename, fsync of the directory), and only under the directory's lock. A store shows a file when it is closed; where it
shows an incomplete file (HDFS, Azure), a complete one replaces the old one. No lock reaches other machines there, so
only the query's fence and marker in Kafka separate two drivers.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import stat
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Protocol

from keyedwm.config.addresses import (
    appears_early,
    delete_file,
    exists,
    is_hdfs,
    open_address,
    replace_file,
    store_errors,
)
from keyedwm.core.errors import InputError, UnavailableError
from keyedwm.core.text import words_of
from keyedwm.runtime import private_dirs
from pyspark_wm_sink.limits import LIMITS, Limits

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

_DIRECTORY_MODE, _FILE_MODE, _OTHERS = 0o700, 0o600, 0o077
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://")
_GROWING = ".growing"
SCHEMES = ("s3", "s3a", "gs", "abfs", "abfss", "hdfs", "viewfs")


class LedgerFiles(Protocol):
    """The files of one ledger, by name. is_shared: other machines can write here, which the lock does not reach."""

    is_shared: ClassVar[bool]

    def exists(self) -> bool:
        """Whether anything was written here."""

    def check_writable(self) -> None:
        """Before a row is written, raise an error for a place that cannot be created or written."""

    def locked(self) -> AbstractContextManager[None]:
        """Hold the ledger's lock; raises UnavailableError if another process keeps it."""

    def names(self) -> list[str]:
        """All files, sorted."""

    def read(self, name: str) -> str | None:
        """Return a file's text, None if there is no such file."""

    def write(self, name: str, text: str) -> None:
        """Write or replace a file durably; raises UnavailableError if that fails, and then the file is unchanged."""

    def rename(self, name: str, new: str) -> None:
        """Give a file another name."""

    def delete(self, name: str) -> None:
        """Delete a file if it is there."""


def ledger_files(directory: Path | str, limits: Limits = LIMITS) -> LedgerFiles:
    """Return the files of a ledger at a local path, or at an address of another file system."""
    return RemoteFiles(directory, limits) if isinstance(directory, str) else LocalFiles(directory, limits)


@dataclass(frozen=True, slots=True)
class LocalFiles:
    """A directory of this machine, for its user alone; created when the lock is first taken."""

    directory: Path
    limits: Limits = LIMITS
    is_shared: ClassVar[bool] = False

    def exists(self) -> bool:
        """Return whether anything was written here."""
        return self.directory.exists()

    def check_writable(self) -> None:
        """Create the directory, or raise an error, before a row is written."""
        there = next(path for path in (self.directory, *self.directory.parents) if path.exists())
        if not there.is_dir() or not os.access(there, os.W_OK):
            raise InputError(f"the ledger {self.directory} cannot be written: {there} is no writable directory")

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep the ledger's lock; raise UnavailableError if another process has it."""
        failed = f"the ledger {self.directory} cannot be written"
        try:
            self._make_private()
        except OSError as error:
            raise InputError(f"{failed}: {error}") from error
        with _locked(self.directory / "lock", self.directory, failed, self.limits.lock_timeout_s):
            yield

    def _make_private(self) -> None:
        """Create the directory for its owner alone; close a directory that an earlier version left open to others."""
        self.directory.parent.mkdir(parents=True, exist_ok=True)
        if not os.path.lexists(self.directory):
            self.directory.mkdir(mode=_DIRECTORY_MODE, exist_ok=True)
        # A link of another user could lead to any directory of ours, and could be changed later.
        _check_owner(self.directory, self.directory.lstat())
        status = self.directory.stat()
        _check_owner(self.directory, status)
        if stat.S_IMODE(status.st_mode) & _OTHERS:
            self.directory.chmod(_DIRECTORY_MODE)

    def names(self) -> list[str]:
        """Return all files, sorted."""
        try:
            return sorted(path.name for path in self.directory.iterdir()) if self.directory.exists() else []
        except OSError as error:
            raise InputError(f"the ledger {self.directory} cannot be read: {error}") from error

    def read(self, name: str) -> str | None:
        """Return a file's text, None if there is no such file."""
        path = self.directory / name
        if not os.path.lexists(path):
            return None
        try:
            with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW)) as file:
                return file.read()
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"the ledger file {path} cannot be read: {error}") from error

    def write(self, name: str, text: str) -> None:
        """Write or replace a file durably; raise UnavailableError if that fails, without a change."""
        temporary = self.directory / f".{name}"
        with self._writing():
            temporary.unlink(missing_ok=True)  # of a process that died; under the lock nobody else writes it
            handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, _FILE_MODE)
            with os.fdopen(handle, "w") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(self.directory / name)
            self._sync()

    def rename(self, name: str, new: str) -> None:
        """Give a file another name."""
        with self._writing():
            (self.directory / name).rename(self.directory / new)
            self._sync()

    def delete(self, name: str) -> None:
        """Delete a file if it is there."""
        with self._writing():
            (self.directory / name).unlink(missing_ok=True)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise UnavailableError(f"the ledger {self.directory} cannot be written: {error}") from error

    def _sync(self) -> None:
        handle = os.open(self.directory, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


@dataclass(frozen=True, slots=True)
class RemoteFiles:
    """An address such as s3://bucket/checkpoint/keyedwm; credentials come from the environment or the machine."""

    address: str
    limits: Limits = LIMITS
    is_shared: ClassVar[bool] = True

    def exists(self) -> bool:
        """Return whether anything was written here."""
        return bool(self.names())

    def check_writable(self) -> None:
        """Check nothing: the epoch is written before any row, and shows whether the rights are missing."""

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold a lock of this machine, for the driver's own processes; no other user can create its file."""
        path = self._lock_directory() / f"{hashlib.sha256(self.address.encode()).hexdigest()[:24]}.lock"
        failed = f"the lock {path} of the ledger {self.address} cannot be taken"
        with _locked(path, self.address, failed, self.limits.lock_timeout_s):
            yield

    def _lock_directory(self) -> Path:
        refused = []
        for place in private_dirs.places(os.environ, "locks"):
            why = private_dirs.unsafe(place)
            if why is None:
                return place
            refused.append(f"{place} {why}")
        why = "; ".join(refused) or private_dirs.NO_PLACE
        raise InputError(
            f"the lock of the ledger {self.address} has no place of this user alone ({why}): set "
            f"XDG_CACHE_HOME to a directory of this user with mode 0700"
        )

    def names(self) -> list[str]:
        """Return all files, sorted."""
        from pyarrow.fs import FileSelector

        files, place = self._opened()
        with self._reading():
            infos = files.get_file_info(FileSelector(place, allow_not_found=True))
        there = {info.base_name for info in infos if info.is_file}
        return sorted({name.removeprefix(".") for name in there if not name.endswith(_GROWING)})

    def read(self, name: str) -> str | None:
        """Return a file's text, None without such a file; after an interrupted replacement read the file beside."""
        for where in (name, f".{name}", name):
            text = self._read(where)
            if text is not None:
                return text
        return None

    def _read(self, name: str) -> str | None:
        files, place = self._opened()
        with self._reading():
            if is_hdfs(files) and not exists(files, f"{place}/{name}"):
                return None  # libhdfs would print a stack trace of Java
            try:
                with files.open_input_stream(f"{place}/{name}") as stream:
                    return bytes(stream.read()).decode()
            except FileNotFoundError:
                return None

    def write(self, name: str, text: str) -> None:
        """Write or replace a file durably; raise UnavailableError if that fails, without a change."""
        files, place = self._opened()
        data = text.encode()
        is_early = appears_early(files)
        with self._writing():
            files.create_dir(place, recursive=True)
            with files.open_output_stream(f"{place}/.{name}{_GROWING}" if is_early else f"{place}/{name}") as stream:
                stream.write(data)
            if is_hdfs(files):
                self._replace(files, place, name)
            elif is_early:
                replace_file(files, f"{place}/.{name}{_GROWING}", f"{place}/{name}")

    def _replace(self, files: FileSystem, place: str, name: str) -> None:
        """Replace a file by a complete one. HDFS does not overwrite by a rename, so the old file is moved aside first.

        After each step the old text or the new text exists, in its place or aside.
        """
        aside = f"{place}/.{name}"
        if self._read(name) is None and self._read(f".{name}") is not None:
            files.move(aside, f"{place}/{name}")  # an earlier replacement was interrupted before this step
        replace_file(files, f"{aside}{_GROWING}", aside)
        replace_file(files, aside, f"{place}/{name}")

    def rename(self, name: str, new: str) -> None:
        """Copy, then delete: a reader in between sees both."""
        text = self.read(name)
        if text is None:
            raise UnavailableError(f"the ledger {self.address} cannot be written: its file {name} is gone")
        self.write(new, text)
        self.delete(name)

    def delete(self, name: str) -> None:
        """Delete a file if it is there."""
        files, place = self._opened()
        with self._writing():
            delete_file(files, f"{place}/.{name}")  # first, or it would be read again
            delete_file(files, f"{place}/{name}")

    def _opened(self) -> tuple[FileSystem, str]:
        return open_address(self.address, f"the ledger {self.address}")

    @contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except store_errors(UnicodeDecodeError) as error:
            raise UnavailableError(f"the ledger {self.address} cannot be read: {words_of(error)}") from error

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except store_errors() as error:
            raise UnavailableError(f"the ledger {self.address} cannot be written: {words_of(error)}") from error


def is_address(place: str) -> bool:
    """Whether a ledger can be at an address of this scheme."""
    scheme = _SCHEME.match(place)
    return scheme is not None and scheme[1].lower() in SCHEMES


def _check_owner(path: Path, status: os.stat_result) -> None:
    """Raise InputError for a ledger of another user, who could keep its lock or replace its files."""
    if status.st_uid not in {os.geteuid(), 0}:
        raise InputError(
            f"{path} belongs to user {status.st_uid}, and this process runs as user {os.geteuid()}: give the query a "
            f"ledger directory that its own user creates"
        )


@contextmanager
def _locked(path: Path, ledger: Path | str, failed: str, timeout_s: float) -> Iterator[None]:
    """Hold the lock of a file that this user alone can create. failed: the error if the file cannot be opened."""
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, _FILE_MODE)
    except OSError as error:
        raise InputError(f"{failed}: {error}") from error
    try:
        _check_owner(path, os.fstat(handle))
        deadline = time.monotonic() + timeout_s
        while not _try_lock(handle):
            if time.monotonic() > deadline:
                raise UnavailableError(f"the ledger {ledger} was locked by another process for {timeout_s:g} s")
            time.sleep(0.05)
        yield
    finally:
        os.close(handle)


def _try_lock(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
