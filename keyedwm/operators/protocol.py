"""The protocol of a stateful operator: the calls of its host (a bucket, a test, a program), and its answers. The kinds
of operators, in one table.

Rule: an operator knows no clock and no Spark. Each `on_` call yields its outputs in pieces; the caller must consume all
of them before the next call. `drain` returns the state from which a later instance continues.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Protocol

import pyarrow as pa

from keyedwm.operators.batch_figures import KeyWatermarkSummary, StoreCounts
from keyedwm.operators.exchange_input import ExchangeInput
from keyedwm.operators.frames.paned_sessions import PanedSessionOperator
from keyedwm.operators.frames.partials import ExchangePartials
from keyedwm.operators.frames.per_key_sessions import PerKeySessionOperator
from keyedwm.operators.frames.per_key_windows import PerKeyOperator
from keyedwm.operators.frames.plan import SessionWindow, WindowPlan
from keyedwm.operators.frames.rescale import FrameRescale
from keyedwm.operators.frames.sessions import SessionOperator
from keyedwm.operators.frames.sliding import SlidingOperator
from keyedwm.operators.join.latest_operator import LatestOperator
from keyedwm.operators.join.operator import JoinOperator
from keyedwm.operators.join.rescale import JoinRescale
from keyedwm.operators.messages.bucket_operator import BucketOperator
from keyedwm.operators.messages.join.join_description import WINDOW_JOIN
from keyedwm.operators.messages.store_description import STORE
from keyedwm.operators.operator_spec import OperatorSpec
from keyedwm.operators.process.operator import PerKeyProcessOperator, ProcessOperator
from keyedwm.operators.process.plan import ProcessPlan
from keyedwm.operators.process.rescale import ProcessRescale
from keyedwm.operators.results import Output
from keyedwm.operators.state.rescale_pieces import Rescale, SameBuckets
from keyedwm.operators.state.store import BlobStore, StateChanges


class Operator(Protocol):
    """One instance of an operator: it serves one bucket. Inputs are numbered from 0, in the user's order."""

    @property
    def late_rows(self) -> int:
        """The number of late rows since this instance was built."""

    @property
    def open_entries(self) -> int:
        """The number of entries that the state holds."""

    @property
    def next_timer_ms(self) -> int | None:
        """The wall-clock time at which `on_timer` must be called, None if it need not be."""

    @property
    def batch_counts(self) -> StoreCounts:
        """The counts of messages since this instance was built; zeros if the operator keeps no messages."""

    def key_summary(self) -> KeyWatermarkSummary | None:
        """Return the summary of keys with their own watermarks, None if keys have none."""

    def output_watermarks_ms(self, watermark_ms: int | None) -> Mapping[int, int]:
        """Return the watermarks of the results, by the number of their axis; a single axis is 0.

        watermark_ms: the lowest watermark of all inputs, None while an input has none.
        """

    def on_rows(self, input_number: int, rows: pa.Table, now_ms: int | None) -> Iterator[Output]:
        """Process rows or partials of an input. now_ms: wall-clock time, None if nothing depends on it."""

    def on_watermark(self, input_number: int, key: int, time_ms: int) -> Iterator[Output]:
        """Process the watermark of an input and watermark key; a watermark that does not increase has no effect."""

    def on_idle(self, input_number: int) -> Iterator[Output]:
        """All channels of an input are idle; their highest watermark was sent before."""

    def on_barrier(self, snapshot: int) -> Iterator[Output]:
        """All rows of this snapshot were processed."""

    def on_timer(self, now_ms: int) -> Iterator[Output]:
        """Wall-clock time has reached `now_ms`."""

    def on_end(self) -> Iterator[Output]:
        """All inputs have ended: the state is empty afterwards."""

    def drain(self) -> StateChanges:
        """Return the changes of the state since the last call."""


def operator_of(spec: OperatorSpec, store: BlobStore) -> Operator:
    """Return the operator with its state; raise FormatError if the state is another operator's."""
    return KINDS[spec.kind].open(spec, store)


def inputs_of(spec: OperatorSpec) -> Sequence[ExchangeInput]:
    """Return the inputs of stage one, by their number."""
    return KINDS[spec.kind].inputs(spec)


def _frame_operator_of(plan: WindowPlan, store: BlobStore) -> Operator:
    if isinstance(plan.window, SessionWindow):
        if plan.key_watermark is not None:
            return PerKeySessionOperator(plan, plan.window, plan.key_watermark, store)
        kind = PanedSessionOperator if plan.has_panes else SessionOperator
        return kind(plan, plan.window, store)
    if plan.key_watermark is not None:
        return PerKeyOperator(plan, plan.window, plan.key_watermark, store)
    return SlidingOperator(plan, plan.window, store)


def _process_operator_of(plan: ProcessPlan, store: BlobStore) -> Operator:
    if plan.key_watermark is not None:
        return PerKeyProcessOperator(plan, plan.key_watermark, store)
    return ProcessOperator(plan, store)


@dataclass(frozen=True, kw_only=True, slots=True)
class Kind:
    """A kind of operator. api_name: the name of the kind in messages and metrics.

    settings: the settings that identify a state, for errors. open: specification and state → the operator. rescale: the
    conversion of state to other buckets. inputs: specification → the inputs of stage one.
    """

    api_name: str
    settings: str
    open: Callable[[Any, BlobStore], Operator]
    rescale: type[Rescale]
    inputs: Callable[[Any], Sequence[ExchangeInput]] = attrgetter("inputs")


_JOIN_SETTINGS = "on, how, time bounds, condition, columns, late, or the names of the sides"
KINDS: Mapping[str, Kind] = {
    WindowPlan.kind: Kind(
        api_name="aggregate", settings="windows, aggregates, keys or panes", open=_frame_operator_of,
        rescale=FrameRescale, inputs=lambda plan: [ExchangePartials(plan)],
    ),
    STORE: Kind(
        api_name="aggregate", settings="windows, aggregates, keys, panes, or the messages' columns",
        open=BucketOperator, rescale=SameBuckets,
    ),
    WINDOW_JOIN: Kind(
        api_name="window_join", open=BucketOperator, rescale=SameBuckets,
        settings="windows, on, how, keep, emit, full, early, late_every, unbounded, names, or the messages' columns",
    ),
    "join": Kind(api_name="join", settings=_JOIN_SETTINGS, open=JoinOperator, rescale=JoinRescale),
    "join_latest": Kind(api_name="join_latest", settings=_JOIN_SETTINGS, open=LatestOperator, rescale=JoinRescale),
    ProcessPlan.kind: Kind(
        api_name="process", settings="columns, keys, or the processor's name or version", open=_process_operator_of,
        rescale=ProcessRescale,
    ),
}  # fmt: skip
