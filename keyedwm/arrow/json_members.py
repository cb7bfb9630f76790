"""The members beside a path that leads to no value in JSON texts: for a message, from a few texts.

Rule: never on the data path. A caller knows that the path is in none of its texts.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from keyedwm.arrow.json_scan import Path, find
from keyedwm.core.parsing import parse_json
from keyedwm.core.places import path_advice

_MOST_TEXTS = 10


def json_advice(head: str, texts: pa.Array, steps: Sequence[str | int]) -> str:
    """Say which path was meant, or what is there. head: `json` or `key`; steps: of the path that no text has."""
    for depth in range(len(steps) - 1, -1, -1):
        data, start, end = find(texts, Path(steps[:depth]))
        (rows,) = np.nonzero(start >= 0)
        values = [_value(bytes(data[start[row] : end[row]])) for row in rows[:_MOST_TEXTS]]
        if (values and depth) or any(isinstance(value, (dict, list)) for value in values):
            names = {name for value in values if isinstance(value, dict) for name in value}
            sizes = [len(value) for value in values if isinstance(value, list)]
            return path_advice(head, steps, depth, sorted(names), max(sizes, default=None))
    return "check that the records are JSON"


def _value(text: bytes) -> object:
    try:
        return parse_json(text)
    except ValueError:
        return None
