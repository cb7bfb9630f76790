"""Fields that are asked for of values with a schema, and how the loops store them.

Rule: Avro and Protobuf store alike, so one module makes Arrow columns of both (`columns`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from keyedwm.core.places import DecimalType, FieldType, Unit, schema_path

Steps: TypeAlias = Sequence[str | int]  # of a path
# (multiplied by, divided by) to get ms, of each unit of an event time.
TO_MS: Mapping[Unit, tuple[int, int]] = MappingProxyType({
    Unit.SECONDS: (1_000, 1), Unit.MILLISECONDS: (1, 1), Unit.MICROSECONDS: (1, 1_000),
    Unit.NANOSECONDS: (1, 1_000_000), Unit.ISO: (1, 1),
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class Request:
    """A field that is asked for. type: a unit asks for an event time in ms, of that unit unless the schema says one."""

    path: tuple[str | int, ...]
    type: FieldType | DecimalType | Unit

    @property
    def text(self) -> str:
        """Where it lies, as options write it."""
        return schema_path(self.path)

    @property
    def called(self) -> str:
        """The type, as sentences name it."""
        return f"an event time (unit {self.type.value})" if isinstance(self.type, Unit) else self.type.value


class TextWriter(ABC):
    """Writes what has parts (a list, a map, a record, a message) as JSON text; one for each type of a schema."""

    @abstractmethod
    def write(
        self,
        data: NDArray[np.uint8],
        start: NDArray[np.int64],
        stop: NDArray[np.int64],
        valid: NDArray[np.uint8],
        faults: NDArray[np.uint8],
    ) -> pa.Array:
        """Return the texts of the valid rows' bytes data[start:stop], as binary values.

        valid, faults: changed where there is no text.
        """


class Stored(Enum):
    """What a loop stores of a value in its two numbers."""

    NUMBER = "number"
    DOUBLE = "double"  # its bits
    SPAN = "span"  # of bytes: start and end
    DECIMAL_WORDS = "decimal words"  # the low and the high one of a decimal
    SECONDS = "seconds"  # and nanoseconds
    PARTS = "parts"  # the span of what is written as JSON text


@dataclass(frozen=True, slots=True)
class Layout:
    """How a program stores a field.

    scale: of a decimal. to_ms: what makes ms of an event time's number. writer: of parts. steps: the path into their
    text, empty for a text without its quotes, None for the whole text.
    """

    stored: Stored = Stored.NUMBER
    scale: int = 0
    to_ms: tuple[int, int] = (1, 1)
    writer: TextWriter | None = None
    steps: tuple[str | int, ...] | None = None
