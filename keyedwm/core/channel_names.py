"""Names of many channels in few bytes: `TOPIC-PARTITION` and `NAME#BUCKET` are numbers after a prefix, in runs.

Rule: packing and unpacking are inverse, except for the order, which is by prefix and number. Equal sets of names give
equal values. A name of another form stays a text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import pairwise

from keyedwm.core.text import short_repr

PackedNames = list  # names, and prefixes with their runs: ["other", ["orders-", [0, 10000]]]
_NUMBERED = re.compile(r"(.*[-#])(0|[1-9][0-9]{0,9})", re.DOTALL)


def split_name(name: str) -> tuple[str, int] | None:
    """Return prefix and number of a name, None if it has none."""
    match = _NUMBERED.fullmatch(name)
    return None if match is None else (match[1], int(match[2]))


def runs_of(numbers: Sequence[int]) -> list[int]:
    """Return rising numbers as runs: by turns, how many numbers are skipped and how many follow."""
    begins = [0, *(at for at, (one, next_one) in enumerate(pairwise(numbers), 1) if next_one != one + 1)]
    runs, gap_start = list[int](), 0
    for begin, end in zip(begins, [*begins[1:], len(numbers)], strict=True):
        runs += (numbers[begin] - gap_start, end - begin)
        gap_start = numbers[begin] + end - begin
    return runs


def numbers_of(runs: Sequence[int]) -> list[int]:
    """The inverse of `runs_of`."""
    numbers, at = list[int](), 0
    for gap, count in zip(runs[::2], runs[1::2], strict=True):
        numbers += range(at + gap, at + gap + count)
        at += gap + count
    return numbers


def pack_names(names: Iterable[str]) -> PackedNames:
    """Write different names, ready for JSON."""
    others: list[str] = []
    numbered: dict[str, list[int]] = {}
    for name in names:
        split = split_name(name)
        if split is None:
            others.append(name)
        else:
            numbered.setdefault(split[0], []).append(split[1])
    return [*sorted(others), *([prefix, runs_of(sorted(numbered[prefix]))] for prefix in sorted(numbered))]


def unpack_names(packed: PackedNames, most: int) -> list[str]:
    """Read names, in the order of the packed value. Raises ValueError, also for more than `most` names."""
    names: list[str] = []
    for one in packed:
        if isinstance(one, str):
            names.append(one)
            continue
        prefix, runs = one
        if min(runs) < 0 or len(names) + sum(runs[1::2]) > most:
            raise ValueError(
                f"its channels behind {short_repr(prefix)} are {short_repr(runs)}, at most {most} are expected"
            )
        names += (f"{prefix}{number}" for number in numbers_of(runs))
    return names
