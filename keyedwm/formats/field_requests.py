"""Fields requested from values with a schema, and how the compiled loops that read the values store these fields.

Rule: the loops of Avro and Protobuf store in the same form, so one module (`columns`) makes Arrow columns of both.
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
# Unit of an event time → (factor, divisor) to ms.
TO_MS: Mapping[Unit, tuple[int, int]] = MappingProxyType({
    Unit.SECONDS: (1_000, 1), Unit.MILLISECONDS: (1, 1), Unit.MICROSECONDS: (1, 1_000),
    Unit.NANOSECONDS: (1, 1_000_000), Unit.ISO: (1, 1),
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class Request:
    """A requested field. type: a `Unit` requests an event time, read in this unit unless the schema has its unit."""

    path: tuple[str | int, ...]
    type: FieldType | DecimalType | Unit

    @property
    def text(self) -> str:
        """The field's path, as options write it."""
        return schema_path(self.path)

    @property
    def type_name(self) -> str:
        """The type, for errors."""
        return f"an event time (unit {self.type.value})" if isinstance(self.type, Unit) else self.type.value


class TextWriter(ABC):
    """Writes values with parts (lists, maps, records, messages) as JSON text; each type of a schema has its own."""

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

        valid, faults: set in place for a row whose text cannot be written.
        """


class Stored(Enum):
    """The meaning of the two numbers that a loop stores for a value."""

    NUMBER = "number"
    DOUBLE = "double"  # its bits
    SPAN = "span"  # of bytes: start and end
    DECIMAL_WORDS = "decimal words"  # the low and the high word of a decimal
    SECONDS = "seconds"  # and nanoseconds
    PARTS = "parts"  # the span of a value that is written as JSON text


@dataclass(frozen=True, slots=True)
class Layout:
    """How a program stores a field.

    scale: a decimal's. to_ms: (factor, divisor) from an event time's number to ms. writer: writes the text of parts.
    steps: the path into this text; empty to unquote a JSON string, None to keep the text as it is.
    """

    stored: Stored = Stored.NUMBER
    scale: int = 0
    to_ms: tuple[int, int] = (1, 1)
    writer: TextWriter | None = None
    steps: tuple[str | int, ...] | None = None
