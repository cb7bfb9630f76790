"""The messages of libraries for their failures, without the values of options that they repeat.

Rule: no message, and no cause of an error, shows a login inside an address or a value that could not be parsed.
"""

from __future__ import annotations

import re

_CAUSE = re.compile(r"\s*(\x1b\[\d+m)?↳(\x1b\[\d+m)?\s*")
LOGIN = re.compile(r"://[^/@\s]*@")
_VALUE = re.compile(r'(failed to parse|invalid value:?) "[^"]*"', re.IGNORECASE)


def one_line(error: BaseException) -> str:
    """Return a library error's message: its first line and the listed causes, without the stack."""
    first, *more = (str(error).strip() or type(error).__name__).splitlines()
    summary = ": ".join([first.strip(), *(_CAUSE.sub("", line) for line in more if _CAUSE.match(line))])
    return _without_values(summary)


def shown_cause(error: BaseException) -> BaseException | None:
    """Return the cause to raise from: None, which shows none, if its text holds what `one_line` omits."""
    text = str(error)
    return error if _without_values(text) == text else None


def _without_values(text: str) -> str:
    return _VALUE.sub(r"\1 the value given", LOGIN.sub("://***@", text))
