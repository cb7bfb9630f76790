"""The specification of an operator: the API writes it once, and stage one, buckets, savepoints and commands read it.

Rule: two specifications with the same digest have the same state and the same results. `protocol.KINDS` has what
differs from kind to kind and is no property of one query's operator.
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
    from keyedwm.operators.panes import AdditiveSetting


class OperatorSpec(ABC):
    """One operator of a query; what is not overridden holds for most kinds."""

    @property
    @abstractmethod
    def kind(self) -> str:
        """The name in `protocol.KINDS` and in the description."""

    @property
    @abstractmethod
    def result_schema(self) -> pa.Schema:
        """Of what the operator emits."""

    @abstractmethod
    def description(self) -> dict[str, Any]:
        """Return the description, which decides whose state it is."""

    def digest(self) -> str:
        """Return a short text that differs when the state of one operator cannot be used by the other."""
        return digest_of(self.description())

    @property
    def earlier_digests(self) -> tuple[str, ...]:
        """Digests that keyedwm 0.2.0 gave the operator, where functions of a user were in them by their byte-code."""
        return ()

    @property
    def short_name(self) -> str:
        """The beginning of the name of an operator that its user did not name."""
        return self.kind

    @property
    def time_columns(self) -> tuple[str, ...]:
        """The columns with event times that results get beside those of `result_schema`."""
        return (EVENT_TIME,)

    @property
    def watermark_axes(self) -> Mapping[str, int]:
        """The watermark columns of results, and the axis of each."""
        return {WATERMARK: 0}

    @property
    def panes_again(self) -> AdditiveSetting | None:
        """Why results cannot be added up, None if they can."""
        return None

    @property
    def key_watermark(self) -> PerKey | None:
        """How keys have watermarks of their own, None if they have not."""
        return None

    @property
    def clock_ms(self) -> tuple[int, ...]:
        """The intervals at which buckets wake together, by wall-clock time."""
        return ()

    @property
    def by_clock(self) -> bool:
        """Whether some results are due by wall-clock time."""
        return bool(self.clock_ms)

    @property
    def own_metrics(self) -> tuple[str, ...]:
        """The columns of the buckets' rows that are metrics of this operator beside those of every operator."""
        return ()
