"""Panes that leave so many at a time that they hold about a million messages."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from keyedwm.arrow.columns import Ints

_MOST_ROWS = 1 << 20


def pieces(in_order: Ints, sizes: Ints) -> Iterator[Ints]:
    """Yield windows, in an order, so many at a time that they hold about a million messages; sizes: of each."""
    behind = np.cumsum(sizes[in_order])
    for cut in np.split(in_order, np.searchsorted(behind, np.arange(_MOST_ROWS, behind[-1:].sum(), _MOST_ROWS))):
        if len(cut):
            yield cut
