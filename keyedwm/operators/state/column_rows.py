"""Rows as columns of equal length: the base of the rows of logs, of sessions and of windows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, TypeVar

import numpy as np

from keyedwm.arrow.columns import Flags, Ints

_Rows = TypeVar("_Rows", bound="ColumnRows")


@dataclass(frozen=True, slots=True)
class ColumnRows:
    """The fields of a subclass are its columns: numbers or flags, or values with `take_rows` and `with_others`."""

    def __len__(self) -> int:
        return len(self.columns()[0])

    def columns(self) -> list[Any]:
        """The columns."""
        return [getattr(self, one.name) for one in fields(self)]

    def take_rows(self: _Rows, places: Ints | Flags | slice) -> _Rows:
        """Return some of the rows."""
        return type(self)(
            *(one[places] if isinstance(one, np.ndarray) else one.take_rows(places) for one in self.columns())
        )

    def where(self: _Rows, flags: Flags) -> _Rows:
        """Return the rows with these flags."""
        return self if flags.all() else self.take_rows(np.flatnonzero(flags))

    def with_others(self: _Rows, *others: _Rows) -> _Rows:
        """Return these rows, followed by others."""
        pieces = [piece for piece in (self, *others) if len(piece)]
        if len(pieces) < 2:
            return pieces[0] if pieces else self
        return type(self)(*map(_joined, zip(*(piece.columns() for piece in pieces), strict=True)))


def _joined(columns: Sequence[Any]) -> Any:
    first, *others = columns
    return np.concatenate(columns) if isinstance(first, np.ndarray) else first.with_others(*others)
