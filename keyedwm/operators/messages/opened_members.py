"""Which messages are in the windows that messages opened, and what a listing says of those windows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from keyedwm.arrow.columns import Ints
from keyedwm.operators.grouping import pair_groups
from keyedwm.operators.kernels import add_by_group, count_by_group, highest_by_group, lowest_by_group
from keyedwm.operators.messages.channels import Channels
from keyedwm.operators.messages.messages import message_bytes
from keyedwm.operators.messages.opened_windows import Opened, OpenedWindows, spans


@dataclass(frozen=True, slots=True)
class OrderedMessages:
    """Messages by key, event time, topic, partition and offset. at: their event times; keys: the numbers of theirs."""

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
    """Return for each window, topic and partition the number of its key, its start, and beside them the number of the
    channel, first and last offset, messages and bytes; windows without a message are left out.
    """
    windows = windows.take(np.lexsort((opened.keys.ranks(windows.keys), windows.starts)))
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


def ranges(first: Ints, sizes: Ints) -> Ints:
    """Return the whole numbers from each first on, so many."""
    behind = np.cumsum(sizes)
    return np.arange(int(sizes.sum())) + np.repeat(first - (behind - sizes), sizes)
