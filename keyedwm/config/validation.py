"""Settings as a program gives them: what is of another kind is one sentence, where it is written down.

Rule: numbers of NumPy become plain ones, lists become tuples, so plans that ask for the same are the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from operator import index
from typing import Any, TypeVar

import numpy as np

from keyedwm.core.errors import OptionError
from keyedwm.core.options import duration_ms

E = TypeVar("E", bound=Enum)

MS = "ms"
_SHOWN = 80


def shown(given: object) -> str:
    """Return a value as a sentence names it: on one line, and its beginning if it is long."""
    text = " ".join(repr(given).split())
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def number(what: str, given: object, unit: str = "") -> int:
    """Return a whole number as a plain one; raise OptionError if it is none. unit: what it counts, as `MS`."""
    try:
        if not isinstance(given, (bool, np.bool_)):  # an older NumPy takes its own for 0 and 1
            return index(given)  # type: ignore[arg-type]
    except TypeError:
        pass
    right = f"a whole number of {unit}" if unit else "a whole number"
    raise OptionError(f"{what} is {shown(given)}: {right} is expected{_in_ms(given) if unit == MS else ''}")


def number_or_none(what: str, given: object, unit: str = "") -> int | None:
    """Return a whole number as a plain one, and None as it is."""
    return None if given is None else number(what, given, unit)


def _in_ms(given: object) -> str:
    """The number that a text of a duration stands for, as Spark takes it."""
    try:
        return f", {duration_ms('given', given)}" if isinstance(given, str) else ""
    except OptionError:
        return ""


def expect(what: str, given: object, kinds: type | tuple[type, ...], right: str) -> None:
    """Raise OptionError unless a value is of one of these kinds."""
    if not isinstance(given, kinds):
        raise OptionError(f"{what} is {shown(given)}: {right} is expected")


def expect_member(what: str, given: object, kind: type[E]) -> None:
    """Raise OptionError unless a value is a member of an enum."""
    if isinstance(given, kind):
        return
    told = [f"{kind.__name__}.{one.name}" for one in kind]
    same = [f"{kind.__name__}.{one.name}" for one in kind if str(one.value) == str(given).strip().lower()]
    right = same[0] if same else f"one of {', '.join(told)}"
    raise OptionError(f"{what} is {shown(given)}: {right} is expected")


def names(what: str, given: object) -> tuple[str, ...]:
    """Return the names of columns as a tuple; raise OptionError if they are none."""
    if isinstance(given, (tuple, list)) and all(isinstance(one, str) for one in given):
        return tuple(given)
    example = f"({given!r},)" if isinstance(given, str) else "('key',)"
    raise OptionError(f"{what} is {shown(given)}: a tuple of the names of columns is expected, such as {example}")


def pairs(what: str, given: object, example: str) -> tuple[tuple[str, Any], ...]:
    """Return pairs of a name and something as a tuple; raise OptionError if they are none."""
    if isinstance(given, Sequence) and not isinstance(given, str):
        made = tuple(tuple(one) if isinstance(one, (tuple, list)) else () for one in given)
        if all(len(one) == 2 and isinstance(one[0], str) for one in made):
            return made
    raise OptionError(f"{what} are {shown(given)}: a tuple of pairs is expected, such as {example}")


def settle(target: object, **values: object) -> None:
    """Set fields of a frozen dataclass to what was made of them, while it is built."""
    for name, value in values.items():
        object.__setattr__(target, name, value)
