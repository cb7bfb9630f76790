"""The few kinds of error, one for each next step of the caller.

Rule: every error raised on purpose is one of these. Its message is one sentence: the wrong value, its place, the right
value. It survives pickling and never contains a secret. Texts of users and servers in it send nothing to a terminal.
"""

from __future__ import annotations

from keyedwm.core.error_codes import code_of
from keyedwm.core.text import printable


class KeyedwmError(Exception):
    """Base of every error raised on purpose. `advice`: the caller's next step. `code`: the code of the error."""

    advice = "this is a bug in keyedwm: please report it"

    def __init__(self, message: str) -> None:
        message = printable(message)
        super().__init__(message)
        self.message = message

    @property
    def code(self) -> str:
        """The code of the error's class, such as KWM-1001: docs/reference/errors.md has its cause and cure."""
        return code_of(type(self))

    def __str__(self) -> str:
        return f"{self.message} ({self.code}) [{self.advice}]"


class OptionError(KeyedwmError):
    """An option is missing, unknown or wrong."""

    advice = "fix your options"


class InputError(KeyedwmError):
    """The rows or the table are not what the options promise."""

    advice = "fix the input"


class UnavailableError(KeyedwmError):
    """A broker, a table or a disk did not answer in time; nothing was lost."""

    advice = "retry: nothing was lost"


class DataLossError(KeyedwmError):
    """Records that were promised are gone (Spark's KAFKA_DATA_LOSS)."""

    advice = "set failOnDataLoss=false to continue without the lost records"


class StartBeyondEndError(DataLossError):
    """A start was given that the log does not reach: mistyped, or the topic was recreated."""

    advice = "fix the offset, or set failOnDataLoss=false to start at the log's end"


class RegressionError(KeyedwmError):
    """A watermark of one channel and key did not increase (rule 1)."""

    advice = "fix the upstream writer, or use guarantee=at-least-once"


class FencedError(KeyedwmError):
    """Another writer took over; this one must stop."""

    advice = "stop: you were fenced by another writer"


class FormatError(KeyedwmError):
    """Durable data was written by a newer or foreign version; nothing was touched."""

    advice = "upgrade keyedwm, or start from a new checkpoint"


class DamagedError(FormatError):
    """Durable data was changed after it was written; nothing was touched."""

    advice = "put a copy of the checkpoint in its place, or start a new one from the source"


class OutOfTurnError(KeyedwmError):
    """A step that the state does not allow."""
