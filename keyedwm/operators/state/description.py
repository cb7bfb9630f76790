"""The description of a plan as JSON: it identifies the state, and has the facts that a reader of the state needs.

Rule: a description is read by names. Plans with equal descriptions can use each other's state; limits and intervals
that may change are not in it. Types are written as text, types of stored columns also in Arrow's binary form. Another
version of Arrow may write another form: this alone does not make it another plan.
"""

from __future__ import annotations

import hashlib
import json
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any

import pyarrow as pa

KIND = "kind"
_ARROW = "arrow_schema"


def described(value: Any) -> Any:
    """Return a value for JSON: a dataclass by the names of its fields, an enum by its value."""
    if is_dataclass(value):
        return {one.name: described(getattr(value, one.name)) for one in fields(value) if one.repr}
    if isinstance(value, Enum):
        return value.value
    return [described(one) for one in value] if isinstance(value, (list, tuple)) else value


def typed(schema: pa.Schema) -> list[list[str]]:
    """Return the names and types of columns."""
    return [[one.name, str(one.type)] for one in schema]


def columns(schema: pa.Schema) -> dict[str, Any]:
    """Return columns as a part of a description, for `schema_of`."""
    return {"schema": typed(schema), _ARROW: b64encode(schema.remove_metadata().serialize()).decode()}


def schema_of(description: Mapping[str, Any]) -> pa.Schema:
    """Return the columns of a description; see `columns`."""
    return pa.ipc.read_schema(pa.py_buffer(b64decode(description[_ARROW])))


def digest_of(description: Mapping[str, Any]) -> str:
    """Return a short text that differs if the descriptions differ."""
    return hashlib.sha256(json.dumps(_compared(description), sort_keys=True).encode()).hexdigest()[:16]


def lines_of(description: Mapping[str, Any], of: str = "") -> Iterator[str]:
    """Yield a description as text, a line for each setting and column, by name. of: the prefix of each name."""
    for name, value in sorted(description.items()):
        if name in (KIND, _ARROW):
            continue
        if isinstance(value, Mapping):
            yield f"{of}{name}={' '.join([str(value.get(KIND, '')), *lines_of(value)]).strip()}"
        elif isinstance(value, list) and value and isinstance(value[0], Mapping):
            for number, one in enumerate(value, start=1):
                yield f"{of}{name} {number}={one['name']}"
                yield from lines_of(one, f"{one['name']}: ")
        elif isinstance(value, list) and value and isinstance(value[0], list):
            yield from (f"{of}{name} {text_of(one)}" for one in value)
        else:
            yield f"{of}{name}={text_of(value)}"


def text_of(value: Any) -> str:
    """Return a value of a description as text."""
    if isinstance(value, (list, tuple)):
        return " ".join(map(text_of, value)) or "none"
    return "none" if value is None else str(value)


def _compared(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _compared(one) for name, one in value.items() if name != _ARROW}
    return [_compared(one) for one in value] if isinstance(value, (list, tuple)) else value
