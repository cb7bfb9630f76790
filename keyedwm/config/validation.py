"""Validation of user input: the texts of options, and the values of arguments.

Rule: a wrong value raises one clear sentence, which names the option or argument; no default replaces the value. Names
of options are case-insensitive. The message shows the value, or the beginning of a long one, unless the option's name
is that of a secret. NumPy's numbers become Python's and lists become tuples, so that plans with equal arguments are
equal.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import Enum
from operator import index
from types import MappingProxyType
from typing import Any, TypeVar

import numpy as np

from keyedwm.core.errors import OptionError
from keyedwm.core.text import nearest, short_repr

E = TypeVar("E", bound=Enum)

MS = "ms"
SECRET = re.compile(
    r"password|secret|jaas|token|credential|[._]key$|key\.pem|accesskey|access_key|account[-_]?key|customer_?key"
    r"|api[-_]?key|(?:^|[._-])(?:authorization|cookie)$"  # headers
    r"|connection-string|(?:^|[._])sas(?:[._]|$)|(?:^|[._])sig$|signature"
    r"|^storage\.",  # all of storage.*: each store has its own names of secrets
    re.IGNORECASE,
)
_MOST_DIGITS = 200
_NONE: Mapping[str, str] = MappingProxyType({})
_OF_A_TABLE = "option."  # Spark's prefix for the options of CREATE TABLE

_MOST_MS = 2**63 - 1
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


def is_host_name(name: str) -> bool:
    """Whether a name can be that of a host: no part of it is empty or longer than 63 characters."""
    try:
        name.encode("idna")
    except UnicodeError:
        return False
    return True


def refuse_unknown(
    options: Iterable[str],
    known: Iterable[str],
    *,
    side: str,
    kafka: Collection[str] = frozenset(),
    instead: Mapping[str, str] = _NONE,
) -> None:
    """Raise OptionError for the first option (in name order) that is not known, with the nearest known name.

    kafka: properties, in lower case, that are options only with `kafka.` in front. instead: another product's name, in
    lower case -> the known name with the same meaning.
    """
    names, options = list(known), list(options)
    lower = {n.lower() for n in names}
    if any(name.lower().startswith(_OF_A_TABLE) for name in options):
        raise OptionError(
            f"a table of a catalog cannot be a keyedwm {side}, since Spark hands its options on as {_OF_A_TABLE}NAME, "
            "among the table's own properties: use CREATE TEMPORARY VIEW ... USING keyedwm OPTIONS (...) in place of "
            'CREATE TABLE for batch reads, and format("keyedwm") in a program for streams and writes'
        )
    for name in sorted(options):
        if name.lower() in lower or name.lower().startswith("kafka."):
            continue
        hint = f"kafka.{name.lower()}" if name.lower() in kafka else instead.get(name.lower()) or nearest(name, names)
        advice = f"did you mean {hint}?" if hint else "it is neither keyedwm's, Spark's, nor a kafka.* one"
        raise OptionError(f"option {name} is unknown to the keyedwm {side}: {advice}")


def wrong(name: str, value: str, right: str) -> OptionError:
    """Build the error for a wrong value; secrets are named without their value."""
    value_text = "the value given" if SECRET.search(name) else short_repr(value)
    return OptionError(f"option {name}: {value_text} is wrong; {right}")


def choice(name: str, value: str, kind: Iterable[E], instead: Mapping[str, str] = _NONE) -> E:
    """Return the member of `kind`, an enum or some of its members, whose value equals `value`, ignoring case.

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
    if not re.fullmatch(r"\s*[+-]?[0-9]+\s*", value) or len(value) > _MOST_DIGITS or int(value) < at_least:
        raise wrong(name, value, f"a whole number of at least {at_least} is expected")
    return int(value)


def duration_ms(name: str, value: str) -> int:
    """Parse a Spark interval string (`10 seconds`, `1 hour 30 minutes`, `500ms`) into whole milliseconds."""
    # str: a call from Python may give a number, which gets the same error as an option's.
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
        least = ", and no negative one" if text.startswith("-") else ""
        right = f"a duration such as '10 seconds', '1 hour 30 minutes' or '500 milliseconds' is expected{least}"
        right += ", in whole milliseconds" if re.search(r"micro|nano|\d\s*[un]s\b", text) or total != int(total) else ""
        raise wrong(name, value, right)
    return int(total)


def offset_ms(name: str, value: str) -> int:
    """Parse a shift into whole milliseconds: a duration for later, or a duration after `-` for earlier."""
    text = str(value).strip().lower().removeprefix("interval ").lstrip()
    return -duration_ms(name, text[1:]) if text.startswith("-") else duration_ms(name, value)


def months_of(value: str) -> int | None:
    """Return how many months a text such as `2 quarters` or `1 year` has; None for a text of another form."""
    match = _MONTHS.fullmatch(str(value).strip().lower().removeprefix("interval "))
    return int(match[1]) * _UNIT_MONTHS[match[2]] if match else None


def names_months(value: str) -> bool:
    """Whether a duration has months, quarters or years among its units."""
    return bool(re.search(r"(month|quarter|year)s?\b", str(value).lower()))


def number(subject: str, value: object, unit: str = "") -> int:
    """Return a whole number as Python's int; raise OptionError for another value. unit: its unit, such as `MS`."""
    try:
        if not isinstance(value, (bool, np.bool_)):  # an older NumPy converts its own booleans to 0 and 1
            return index(value)  # type: ignore[arg-type]
    except TypeError:
        pass
    right = f"a whole number of {unit}" if unit else "a whole number"
    raise OptionError(f"{subject} is {short_repr(value)}: {right} is expected{_in_ms(value) if unit == MS else ''}")


def _in_ms(value: object) -> str:
    """Return the advice for a text that is one of Spark's durations: its number of milliseconds. Else empty."""
    try:
        return f", {duration_ms('given', value)}" if isinstance(value, str) else ""
    except OptionError:
        return ""


def number_or_none(subject: str, value: object, unit: str = "") -> int | None:
    """Return None, or a whole number as Python's int; raise OptionError for another value."""
    return None if value is None else number(subject, value, unit)


def expect(subject: str, value: object, kinds: type | tuple[type, ...], right: str) -> None:
    """Raise OptionError unless a value is an instance of `kinds`. right: what is expected, for the error."""
    if not isinstance(value, kinds):
        raise OptionError(f"{subject} is {short_repr(value)}: {right} is expected")


def expect_member(subject: str, value: object, kind: type[E]) -> None:
    """Raise OptionError unless a value is a member of an enum."""
    if isinstance(value, kind):
        return
    members = [f"{kind.__name__}.{one.name}" for one in kind]
    same = [f"{kind.__name__}.{one.name}" for one in kind if str(one.value) == str(value).strip().lower()]
    right = same[0] if same else f"one of {', '.join(members)}"
    raise OptionError(f"{subject} is {short_repr(value)}: {right} is expected")


def names(subject: str, value: object) -> tuple[str, ...]:
    """Return the names of columns as a tuple; raise OptionError unless the value is a tuple or list of texts."""
    if isinstance(value, (tuple, list)) and all(isinstance(one, str) for one in value):
        return tuple(value)
    example = f"({value!r},)" if isinstance(value, str) else "('key',)"
    raise OptionError(
        f"{subject} is {short_repr(value)}: a tuple of the names of columns is expected, such as {example}"
    )


def pairs(subject: str, value: object, example: str) -> tuple[tuple[str, Any], ...]:
    """Return pairs of a name and a value as a tuple; raise OptionError for a value of another form."""
    if isinstance(value, Sequence) and not isinstance(value, str):
        result = tuple(tuple(one) if isinstance(one, (tuple, list)) else () for one in value)
        if all(len(one) == 2 and isinstance(one[0], str) for one in result):
            return result
    raise OptionError(f"{subject} are {short_repr(value)}: a tuple of pairs is expected, such as {example}")


def set_fields(target: object, **values: object) -> None:
    """Set fields of a frozen dataclass to their converted values, in its `__post_init__`."""
    for name, value in values.items():
        object.__setattr__(target, name, value)
