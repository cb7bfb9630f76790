"""The last error of a query, in a small file of ours in the query's checkpoint: Spark itself writes no such file.

Rule: the sink or a listener that sees a query fail writes the file, and commands that show the checkpoint read it. The
file names the batch that was not committed; a commit of this batch makes the error out of date. A file that cannot be
written is only a warning: the query still ends with its own error. The file contains no login.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from keyedwm.config.secrets import without_logins
from keyedwm.core.errors import FormatError, InputError, KeyedwmError
from keyedwm.core.parsing import parse_json
from keyedwm.core.text import short_repr, shortened
from keyedwm.savepoint_files import Files

PACKAGE_DIRECTORY = "keyedwm"  # the directory of this package in a checkpoint
VERSION = 1
_NAME = "last_error.json"
_COMMITS = "commits"
_MOST_TEXT = 2_000
_log = logging.getLogger("keyedwm.last_error")


@dataclass(frozen=True, kw_only=True, slots=True)
class LastError:
    """An error. at_ms: its time, by the clock of the host that saw it. batch: the first one not committed by then."""

    at_ms: int
    batch: int
    text: str

    def __post_init__(self) -> None:
        if not all(isinstance(number, int) and number >= 0 for number in (self.at_ms, self.batch)):
            raise FormatError(
                f"an error at {short_repr(self.at_ms)} in batch {short_repr(self.batch)}: numbers are expected"
            )
        if not isinstance(self.text, str):
            raise FormatError(f"an error whose text is {short_repr(self.text)}: text is expected")


@contextmanager
def leaving_error(checkpoint: str | None, batch: int | None) -> Iterator[None]:
    """Write a KeyedwmError that ends this block to the checkpoint.

    Other errors come from the input of the rows, which a stop of the query ends with errors of many kinds. checkpoint:
    None if it is not known; then nothing is written. batch: see `leave_error`.
    """
    try:
        yield
    except KeyedwmError as error:
        if checkpoint is not None:
            leave_error(Files(checkpoint), str(error), batch)
        raise


def leave_error(checkpoint: Files, text: str, batch: int | None = None) -> None:
    """Write an error to a checkpoint. batch: the batch that failed; None for the batch after the last committed one.

    Nothing is written if there is no checkpoint: a task may run on a host that does not see the driver's directories.
    """
    try:
        if checkpoint.names() is None:
            return
        if batch is None:
            committed = [int(name) for name in checkpoint.names(_COMMITS) or () if name.isascii() and name.isdecimal()]
            batch = max(committed, default=-1) + 1
        note = {
            "version": VERSION,
            "at_ms": time.time_ns() // 1_000_000,
            "batch": batch,
            "text": shortened(without_logins(text), _MOST_TEXT),
        }
        checkpoint.below(PACKAGE_DIRECTORY).write(_NAME, json.dumps(note))
    except KeyedwmError as error:
        _log.warning("the error that ended the query could not be written to its checkpoint: %s", error)


def last_error(checkpoint: Files, committed: int | None) -> LastError | None:
    """Return the last error; None if there is none, or if the last committed batch, `committed`, supersedes it.

    Raises InputError if the file is damaged, FormatError if its version is unknown, UnavailableError.
    """
    directory = checkpoint.below(PACKAGE_DIRECTORY)
    text = directory.read(_NAME)
    if text is None:
        return None
    try:
        content = parse_json(text)
        version = content["version"]
        is_known = version == VERSION
        error = LastError(at_ms=content["at_ms"], batch=content["batch"], text=content["text"]) if is_known else None
    except (ValueError, KeyError, TypeError, FormatError) as wrong:
        raise InputError(f"{directory.place}/{_NAME} is damaged: delete it; it only describes a past error") from wrong
    if error is None:
        raise FormatError(
            f"{directory.place}/{_NAME} has version {short_repr(version)}, this keyedwm reads version {VERSION}"
        )
    return None if committed is not None and committed >= error.batch else error
