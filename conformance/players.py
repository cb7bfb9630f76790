"""What replays an oracle's operations, as a type that all modules of oracles share."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

# An operation's name and arguments → the items that it gives out, as the oracle files write them.
Player: TypeAlias = Callable[[str, list], list]
# The config of an oracle's line → a player that has played nothing.
Maker: TypeAlias = Callable[[dict], Player]
