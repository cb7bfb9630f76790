"""What sentences about a condition advise: what is right over a frame is not what is right in an option."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Advice:
    """cast: where types do not go together. wider: where a number overflows. compute: for what conditions do not know.

    path: for what looks like a path. named: behind the columns that there are, about a name that none has; NAME in it
    stands for that name.
    """

    cast: str = "cast the column before"
    wider: str = "cast a column to a wider type before"
    compute: str = "compute it as a column before"
    path: str = ""
    named: str = ""
