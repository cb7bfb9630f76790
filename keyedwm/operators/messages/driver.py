"""The operator of windows that keep their messages: one instance serves one bucket, or a standalone program.

Rule: it has the calls of the operator protocol and knows no clock. Every message that comes is stored, rejected with a
reason, or known as a replay: the counts add up. Limits of size are applied when time moves and at the end of a batch
(`on_barrier`), never among the messages of one, so they do not depend on how a batch was cut. What differs between
kinds of window is the shape's (`shape.MessageShape`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from keyedwm.operators.messages import listing
from keyedwm.operators.messages.account import Account, Messages
from keyedwm.operators.messages.arguments import Edge
from keyedwm.operators.messages.channels import Channels
from keyedwm.operators.messages.messages import places
from keyedwm.operators.messages.plan import StorePlan
from keyedwm.operators.messages.retention import StoreCounts
from keyedwm.operators.messages.shape import MessageShape, ShapeContext
from keyedwm.operators.messages.shapes import shape_of
from keyedwm.operators.messages.store_description import manifest_of, read_manifest
from keyedwm.operators.messages.validate_messages import validate_messages, validate_times
from keyedwm.operators.results import Output
from keyedwm.operators.state.manifest import MANIFEST
from keyedwm.operators.state.store import BlobStore, StateChanges, TableLogs


class ManifestAccess(NamedTuple):
    """Functions that read and write the manifest of an operator's state."""

    read: Callable[[BlobStore], dict[str, Any]]
    write: Callable[[Mapping[str, Any]], bytes]


class MessageOperator:
    """Windows of a plan over its messages; `store` is the state that it goes on from.

    shape: builds the windows, those of the plan's kind if it is left out. inputs: how many have accounts of their own.
    manifest: reads and writes the manifest, by default that of the plan.
    """

    def __init__(
        self,
        plan: StorePlan,
        store: BlobStore,
        shape: Callable[[ShapeContext, Mapping[str, Any]], MessageShape] | None = None,
        *,
        inputs: int = 1,
        manifest: ManifestAccess | None = None,
    ) -> None:
        self._plan, self._manifest = (
            plan,
            manifest or ManifestAccess(partial(read_manifest, plan), partial(manifest_of, plan)),
        )
        state = self._manifest.read(store)
        self._logs = TableLogs(store, manifest=MANIFEST, state=state)
        self.channels = Channels(plan.record, state.get("channels", ()))
        self.accounts = [Account(plan, counts) for counts in state.get("accounts", [{}] * inputs)]
        kept = ShapeContext(plan, self.channels, self._logs, self.accounts)
        self.shape = (shape_of(plan) if shape is None else shape)(kept, state)

    @property
    def counts(self) -> StoreCounts:
        """The counts of all messages since the store was new, of all inputs together."""
        return StoreCounts.together(account.counts for account in self.accounts)

    @property
    def late_rows(self) -> int:
        """How many messages came outside the retention since this instance was built."""
        return sum(account.late_rows for account in self.accounts)

    @property
    def open_entries(self) -> int:
        """How many messages the store holds."""
        return self.shape.held()

    @property
    def next_timer_ms(self) -> int | None:
        """When panes by the clock are due, None if nothing is pending."""
        return self.shape.next_due()

    def output_watermark_ms(self, watermark_ms: int) -> int:
        """Return the watermark that results keep: late panes come as long as their window is kept."""
        return self.shape.output_watermark_ms(watermark_ms)

    def rejected(self) -> pa.Table:
        """Return the messages that were rejected since the last call (`plan.rejected_schema`)."""
        return self.accounts[0].rejected()

    def on_rows(self, input_number: int, rows: pa.Table, now_ms: int | None) -> Iterator[Output]:
        """Take messages; those seen before change nothing. now_ms: wall-clock time, for panes by the clock."""
        plan, shape, account = self._plan, self.shape, self.accounts[input_number]
        rows = validate_messages(plan.schema, rows, plan.offset)
        if not rows.num_rows:
            return
        if shape.of_time:
            validate_times(plan.time, places(plan, rows.filter(rows[plan.time].is_valid())))
        shape.check(rows)
        numbers = self.channels.numbers(rows)
        fresh = self.channels.fresh(rows, numbers)
        account.came(rows.num_rows, len(fresh))
        rows, numbers = rows.take(pa.array(fresh)), numbers[fresh]
        if shape.of_time:
            rows, numbers = account.with_time(rows, numbers)
        if rows.num_rows:
            yield from shape.open(Messages(rows, places(plan, rows), numbers, input_number), now_ms)

    def on_watermark(self, _input_number: int, _key: int, time_ms: int) -> Iterator[Output]:
        """Take the watermark of the input: it completes windows, and lets those go that are kept no longer."""
        if self.shape.of_time:
            yield from self.shape.due(time_ms)
            yield from self.on_barrier(0)

    def on_idle(self, _input_number: int) -> Iterator[Output]:
        """All channels are idle: nothing changes."""
        return iter(())

    def on_barrier(self, _snapshot: int) -> Iterator[Output]:
        """A batch has ended: what is beyond the limits of size goes, the oldest windows first."""
        return self.shape.shrink() if self._plan.retention.has_sizes else iter(())

    def on_timer(self, now_ms: int) -> Iterator[Output]:
        """Yield the panes that are due by the clock."""
        return self.shape.fire(now_ms)

    def on_end(self) -> Iterator[Output]:
        """The input has ended: every window is complete, and nothing is kept."""
        return self.shape.end()

    def drain(self) -> StateChanges:
        """Return what changed in the state since the last call."""
        self.shape.compact()
        changes = self._logs.drain(self.shape.merge)
        state = {
            **self._logs.state(), "channels": self.channels.state(), **self.shape.state(),
            "accounts": [account.state() for account in self.accounts],
        }  # fmt: skip
        return StateChanges({**changes.written, MANIFEST: self._manifest.write(state)}, changes.removed)

    def windows(self, start: int, end: int, *, by_key: bool) -> pa.Table:
        """Return the windows that overlap `[start, end]` and hold a message, one row for each topic and partition.

        by_key: and for each key. Windows that belong to a key are listed so anyway.
        """
        listings = self.shape.windows(start, end, by_key=by_key)
        tables = [one.table(self._plan, self.channels, by_key=by_key) for one in listings]
        return pa.concat_tables([listing.windows_schema(self._plan, by_key=by_key).empty_table(), *tables])

    def messages(self, edges: tuple[Edge, Edge], equal: Mapping[str, Any]) -> pa.Table:
        """Return the held messages in this closed range whose columns have these values, in order."""
        rows = self.shape.read(*listing.numbers_of(edges))
        return listing.chosen(self._plan, self.channels, rows, edges, equal)

    def oldest_offsets(self) -> dict[tuple[str, int], int]:
        """Return for each channel where its records must be read from to have all that is held again."""
        oldest = np.array(self.channels.next, np.int64)
        np.minimum.at(oldest, *self.shape.oldest())
        return dict(zip(self.channels.known, oldest.tolist(), strict=True))
