"""The panes of one window, computed from its messages: groups by key, their functions, and the result columns.

Rule: panes are emitted in pieces of about a million messages (`StateLimits.piece_rows`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from keyedwm.arrow.columns import Ints, contiguous, ints
from keyedwm.operators.messages.channels import Channels
from keyedwm.operators.messages.functions import WindowRows, computed
from keyedwm.operators.messages.message_plan import ARRIVAL, MessageLayout
from keyedwm.operators.messages.messages import places
from keyedwm.operators.messages.plan import StorePlan
from keyedwm.operators.panes import PaneTiming
from keyedwm.operators.results import Output, pane_column
from keyedwm.operators.state.key_dictionary import KeyDictionary, key_columns


@dataclass(frozen=True, slots=True)
class KeyedMessages:
    """The messages of a window in order of key, event time, topic, partition and offset.

    keys: the key of each group.
    """

    window: WindowRows
    keys: Ints

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def counts(self) -> Ints:
        """The number of messages that each key has."""
        return np.diff(self.window.borders)

    def since(self, before: Ints) -> KeyedMessages:
        """Return the messages that arrived after the mark of their group; a group may then have none."""
        groups = np.repeat(np.arange(len(self)), self.counts)
        new = ints(contiguous(self.window.rows[ARRIVAL])) > before[groups]
        borders = np.append(0, np.cumsum(np.bincount(groups[new], minlength=len(self))))
        return KeyedMessages(
            WindowRows(self.window.rows.filter(pa.array(new)), self.window.at[new], borders), self.keys
        )

    def take_groups(self, groups: Ints) -> KeyedMessages:
        """Return some of the groups."""
        window, first = self.window, self.window.borders[:-1][groups]
        return KeyedMessages(WindowRows.of_spans(window.rows, window.at, first, self.counts[groups]), self.keys[groups])


def keyed(plan: StorePlan, channels: Channels, keys: KeyDictionary, rows: pa.Table) -> KeyedMessages:
    """Return messages by key."""
    at, numbers = places(plan, rows), key_numbers(plan, keys, rows)
    offsets, ranks = channels.offsets(rows), channels.ranks()[channels.numbers(rows)]
    order = np.lexsort((offsets, ranks, at, keys.ranks(numbers)))
    numbers = numbers[order]
    heads = np.flatnonzero(np.diff(numbers, prepend=-1))
    window = WindowRows(rows.take(pa.array(order)), at[order], np.append(heads, len(numbers)))
    return KeyedMessages(window, numbers[heads])


def key_numbers(plan: MessageLayout, keys: KeyDictionary, rows: pa.Table) -> Ints:
    """Return the number of each message's key; floats are equal as Spark groups them."""
    return keys.numbers(key_columns(plan.by, rows), rows.num_rows)


def panes(
    plan: StorePlan,
    keys: KeyDictionary,
    messages: KeyedMessages,
    edges: tuple[Ints, Ints],
    *,
    channels: Sequence[pa.Array] = (),
    timing: PaneTiming,
    index: Ints,
    last: bool = False,
) -> Output:
    """Return a pane of each group. edges: of its window. channels: for rows, the columns of its topic and partition."""
    window = replace(messages.window, rows=messages.window.rows.select(plan.schema.names))
    results = [
        computed(name, function, window) for (name, _), function in zip(plan.aggregates, plan.functions, strict=True)
    ]
    pane = pane_column(timing.value, index, last=last)
    columns = [*keys.columns(messages.keys), *channels, plan.windows(*edges), *results, pane]
    return Output(pa.Table.from_arrays(columns, schema=plan.result_schema), edges[1] - 1)


def pieces(in_order: Ints, sizes: Ints, most: int) -> Iterator[Ints]:
    """Yield windows, in this order, in pieces of about `most` messages. sizes: the messages of each window."""
    behind = np.cumsum(sizes[in_order])
    for piece in np.split(in_order, np.searchsorted(behind, np.arange(most, behind[-1:].sum(), most))):
        if len(piece):
            yield piece
