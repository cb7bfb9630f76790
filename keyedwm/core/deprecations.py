"""Public names that a later version removes, each with the versions and the name to use instead.

Rule: a deprecated name works, with a `DeprecationWarning`, from `since` on, and in every version before `removal`.
The promises (docs/reference/promises.md) say how far apart the two versions are.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class Deprecation:
    """since: the first version that warns. removal: the first version without the name. instead: the name to use."""

    since: str
    removal: str
    instead: str


DEPRECATIONS: Mapping[str, Deprecation] = MappingProxyType({
    "keyedwm.windows.Full": Deprecation(since="0.5.0", removal="2.0.0", instead="keyedwm.windows.CompletedBy"),
})  # fmt: skip


def warn(name: str, caller_frames: int = 2) -> None:
    """Warn of a name in `DEPRECATIONS` at the user's line, which is that many frames above this function's caller."""
    entry = DEPRECATIONS[name]
    warnings.warn(
        f"{name} is deprecated since keyedwm {entry.since} and {entry.removal} has no such name: use {entry.instead}",
        DeprecationWarning, stacklevel=caller_frames + 1,
    )  # fmt: skip
