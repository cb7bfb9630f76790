"""A column of the source, or a value inside of one: `offset`, `key::string`, `json:$.amount::double` in options.

Rule: values only. `json:PATH` lies in the value and `key:PATH` in the key, as with the option `eventTime`. A type
behind `::`, as in Spark's SQL, says how the text is read; without one a value out of JSON is a string.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


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
