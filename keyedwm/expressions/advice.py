"""Advice in sentences about a condition: a frame can be given another column before, an option cannot."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Advice:
    """cast: where types do not go together. wider: where a number overflows. compute: for functions and other SQL.

    path: for a text that looks like a path. named: about a name that no column has, behind the names of the columns;
    NAME in it stands for that name.
    """

    cast: str = "cast the column before"
    wider: str = "cast a column to a wider type before"
    compute: str = "compute it as a column before"
    path: str = ""
    name_advice: str = ""
