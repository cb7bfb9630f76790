"""Advice for errors about a condition. Users can add a column to a frame before, but not to the rows of an option."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Advice:
    """The advice by kind of error.

    cast: for types that cannot be combined. wider: for an overflow. compute: for functions and other SQL. path: for a
    text that looks like a path. name_advice: for an unknown column, whose name replaces NAME in the text.
    """

    cast: str = "cast the column before"
    wider: str = "cast a column to a wider type before"
    compute: str = "compute it as a column before"
    path: str = ""
    name_advice: str = ""
