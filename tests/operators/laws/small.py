"""Limits so small that logs are written anew, parts are merged, and keys are renumbered in tests."""

from __future__ import annotations

from keyedwm.operators.state.store import StateLimits

# Compaction at every third part, logs that are written anew soon, numbers of keys that change, panes in pieces.
SMALL = StateLimits(fan_out=3, few_rows=4, few_keys=1, few_changes=3, piece_rows=7)
