"""Messages of a side of a window join that are shown to the other side."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from keyedwm.arrow.columns import Flags, Ints


@dataclass(frozen=True, slots=True)
class SideMessages:
    """Messages of a side that are joined. at: places on the axis, of rows counted from the channel's first offset.

    first: that offset, or 0. order: of the messages by event time (or offset), topic, partition and offset. late: which
    came to a complete window.
    """

    rows: pa.Table
    at: Ints
    first: Ints
    partitions: Ints
    order: Ints
    late: Flags

    def part(self, start: int, stop: int | None = None) -> SideMessages:
        """Return the messages in this range."""
        span = slice(start, stop)
        rows = self.rows.slice(start, None if stop is None else stop - start)
        return SideMessages(
            rows, self.at[span], self.first[span], self.partitions[span], self.order[span], self.late[span]
        )
