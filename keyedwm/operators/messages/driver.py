"""The operator of windows that keep their messages: one instance serves one bucket, or a standalone program.

Rule: it has the calls of the operator protocol and knows no clock. Every message is stored, rejected with a reason, or
recognized as a replay, so the counts add up. Limits of size are applied when time moves and at the end of a batch
(`on_barrier`), never within a batch. So they do not depend on how a batch was cut. A kind of window decides the rest
(`window_content.WindowContent`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from keyedwm.operators.batch_figures import StoreCounts
from keyedwm.operators.messages import listing
from keyedwm.operators.messages.arguments import Edge
from keyedwm.operators.messages.channels import Channels
from keyedwm.operators.messages.contents import content_of
from keyedwm.operators.messages.message_counter import Input, MessageCounter
from keyedwm.operators.messages.message_plan import MessageLayout
from keyedwm.operators.messages.plan import StorePlan
from keyedwm.operators.messages.retention import Retention
from keyedwm.operators.messages.store_description import FORMAT, describe
from keyedwm.operators.messages.window_content import ContentContext, Offsets, WindowContent
from keyedwm.operators.results import Output
from keyedwm.operators.state.description import digest_of
from keyedwm.operators.state.manifest import MANIFEST, ManifestFormat
from keyedwm.operators.state.store import BlobStore, StateChanges, TableLogs


@dataclass(frozen=True, kw_only=True)
class OperatorParts:
    """The parts of an operator. content: builds its windows, from the context and the state.

    columns: the columns of the messages of each input, or of all inputs together, which then share their channels.
    inputs: how many there are. manifest: the format of its state's manifest. digest: the plan's digest.
    """

    content: Callable[[ContentContext, Mapping[str, Any]], WindowContent]
    columns: Sequence[MessageLayout]
    retention: Retention
    manifest: ManifestFormat
    digest: str
    inputs: int = 1


def message_operator(plan: StorePlan, store: BlobStore) -> MessageOperator:
    """Return the operator of a plan; `store` has the state that it continues."""
    parts = OperatorParts(
        content=partial(content_of(plan), plan), columns=[plan], retention=plan.retention,
        manifest=FORMAT, digest=digest_of(describe(plan)),
    )  # fmt: skip
    return MessageOperator(parts, store)


class MessageOperator:
    """Windows over messages that are kept; `store` has the state that it continues. See `protocol.Operator`."""

    def __init__(self, parts: OperatorParts, store: BlobStore) -> None:
        self._parts = parts
        state = parts.manifest.read(parts.digest, store)
        self._logs = TableLogs(store, manifest=MANIFEST, state=state)
        channels = state.get("channels", [()] * len(parts.columns))
        self.channels = [Channels(one.record, known) for one, known in zip(parts.columns, channels, strict=True)]
        self.inputs: list[Input] = []
        for number, counts in enumerate(state.get("accounts", [{}] * parts.inputs)):
            at = min(number, len(parts.columns) - 1)
            columns = parts.columns[at]
            self.inputs.append(Input(number, columns, self.channels[at], MessageCounter(columns, counts)))
        self.content = parts.content(ContentContext(self.inputs, self._logs), state)

    @property
    def counts(self) -> StoreCounts:
        """The counts of all messages since the store was new, of all inputs together."""
        return StoreCounts.together(one.counter.counts for one in self.inputs)

    @property
    def late_rows(self) -> int:
        """The number of messages that came outside the retention since this instance was built."""
        return sum(one.counter.late_rows for one in self.inputs)

    @property
    def open_entries(self) -> int:
        """The number of messages that are held."""
        return self.content.message_count()

    @property
    def next_timer_ms(self) -> int | None:
        """The time at which panes by the clock are due, None if nothing is pending."""
        return self.content.next_due()

    def output_watermark_ms(self, watermark_ms: int) -> int:
        """Return the watermark of the results: a kept window can have late panes."""
        return self.content.output_watermark_ms(watermark_ms)

    def rejected(self, input_number: int = 0) -> pa.Table:
        """Return the messages of an input that were rejected since the last call, unchanged, with the reason."""
        return self.content.rejected(input_number, self.inputs[input_number].counter.rejected())

    def on_rows(self, input_number: int, rows: pa.Table, now_ms: int | None) -> Iterator[Output]:
        """Process messages; replayed messages change nothing. now_ms: wall-clock time, for panes by the clock."""
        rows = self.content.validated(input_number, rows)
        if rows.num_rows:
            messages = self.inputs[input_number].fresh(rows)
            if len(messages):
                yield from self.content.open(messages, now_ms)

    def on_watermark(self, input_number: int, _key: int, time_ms: int) -> Iterator[Output]:
        """Apply the watermark of an input: it completes windows, and releases expired windows."""
        if not self.inputs[input_number].columns.is_rows:
            yield from self.content.due(time_ms, input_number)
            yield from self.on_barrier(0)

    def on_idle(self, _input_number: int) -> Iterator[Output]:
        """All channels are idle: nothing changes."""
        return iter(())

    def on_barrier(self, _snapshot: int) -> Iterator[Output]:
        """A batch has ended: drop the oldest windows until the state is within the limits of size."""
        return self.content.shrink() if self._parts.retention.has_sizes else iter(())

    def on_timer(self, now_ms: int) -> Iterator[Output]:
        """Yield the panes that are due by the clock."""
        return self.content.fire(now_ms)

    def on_end(self) -> Iterator[Output]:
        """The input has ended: every window is complete, and the state is empty."""
        return self.content.end()

    def drain(self) -> StateChanges:
        """Return the changes of the state since the last call."""
        self.content.compact()
        changes = self._logs.drain()
        state = {
            **self._logs.state(), "channels": [one.state() for one in self.channels], **self.content.state(),
            "accounts": [one.counter.state() for one in self.inputs],
        }  # fmt: skip
        return StateChanges(
            {**changes.blobs, MANIFEST: self._parts.manifest.write(self._parts.digest, state)}, changes.removed
        )

    def windows(self, start: int, end: int, *, by_key: bool, input_number: int = 0) -> pa.Table:
        """Return the windows that overlap `[start, end]` and hold a message, one row for each topic and partition.

        by_key: one row also for each key; windows that belong to a key always have it.
        """
        one = self.inputs[input_number]
        listings = self.content.of_input(input_number).windows(start, end, by_key=by_key)
        tables = [listing.table(one.columns, one.channels, by_key=by_key) for listing in listings]
        return pa.concat_tables([listing.windows_schema(one.columns, by_key=by_key).empty_table(), *tables])

    def messages(self, edges: tuple[Edge, Edge], equal: Mapping[str, Any], input_number: int = 0) -> pa.Table:
        """Return the held messages in this closed range whose columns have these values, in order."""
        one = self.inputs[input_number]
        rows = self.content.of_input(input_number).read(*listing.numbers_of(edges))
        return listing.select_messages(one.columns, one.channels, rows, edges, equal)

    def next_offsets(self, input_number: int = 0) -> Offsets:
        """Return for each channel the offset below which all records were read."""
        channels = self.inputs[input_number].channels
        return self.content.offsets_of(input_number, dict(zip(channels.known, channels.next, strict=True)))

    def oldest_offsets(self, input_number: int = 0) -> Offsets:
        """Return for each channel the offset from which its records must be read to rebuild the held messages."""
        channels = self.inputs[input_number].channels
        oldest = np.array(channels.next, np.int64)
        np.minimum.at(oldest, *self.content.of_input(input_number).oldest())
        return self.content.offsets_of(input_number, dict(zip(channels.known, oldest.tolist(), strict=True)))
