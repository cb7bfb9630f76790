"""Limits so small that logs are written anew, parts are merged, and keys are renumbered in tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from keyedwm.operators.messages import results
from keyedwm.operators.state import key_dictionary, store


def small_logs(set_to: Callable[[Any, str, int], None]) -> None:
    """Set them; set_to: as `setattr`, or that of a fixture which sets them back."""
    set_to(store, "FAN_OUT", 3)  # compaction at every third part
    set_to(store, "_FEW_ROWS", 4)  # logs are written anew soon
    set_to(key_dictionary, "_FEW", 1)  # numbers of keys change
    set_to(results, "_MOST_ROWS", 7)  # panes leave in pieces
