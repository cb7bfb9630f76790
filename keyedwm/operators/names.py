"""The names and types of columns that operators share: of results, of partials between two stages, and of state."""

from __future__ import annotations

import pyarrow as pa

WINDOW, PANE, CONTROL = "window", "pane", "control"
# A column whose name begins so is keyedwm's own.
HIDDEN = "__"
START, END, LAST, ROWS = "__start", "__end", "__last", "__rows"
# The number that stands for the partition of a partial.
CHANNEL = "__channel"
_MICROS = pa.timestamp("us", tz="UTC")
WINDOW_TYPE = pa.struct([("start", _MICROS), ("end", _MICROS)])
PANE_TYPE = pa.struct([("timing", pa.string()), ("index", pa.int32()), ("last", pa.bool_())])
