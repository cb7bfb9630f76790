"""A column of the source, or a value inside of one, as text: `offset`, `key::string`, `json:$.amount::double`.

Rule: values only. `json:PATH` lies in the value and `key:PATH` in the key, as with the option `eventTime`. A type
behind `::`, as in Spark's SQL, says how the text is read; without one a value out of JSON is a string.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum

from keyedwm.core.errors import OptionError
from keyedwm.core.json_path import WANTED, json_steps
from keyedwm.core.options import choice, nearest, wrong
from keyedwm.core.rows import KEY, VALUE

_TYPED = re.compile(r"(.*)::\s*(\w+)\s*", re.DOTALL)
_PLACES = {"json": VALUE, "key": KEY}


class FieldType(Enum):
    """How the text of a key, a value or a place in JSON is read."""

    STRING = "string"
    BIGINT = "bigint"
    DOUBLE = "double"


@dataclass(frozen=True, slots=True)
class Field:
    """Where it lies: a column, and the steps into the JSON text there; `kind`: None for the column as it is."""

    column: str
    path: tuple[str | int, ...] = ()
    kind: FieldType | None = None

    @staticmethod
    def parse(name: str, text: str, columns: Collection[str]) -> Field:
        """Read a field; `name`: the option it was given in, `columns`: those of the source. Raises OptionError."""
        match = _TYPED.fullmatch(text)
        place, kind = (match[1].strip(), choice(name, match[2], FieldType)) if match else (text.strip(), None)
        head, colon, path = place.partition(":")
        if colon and head in _PLACES:
            steps = json_steps(path.strip())
            if steps is None:
                raise wrong(name, text, WANTED)
            return Field(_PLACES[head], steps, kind or FieldType.STRING)
        if place not in columns:
            hint = nearest(place, columns)
            known = f"did you mean {hint!r}?" if hint else f"it has {', '.join(columns)}, json:PATH and key:PATH"
            raise OptionError(f"option {name}: the source has no column {place!r}; {known}")
        if kind is not None and place not in _PLACES.values():
            raise wrong(name, text, f"only {KEY}, {VALUE} and values out of JSON take a type: write {place!r}")
        return Field(place, (), kind)
