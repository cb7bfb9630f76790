"""Stored or foreign texts and bytes: parsed completely, or rejected with one kind of error.

Rule: every fault is a ValueError that names it in a few words; the caller adds the place. Python's own parsers raise
RecursionError for deep JSON, and zlib ignores missing and extra bytes.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable
from typing import Any

from keyedwm.core.text import short_repr


def parse_json(text: str | bytes, *, pairs: Callable[[list[tuple[str, Any]]], Any] | None = None) -> Any:
    """Return the value of a JSON text. pairs: builds the value of an object from its pairs. Raises ValueError."""
    try:
        return json.loads(text, object_pairs_hook=pairs)
    except RecursionError:
        raise ValueError("its JSON is too deep") from None


def inflated(data: bytes, most_bytes: int) -> bytes:
    """Return the decompressed bytes (zlib) of all of `data`. Raises ValueError, also for more than `most_bytes`."""
    unpacker = zlib.decompressobj()
    try:
        content = unpacker.decompress(data, most_bytes + 1)
    except zlib.error as error:
        raise ValueError(f"its compressed bytes are changed: {error}") from None
    if len(content) > most_bytes:
        raise ValueError(f"it is longer than {most_bytes} bytes once it is decompressed")
    if not unpacker.eof:
        raise ValueError("its compressed bytes are cut")
    if unpacker.unused_data:
        raise ValueError(f"{len(unpacker.unused_data)} bytes follow its compressed ones")
    return content


def whole_number(value: object, subject: str) -> int:
    """Return a whole number unchanged; raises ValueError for any other value, including JSON's true."""
    if type(value) is not int:
        raise ValueError(f"{subject} is {short_repr(value)}, a whole number is expected")
    return value


def whole_number_or_none(value: object, subject: str) -> int | None:
    """As `whole_number`, or None."""
    return None if value is None else whole_number(value, subject)
