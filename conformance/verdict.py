"""What replaying one vector says, and how two answers are compared.

Rule: a vector matches, or a rule of the design decides otherwise (and the difference is exactly the one that rule
makes), or it fails. Nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum


class Outcome(Enum):
    """Of one vector."""

    MATCH = "match"
    OTHERWISE = "decided otherwise"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Verdict:
    """An outcome, its reason (a rule, for OTHERWISE), and for FAIL where it went wrong."""

    outcome: Outcome
    reason: str = ""
    step: int | None = None
    expected: object = None
    actual: object = None


MATCH = Verdict(Outcome.MATCH)


def otherwise(reason: str, step: int | None = None) -> Verdict:
    """A rule of the design decides otherwise, first visible at `step`."""
    return Verdict(Outcome.OTHERWISE, reason, step)


def fail(reason: str, step: int | None = None, expected: object = None, actual: object = None) -> Verdict:
    """The vector is not kept."""
    return Verdict(Outcome.FAIL, reason, step, expected, actual)


def first_difference(expected: Sequence, actual: Sequence) -> int | None:
    """The first index at which two lists differ, None if they are equal."""
    for index, (one, other) in enumerate(zip(expected, actual, strict=False)):
        if one != other:
            return index
    return None if len(expected) == len(actual) else min(len(expected), len(actual))


def compare(expected: Sequence, actual: Sequence) -> Verdict:
    """MATCH, or FAIL at the first difference."""
    index = first_difference(expected, actual)
    if index is None:
        return MATCH
    return fail(
        "the answers differ",
        index,
        expected[index] if index < len(expected) else "nothing more",
        actual[index] if index < len(actual) else "nothing more",
    )
