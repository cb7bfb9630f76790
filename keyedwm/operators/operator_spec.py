"""The specification of an operator: the API writes it once, and stage one, buckets, savepoints and commands read it.

Rule: two specifications with the same digest can use each other's state. `protocol.KINDS` has the properties of a kind
of operator, as opposed to those of one query's operator.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from keyedwm.core.rows import EVENT_TIME, WATERMARK
from keyedwm.operators.state.description import digest_of

if TYPE_CHECKING:
    from keyedwm.operators.keyed.per_key import PerKey
    from keyedwm.operators.panes import RepeatedTotals


class OperatorSpec(ABC):
    """One operator of a query. The base class has the defaults."""

    @property
    @abstractmethod
    def kind(self) -> str:
        """The name in `protocol.KINDS` and in the description."""

    @property
    @abstractmethod
    def result_schema(self) -> pa.Schema:
        """The columns that the operator emits."""

    @abstractmethod
    def description(self) -> dict[str, Any]:
        """Return the description; the operator rejects a state with another description."""

    def digest(self) -> str:
        """Return a short text; two operators with the same text can use each other's state."""
        return digest_of(self.description())

    @property
    def earlier_digests(self) -> tuple[str, ...]:
        """Digests of the operator in keyedwm 0.2.0, if the byte-code of a user's functions was part of them."""
        return ()

    @property
    def short_name(self) -> str:
        """The prefix of the generated name, if the user gave none."""
        return self.kind

    @property
    def time_columns(self) -> tuple[str, ...]:
        """The columns with event times that results have in addition to `result_schema`."""
        return (EVENT_TIME,)

    @property
    def watermark_axes(self) -> Mapping[str, int]:
        """The watermark columns of results, and the axis of each."""
        return {WATERMARK: 0}

    @property
    def repeated_totals(self) -> RepeatedTotals | None:
        """Why results cannot be summed, None if they can."""
        return None

    @property
    def key_watermark(self) -> PerKey | None:
        """The settings of the keys' own watermarks, None if keys have none."""
        return None

    @property
    def wake_intervals_ms(self) -> tuple[int, ...]:
        """The wall-clock intervals at which all buckets wake."""
        return ()

    @property
    def by_clock(self) -> bool:
        """Whether some results are due by wall-clock time."""
        return bool(self.wake_intervals_ms)

    @property
    def own_metrics(self) -> tuple[str, ...]:
        """The columns of the buckets' rows that are metrics of this operator, beside the metrics of every operator."""
        return ()
