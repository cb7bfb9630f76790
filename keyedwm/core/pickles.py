"""Pickles of values that a driver sends to its tasks by the thousand: ranges, their states, and control rows.

Rule: a value is built again from its fields, so its checks run in the task, too. A pickle lives as long as a task.
"""

from __future__ import annotations

import functools
from dataclasses import fields
from operator import attrgetter
from typing import Any, TypeVar

_Kind = TypeVar("_Kind", bound=type)


def pickled_by_fields(kind: _Kind) -> _Kind:
    """Let a dataclass with slots and at least two fields be pickled as its class and the values of its fields.

    `dataclass` itself sets a frozen value field by field, in Python, which takes twice the time.
    """
    values_of = attrgetter(*_names(kind))
    is_by_name = any(field.kw_only for field in fields(kind))

    def reduce(value: Any) -> tuple[Any, tuple[Any, ...]]:
        return (_build, (kind, *values_of(value))) if is_by_name else (kind, values_of(value))

    kind.__reduce__ = reduce  # type: ignore[method-assign, assignment]
    return kind


def _build(kind: type, *values: Any) -> Any:
    return kind(**dict(zip(_names(kind), values, strict=True)))


@functools.cache
def _names(kind: type) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind))
