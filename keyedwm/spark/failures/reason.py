"""The one sentence of ours inside what Spark raises, which stands around it in dozens to hundreds of lines.

Rule: an error that this package raises on purpose ends in its advice in brackets, on one line of the traceback that
Spark copies. The last such line is the error that ended the query; the ones before it are its causes.
"""

from __future__ import annotations

import re
import sys
from types import TracebackType
from typing import TYPE_CHECKING

from keyedwm.core.errors import KeyedwmError, OptionError
from keyedwm.spark.arguments import argument_text

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

_OWN_ERROR = re.compile(r"\b(?:keyedwm|pyspark_wm_source|pyspark_wm_sink)(?:\.\w+)+: (.+\[[^\[\]]+\])")
# What stands around Spark's own words, of a query and of a call; then its condition, which Spark names for most errors.
_AROUND = re.compile(
    r"(?:terminated with exception: |\AAn error occurred while calling .+\n: [\w.$]+: )(.+)", re.DOTALL
)
_CONDITION = re.compile(r"^(?:[\w.]+(?:Exception|Error): )?\[([A-Z][\w.]+)\] (.+)", re.DOTALL)
_BEHIND = re.compile(r"(?:[;,.]? *SQLSTATE: \w+|\n).*", re.DOTALL)
# A function of the user's in Python: the last line of its traceback says what went wrong, what is before it where.
_TRACEBACK = re.compile(r"Traceback \(most recent call last\):\n(?:[ \t].*\n)*(\S.*)")
_NOT_FOUND = re.compile(r"DATA_SOURCE_NOT_FOUND.*\bkeyedwm\b")
_MISSING = re.compile(r"ModuleNotFoundError: No module named '(?:keyedwm|pyspark_wm_source|pyspark_wm_sink)\b")
# Before any Python runs, so that Spark and Java alone report it.
_NO_PROGRAM = re.compile(r'Cannot run program "([^"]+)"')
_NO_START = re.compile(r"Python worker failed to connect back")
# What the worker itself said in `keyedwm.runtime.worker`, or where Spark names it.
_HOST = re.compile(r"No module named 'keyedwm' on host (\S+)|\(TID \d+\) \((\S+) executor")
_MOST_TEXT, _MOST_LINE = 1_000_000, 4_000  # characters
_NOT_FOUND_REASON = (
    "Spark did not find the format keyedwm: the Python that it starts does not have this package "
    f"[set PYSPARK_PYTHON and PYSPARK_DRIVER_PYTHON to {sys.executable} before Spark starts]"
)

# Said here: nothing of ours runs on the worker.
_MISSING_REASON = (
    "a worker {where}runs a Python that does not have the package keyedwm "
    "[install it on every worker, or ship the environment and name its Python in PYSPARK_PYTHON]"
)
_NO_PROGRAM_REASON = (
    "{where} cannot run the Python {python!r} that Spark should start there "
    "[set PYSPARK_PYTHON to a path that is right on the driver and on every worker; for a shipped environment name it "
    "in spark.archives, and link it beside the driver]"
)
_NO_START_REASON = (
    "Spark waited ten seconds for a Python process {where} to start, and gave up "
    "[start the query again: nothing was lost; if it happens again, give that host less to do, or try its Python by "
    "hand]"
)


def reason(failed: StreamingQuery | BaseException | str | None) -> str | None:
    """Return why a query or a call failed: one sentence with its advice in brackets.

    failed: a query, an exception that Spark raised, or the text of one; `query.exception()` is None for a query that
    did not fail. Of an error that is Spark's own, Spark's first sentence. None if there is no error, or neither ours
    nor Spark's.
    """
    if failed is None or isinstance(failed, (BaseException, str)):
        error = failed
    elif hasattr(failed, "exception"):
        error = failed.exception()
    else:
        raise OptionError(f"reason: {argument_text(failed)} is no query, no exception and no text of one")
    return None if error is None else _own(error) or _of_spark(error)


def _own(error: BaseException | str) -> str | None:
    """Return the sentence if the error is ours."""
    return str(error) if isinstance(error, KeyedwmError) else _in_text(_with_short_lines(_texts(error)[-_MOST_TEXT:]))


def _with_short_lines(text: str) -> str:
    """Cut long lines, which patterns would look through for minutes: a line may quote a record's value."""
    return "\n".join(line[:_MOST_LINE] for line in text.split("\n"))


def _of_spark(error: BaseException | str) -> str | None:
    """Return Spark's first sentence, with the name of its condition, if the error is Spark's."""
    from pyspark.errors import PySparkException

    text = _with_short_lines(str(error)[:_MOST_TEXT])
    inner = _AROUND.search(text)
    text = inner[1] if inner else text
    match = _CONDITION.match(text)
    if match is None and inner is None and not isinstance(error, PySparkException):
        return None
    message = match[2] if match else text
    raised = _TRACEBACK.findall(message)
    sentence = _BEHIND.sub("", message.partition("Traceback (")[0] + raised[-1] if raised else message).strip()
    return f"{sentence} [Spark{(match and ': ' + match[1]) or ''}]" if sentence else None


def _texts(failed: BaseException | str) -> str:
    """Return all that an error says, its causes first."""
    if isinstance(failed, str):
        return failed
    before = failed.__cause__ or failed.__context__
    kind = type(failed)
    return (_texts(before) + "\n" if before else "") + f"{kind.__module__}.{kind.__qualname__}: {failed}"


def _in_text(text: str) -> str | None:
    matches = _OWN_ERROR.findall(text)
    if matches:
        return str(matches[-1])
    hosts = [own or other for own, other in _HOST.findall(text)]
    if _MISSING.search(text):
        return _MISSING_REASON.format(where=f"on host {hosts[-1]} " if hosts else "")
    if program := _NO_PROGRAM.search(text):
        where = f"the worker on host {hosts[-1]}" if hosts else "a host"
        return _NO_PROGRAM_REASON.format(where=where, python=program[1])
    if _NO_START.search(text):
        return _NO_START_REASON.format(where=f"on host {hosts[-1]}" if hosts else "of the driver")
    return _NOT_FOUND_REASON if _NOT_FOUND.search(text) else None


def show_reason_last() -> None:
    """Let an exception that ends a script be followed by the one sentence, as the last line of the console."""
    shown_before = sys.excepthook

    def show(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        shown_before(kind, error, trace)
        sentence = None if isinstance(error, KeyedwmError) else _own(error)
        if sentence:
            print(f"keyedwm: {sentence}", file=sys.stderr, flush=True)

    sys.excepthook = show
