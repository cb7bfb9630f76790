"""Plans whose later panes of a window repeat rows of earlier panes: a sum over such panes counts these rows again."""

from __future__ import annotations

from enum import Enum


class PanesAgain(Enum):
    """The setting that makes results addable, by its word."""

    EARLY_OR_LATE = "panes"
    STORE = "store_panes"
    WHOLE = "whole_panes"

    @property
    def advice(self) -> str:
        """The remedy, for an error."""
        return _ADVICE[self]


_BY_HAND = "or take the last pane of each window and key from the column pane in a process(...)"
_ADVICE = {
    PanesAgain.EARLY_OR_LATE: (
        "give the first aggregate accumulating=False, so that each pane holds new rows only, or leave its early and "
        "lateness out"
    ),
    PanesAgain.STORE: f"give the first aggregate accumulating=False, so that each pane holds new rows only, {_BY_HAND}",
    PanesAgain.WHOLE: "they cannot hold only what is new: take the last row of each window and key in a process(...)",
}
