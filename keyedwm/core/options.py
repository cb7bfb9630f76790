"""Reading options: one clear sentence for whatever is wrong, never a silent default.

Rule: names are case-insensitive; a value is named in the message, its beginning if it is long, unless its name says
that it is a secret.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterable, Mapping
from enum import Enum
from types import MappingProxyType
from typing import TypeVar

from keyedwm.core.errors import OptionError

E = TypeVar("E", bound=Enum)

SECRET = re.compile(
    r"password|secret|jaas|token|credential|[._]key$|key\.pem|accesskey|access_key|account_?key|customer_?key"
    r"|(?:^|[._])sas(?:[._]|$)|(?:^|[._])sig$|signature|^storage\.",  # storage.*: all, as stores have many names
    re.IGNORECASE,
)
_MOST_SHOWN = 200
_NONE: Mapping[str, str] = MappingProxyType({})
_MOST_MS = 2**63 - 1

_OF_A_TABLE = "option."  # what Spark puts before the options of CREATE TABLE

_UNIT_MS = {
    "ms": 1, "millisecond": 1, "milliseconds": 1,
    "s": 1_000, "sec": 1_000, "second": 1_000, "seconds": 1_000,
    "m": 60_000, "min": 60_000, "minute": 60_000, "minutes": 60_000,
    "h": 3_600_000, "hour": 3_600_000, "hours": 3_600_000,
    "d": 86_400_000, "day": 86_400_000, "days": 86_400_000,
    "week": 604_800_000, "weeks": 604_800_000,
}  # fmt: skip
_PART = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]+)\s*", re.IGNORECASE)

_UNIT_MONTHS = {"month": 1, "quarter": 3, "year": 12}
_MONTHS = re.compile(r"(\d{1,6})\s*(month|quarter|year)s?")


def nearest(name: str, known: Iterable[str], *, similarity: float = 0.6) -> str | None:
    """Return the known name that `name` was most likely meant to be, or None. similarity: 1 for equal names."""
    by_lower = {k.lower(): k for k in sorted(known)}
    close = difflib.get_close_matches(name.lower(), sorted(by_lower), n=1, cutoff=similarity)
    return by_lower[close[0]] if close else None


def refuse_unknown(
    given: Iterable[str],
    known: Iterable[str],
    *,
    side: str,
    kafka: Collection[str] = frozenset(),
    instead: Mapping[str, str] = _NONE,
) -> None:
    """Raise OptionError for the first option (in name order) that is not known, with the nearest known name.

    kafka: properties, in lower case, that are options only with `kafka.` in front. instead: names of others, in lower
    case, and the known name of the same thing.
    """
    names, given = list(known), list(given)
    lower = {n.lower() for n in names}
    if any(name.lower().startswith(_OF_A_TABLE) for name in given):
        raise OptionError(
            f"a table of a catalog cannot be a keyedwm {side}, since Spark hands its options on as {_OF_A_TABLE}NAME, "
            "among the table's own properties: use CREATE TEMPORARY VIEW ... USING keyedwm OPTIONS (...) in place of "
            'CREATE TABLE for batch reads, and format("keyedwm") in a program for streams and writes'
        )
    for name in sorted(given):
        if name.lower() in lower or name.lower().startswith("kafka."):
            continue
        hint = f"kafka.{name.lower()}" if name.lower() in kafka else instead.get(name.lower()) or nearest(name, names)
        advice = f"did you mean {hint}?" if hint else "it is neither keyedwm's, Spark's, nor a kafka.* one"
        raise OptionError(f"option {name} is unknown to the keyedwm {side}: {advice}")


def wrong(name: str, value: str, right: str) -> OptionError:
    """Build the error for a wrong value; secrets are named without their value."""
    shown = "the value given" if SECRET.search(name) else repr(value)
    if len(shown) > _MOST_SHOWN:
        shown = f"{shown[:_MOST_SHOWN]}... ({len(shown)} characters)"
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
    if re.search(r"\b(month|year)s?\b", text):
        raise wrong(name, value, "months and years differ in length: a duration in weeks, days or shorter is expected")
    if total > _MOST_MS:
        raise wrong(name, value, f"a duration of at most {_MOST_MS} milliseconds is expected")
    if at < len(text) or not text or total != int(total):
        least = ", 0 or more" if text.startswith("-") else ""
        right = f"a duration such as '10 seconds', '1 hour 30 minutes' or '500 milliseconds' is expected{least}"
        right += ", in whole milliseconds" if re.search(r"micro|nano|\d\s*[un]s\b", text) or total != int(total) else ""
        raise wrong(name, value, right)
    return int(total)


def offset_ms(name: str, value: str) -> int:
    """Parse how much later something begins, or with a `-` in front earlier, into whole milliseconds."""
    text = str(value).strip().lower().removeprefix("interval ").lstrip()
    return -duration_ms(name, text[1:]) if text.startswith("-") else duration_ms(name, value)


def months_of(value: str) -> int | None:
    """Return the whole number of months, quarters or years that a text says, None if it says something else."""
    found = _MONTHS.fullmatch(str(value).strip().lower().removeprefix("interval "))
    return int(found[1]) * _UNIT_MONTHS[found[2]] if found else None


def span_text(ms: int) -> str:
    """Word a length of time in the largest unit that makes it a whole number: 540,000 ms are `9 minutes`."""
    for unit, unit_ms in (("day", 86_400_000), ("hour", 3_600_000), ("minute", 60_000), ("second", 1_000)):
        if ms and ms % unit_ms == 0:
            return f"{ms // unit_ms} {unit}" + ("" if ms == unit_ms else "s")
    return f"{ms} ms"


def choice(name: str, value: str, kind: Iterable[E], instead: Mapping[str, str] = _NONE) -> E:
    """Return the member of `kind`, an enum or some of one, whose value equals `value`, ignoring case.

    instead: see `refuse_unknown`.
    """
    kind = list(kind)
    for member in kind:
        if str(member.value).lower() == str(value).strip().lower():
            return member
    allowed = ", ".join(str(m.value) for m in kind)
    hint = instead.get(str(value).strip().lower()) or nearest(str(value), [str(m.value) for m in kind])
    raise wrong(name, value, f"one of {allowed} is expected" + (f"; did you mean {hint}?" if hint else ""))


def boolean(name: str, value: str) -> bool:
    """Parse `true` or `false`."""
    if value.strip().lower() not in {"true", "false"}:
        raise wrong(name, value, "true or false is expected")
    return value.strip().lower() == "true"


def whole(name: str, value: str, *, at_least: int = 1) -> int:
    """Parse a whole number that is at least `at_least`."""
    if not re.fullmatch(r"\s*[+-]?[0-9]+\s*", value) or len(value) > _MOST_SHOWN or int(value) < at_least:
        raise wrong(name, value, f"a whole number of at least {at_least} is expected")
    return int(value)
