"""The difference between a checkpoint's plan and the query's plan, in words, for the error that rejects the state."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from keyedwm.core.text import listed, short_repr
from keyedwm.operators.state.description import lines_of

_MOST = 3
# Two long lines are shown from this number of characters before their first difference.
_SHARED = 20
_LONG = 60


def difference(old: Mapping[str, Any] | None, new: Mapping[str, Any]) -> str:
    """Return the difference of two plans, "" if their descriptions agree. old: None in manifests of 0.2.0."""
    if old is None:
        return ""
    before, now = list(lines_of(old)), list(lines_of(new))
    removed, added = (list((Counter(one) - Counter(other)).elements()) for one, other in ((before, now), (now, before)))
    order = ""
    if not removed and not added:  # only the order can differ
        removed, added = ([one for one, other in zip(*both, strict=True) if one != other][:1]
                      for both in ((before, now), (now, before)))  # fmt: skip
        order = "in another order "
    if len(removed) == len(added) == 1:
        removed[0], added[0] = _from_first_difference(removed[0], added[0])
    old_text, new_text = (
        listed([short_repr(line) for line in lines], _MOST) or "nothing" for lines in (removed, added)
    )
    return f"{order}it has {old_text} where this plan has {new_text}" if removed or added else ""


def _from_first_difference(one: str, other: str) -> tuple[str, str]:
    shared = next((at for at, both in enumerate(zip(one, other, strict=False)) if both[0] != both[1]), 0)
    if shared < _LONG:
        return one, other
    return f"...{one[shared - _SHARED :]}", f"...{other[shared - _SHARED :]}"
