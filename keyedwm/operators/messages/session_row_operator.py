"""The operator of sessions by rows: of a key's messages in a topic and partition, with few others between them.

Rule: offsets count, so no message comes late, and a session is over as soon as the offsets that were read lie too far
behind its last one. A batch reads what is known of each key, and messages only if it ends a session that was begun
before.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from keyedwm.arrow.columns import Flags, Ints
from keyedwm.operators.kernels import add_by_group
from keyedwm.operators.messages.key_row_operator import MESSAGES, KeyRowOperator, pieces
from keyedwm.operators.messages.key_rows import KeyPlaces, channels_of
from keyedwm.operators.messages.messages import message_bytes
from keyedwm.operators.messages.plan import StorePlan
from keyedwm.operators.panes import Timing
from keyedwm.operators.results import Output
from keyedwm.operators.state.store import BlobStore


class SessionRowOperator(KeyRowOperator):
    """Sessions of a plan over one input: of each key and channel there is one that is not over."""

    def __init__(self, plan: StorePlan, store: BlobStore) -> None:
        super().__init__(plan, store)
        self._reach = plan.session_rows.between + 1

    def _take(self, rows: pa.Table, numbers: Ints) -> Iterator[Output]:
        codes, offsets = self._open.codes(rows, numbers), self.channels.offsets(rows)
        order = np.lexsort((offsets, codes))
        rows, codes, offsets = rows.take(pa.array(order)), codes[order], offsets[order]
        begins = self._begins(codes, offsets)
        run, heads = np.cumsum(begins) - 1, np.flatnonzero(begins)
        tails = np.append(heads[1:], len(codes)) - 1
        first_run = np.diff(codes[heads], prepend=-1) != 0
        last_run = np.append(first_run[1:], True)
        over = ~last_run | self._is_over(codes[tails], offsets[tails])
        before = self._open.found(codes[heads[first_run]])
        goes_on = (before.counts > 0) & (offsets[heads[first_run]] - before.last <= self._reach)
        ended = self._idle_and_over(before.codes)
        ended |= np.isin(self._open.rows.codes, before.codes[(before.counts > 0) & (~goes_on | over[first_run])])
        held = self._held(self._open.rows.take(ended))
        self._account.add(taken=rows.num_rows, expired=held.num_rows + over[run].sum())
        yield from self._show_over(pa.concat_tables([held, rows.filter(pa.array(over[run]))]))
        self._forget(self._open.rows.take(ended))
        self._hold(rows.filter(pa.array(~over[run])), (codes[~over[run]], offsets[~over[run]]))

    def _hold(self, rows: pa.Table, found: tuple[Ints, Ints]) -> None:
        """Hold messages of sessions that are not over, by code and offset."""
        codes, offsets = found
        if not len(codes):
            return
        heads = np.flatnonzero(np.diff(codes, prepend=-1))
        ids = np.repeat(np.arange(len(heads)), np.diff(np.append(heads, len(codes))))
        before = self._open.found(codes[heads])
        counts = before.counts + np.bincount(ids)
        first = np.where(before.counts > 0, before.first, offsets[heads])
        last = offsets[np.append(heads[1:], len(codes)) - 1]
        self._know(before, counts, (first, last, before.sizes + add_by_group(message_bytes(rows), ids, len(heads))))
        self._logs.append(MESSAGES, rows)

    def _show_over(self, rows: pa.Table) -> Iterator[Output]:
        """Show whole sessions, in order of channel and last offset."""
        codes, offsets = self._open.codes(rows, self.channels.numbers(rows)), self.channels.offsets(rows)
        order = np.lexsort((offsets, codes))
        rows, codes, offsets = rows.take(pa.array(order)), codes[order], offsets[order]
        heads = np.flatnonzero(self._begins(codes, offsets))
        sizes = np.diff(np.append(heads, len(codes)))
        in_order = np.lexsort((offsets[heads + sizes - 1], self.channels.ranks()[channels_of(codes[heads])]))
        for cut in pieces(in_order, sizes):
            yield self._panes(rows, offsets, (heads[cut], sizes[cut]), codes[heads[cut]], Timing.ON_TIME, last=False)

    def _begins(self, codes: Ints, offsets: Ints) -> Flags:
        """Return which messages, by code and offset, begin a session."""
        begins = np.ones(len(codes), np.bool_)
        begins[1:] = (np.diff(codes) != 0) | (np.diff(offsets) > self._reach)
        return begins

    def _is_over(self, codes: Ints, last: Ints) -> Flags:
        """Return which sessions no message can join any more, by their last offsets."""
        return last + self._reach < np.array(self.channels.next, np.int64)[channels_of(codes)]

    def _idle_and_over(self, touched: Ints) -> Flags:
        """Return which sessions that are held are over, of keys that had no message now."""
        places: KeyPlaces = self._open.rows
        return ~np.isin(places.codes, touched) & self._is_over(places.codes, places.last)
