"""The windows that messages opened: keys, starts, the number of panes of each, and their messages.

Rule: a window is its key and its start, so two messages of one key and time open one window.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pyarrow as pa

from keyedwm.arrow.columns import Ints, sorted_distinct
from keyedwm.operators.grouping import pair_groups, ranges
from keyedwm.operators.kernels import add_by_group, count_by_group, highest_by_group, lowest_by_group
from keyedwm.operators.messages.channels import Channels
from keyedwm.operators.messages.messages import message_bytes
from keyedwm.operators.state.keyed_log import KeyedLog, KeyedRows
from keyedwm.operators.state.store import TableLogs

OPENED = "opened"  # the log


@dataclass(frozen=True, slots=True)
class Opened(KeyedRows):
    """Windows, in order of key number and start. panes: the number of panes of each."""

    IDENTITY: ClassVar[tuple[str, ...]] = ("starts",)
    starts: Ints
    panes: Ints


class OpenedWindows(KeyedLog[Opened]):
    """The windows that are known."""

    def __init__(self, by: Sequence[pa.Field], logs: TableLogs) -> None:
        super().__init__(Opened, by, logs, OPENED)

    def open(self, keys: Ints, starts: Ints) -> None:
        """Add windows of these keys with these starts."""
        first, behind = spans(keys, starts, starts + 1, self.rows.keys, self.rows.starts)
        fresh = Opened(keys, starts, np.zeros(len(keys), np.int64)).take_rows(first == behind)
        if len(fresh):
            self.put_rows(fresh.newest())

    def mark_shown(self, places: Ints) -> None:
        """Count a pane of these windows."""
        windows = self.rows.take_rows(places)
        self.change(places, replace(windows, panes=windows.panes + 1))


def spans(groups: Ints, lows: Ints, highs: Ints, of: Ints, at: Ints) -> tuple[Ints, Ints]:
    """Return the begin and end of each group's places in `[low, high)`. of, at: groups and places, ascending."""
    distinct = sorted_distinct(at)
    width = len(distinct) + 1
    codes = of * width + np.searchsorted(distinct, at)
    first, behind = (np.searchsorted(codes, groups * width + np.searchsorted(distinct, edge)) for edge in (lows, highs))
    return first, behind


@dataclass(frozen=True, slots=True)
class OrderedMessages:
    """Messages by key, event time, topic, partition and offset. at: event times. keys: the number of each one's key."""

    rows: pa.Table
    at: Ints
    keys: Ints


def in_key_order(rows: pa.Table, at: Ints, keys: Ints, channels: Channels) -> OrderedMessages:
    """Put messages in order."""
    ranks = channels.ranks()[channels.numbers(rows)]
    order = np.lexsort((channels.offsets(rows), ranks, at, keys))
    return OrderedMessages(rows.take(pa.array(order)), at[order], keys[order])


def listed(
    opened: OpenedWindows, windows: Opened, messages: OrderedMessages, channels: Channels, size: int
) -> tuple[Ints, Ints, list[Ints]]:
    """Return a row for each window, topic and partition: the number of its key, its start, and five columns.

    The columns are the number of the channel, first and last offset, messages and bytes. Windows without a message
    have no row.
    """
    windows = windows.take_rows(np.lexsort((opened.keys.ranks(windows.keys), windows.starts)))
    first, behind = spans(windows.keys, windows.starts, windows.starts + size, messages.keys, messages.at)
    member, owners = ranges(first, behind - first), np.repeat(np.arange(len(windows)), behind - first)
    offsets, sizes = channels.offsets(messages.rows), message_bytes(messages.rows)
    ranks = channels.ranks()
    ids, of, rank = pair_groups(owners, ranks[channels.numbers(messages.rows)[member]], max(1, len(ranks)))
    count = len(of)
    columns = [
        np.argsort(ranks)[rank], lowest_by_group(offsets[member], ids, count),
        highest_by_group(offsets[member], ids, count), count_by_group(ids, count),
        add_by_group(sizes[member], ids, count),
    ]  # fmt: skip
    return windows.keys[of], windows.starts[of], columns
