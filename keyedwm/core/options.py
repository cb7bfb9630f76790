"""Reading options: one clear sentence for whatever is wrong, never a silent default.

Rule: names are case-insensitive; a value is named in the message unless its name says that it is a secret.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from enum import Enum
from typing import TypeVar

from keyedwm.core.errors import OptionError

E = TypeVar("E", bound=Enum)

SECRET = re.compile(r"password|secret|jaas|token|credential|\.key$|key\.pem|accesskey|access_key", re.IGNORECASE)

_UNIT_MS = {
    "ms": 1, "millisecond": 1, "milliseconds": 1,
    "s": 1_000, "sec": 1_000, "second": 1_000, "seconds": 1_000,
    "m": 60_000, "min": 60_000, "minute": 60_000, "minutes": 60_000,
    "h": 3_600_000, "hour": 3_600_000, "hours": 3_600_000,
    "d": 86_400_000, "day": 86_400_000, "days": 86_400_000,
    "week": 604_800_000, "weeks": 604_800_000,
}  # fmt: skip
_PART = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]+)\s*", re.IGNORECASE)


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that `name` was most likely meant to be, or None."""
    by_lower = {k.lower(): k for k in sorted(known)}
    close = difflib.get_close_matches(name.lower(), sorted(by_lower), n=1, cutoff=0.6)
    return by_lower[close[0]] if close else None


def refuse_unknown(given: Iterable[str], known: Iterable[str], *, side: str) -> None:
    """Raise OptionError for the first option (in name order) that is not known, with the nearest known name."""
    names = list(known)
    lower = {n.lower() for n in names}
    for name in sorted(given):
        if name.lower() in lower or name.lower().startswith("kafka."):
            continue
        hint = nearest(name, names)
        advice = f"did you mean {hint}?" if hint else "it is neither keyedwm's, Spark's, nor a kafka.* one"
        raise OptionError(f"option {name} is unknown to the keyedwm {side}: {advice}")


def wrong(name: str, value: str, right: str) -> OptionError:
    """Build the error for a wrong value; secrets are named without their value."""
    shown = "the value given" if SECRET.search(name) else repr(value)
    return OptionError(f"option {name}: {shown} is wrong; {right}")


def duration_ms(name: str, value: str) -> int:
    """Parse a Spark interval string (`10 seconds`, `1 hour 30 minutes`, `500ms`) into whole milliseconds."""
    # str: a number in a call from Python is refused as one in an option is.
    text = str(value).strip().lower().removeprefix("interval ")
    at, total = 0, 0.0
    while at < len(text):
        part = _PART.match(text, at)
        if part is None or part[2] not in _UNIT_MS:
            break
        total += float(part[1]) * _UNIT_MS[part[2]]
        at = part.end()
    if at < len(text) or not text or total != int(total):
        raise wrong(name, value, "a duration such as '10 seconds', '1 hour 30 minutes' or '500 milliseconds' is wanted")
    return int(total)


def choice(name: str, value: str, kind: type[E]) -> E:
    """Return the member of `kind` whose value equals `value`, ignoring case."""
    for member in kind:
        if str(member.value).lower() == str(value).strip().lower():
            return member
    allowed = ", ".join(str(m.value) for m in kind)
    hint = nearest(str(value), [str(m.value) for m in kind])
    raise wrong(name, value, f"one of {allowed} is wanted" + (f"; did you mean {hint}?" if hint else ""))


def boolean(name: str, value: str) -> bool:
    """Parse `true` or `false`."""
    if value.strip().lower() not in {"true", "false"}:
        raise wrong(name, value, "true or false is wanted")
    return value.strip().lower() == "true"


def whole(name: str, value: str, *, at_least: int = 1) -> int:
    """Parse a whole number that is at least `at_least`."""
    if not re.fullmatch(r"\s*[+-]?\d+\s*", value) or int(value) < at_least:
        raise wrong(name, value, f"a whole number of at least {at_least} is wanted")
    return int(value)
