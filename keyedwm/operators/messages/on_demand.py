"""Windows that messages open: a message for which a condition is true opens a window of its key, which begins with it.

Rule: every such message opens a window, also inside another window. So the messages alone decide which windows exist
and what they hold, not the order of arrival.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from keyedwm.config.validation import MS, number, set_fields
from keyedwm.core.errors import OptionError
from keyedwm.core.text import span_text
from keyedwm.expressions.condition import Condition
from keyedwm.operators.messages.arguments import check_retention
from keyedwm.operators.messages.windows import CompletedBy, Settings, WindowKind
from keyedwm.operators.plan_checks import check_length

_ON_DEMAND = "on_demand"


@dataclass(frozen=True, slots=True)
class OnDemandWindow(WindowKind):
    """Windows `[start, start + size)` of a key; one starts at each message for which `opens` is true.

    opens: a comparison of the message's columns, as the text of SQL.
    """

    called: ClassVar[str] = "on demand"
    is_listed_by_messages: ClassVar[bool] = True
    can_discard: ClassVar[bool] = False
    not_joined: ClassVar[str | None] = "windows on demand are not joined: take windows of time or of rows"
    size_ms: int
    opens: str

    def __post_init__(self) -> None:
        set_fields(self, size_ms=number("the size of a window", self.size_ms, MS))
        if self.size_ms < 1:
            raise OptionError(f"the size of a window is {self.size_ms} ms, it must be 1 or more")
        check_length("size of a window", self.size_ms)

    @property
    def why_kept(self) -> str:
        """The reason why messages must be kept, for the error of an aggregate without a store."""
        return (
            f"on_demand({span_text(self.size_ms)!r}, {self.opens!r}) holds messages that wait for their window, so "
            "they must be kept: give store=Store(retention=...)"
        )

    def check(self, settings: Settings) -> None:
        """Raise OptionError for a condition, a retention or panes that such windows cannot have."""
        check_retention(settings.retention, self.size_ms, is_rows=False)
        self.condition(settings.schema)
        if settings.full is CompletedBy.MESSAGE or settings.has_other_panes:
            raise OptionError(
                "windows on demand show panes when the watermark completes them and with each late message: leave "
                "full, early and late panes out, and accumulating"
            )
        if settings.retention.time_ms is None or settings.retention.has_sizes:
            raise OptionError(
                "windows on demand hold every message as long as one that opens a window for it may come: give a "
                "retention by time, and no max_windows, max_messages or max_bytes"
            )

    def condition(self, schema: pa.Schema) -> Condition:
        """Return the condition by which messages open a window. schema: the messages' columns."""
        return Condition.parse(self.opens, ("", schema), of=_ON_DEMAND)


def on_demand(size_ms: int, opens: str) -> OnDemandWindow:
    """Windows of event time that begin with the messages for which a condition is true, as `kind = 'alarm'`."""
    return OnDemandWindow(size_ms, opens)
