"""Joined sessions: messages of both sides with equal keys form sessions together.

Rule: a session is joined when the watermarks of both sides have completed it. A late message is joined at once. Each
pair is emitted once, even if its session grew or merged with others after it was shown. A message without a key has no
match, so it is a session alone: together such messages would form a session that never ends. With `emit` a session is
joined again with each of its messages: all messages so far, or the messages that no row has used up.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from keyedwm.arrow.columns import Ints, contiguous, ints, millis
from keyedwm.core.rows import REASON
from keyedwm.operators.aggregates.functions import count
from keyedwm.operators.messages.arguments import validate_messages, validate_times
from keyedwm.operators.messages.contents.session import SessionContent
from keyedwm.operators.messages.grid import LOWEST
from keyedwm.operators.messages.join.pairs import NONE, SideMessages, rows_output
from keyedwm.operators.messages.join.plan import LEFT, RIGHT, Emit, Keep, WindowJoinPlan, WindowJoinSide
from keyedwm.operators.messages.join.session_pairs import (
    Members,
    chosen_pairs,
    in_turn,
    new_pairs,
    turns,
    unmatched_places,
)
from keyedwm.operators.messages.message_counter import Messages
from keyedwm.operators.messages.messages import message_bytes, places
from keyedwm.operators.messages.plan import StorePlan
from keyedwm.operators.messages.sessions import OpenSessions, SessionFragments, Sessions
from keyedwm.operators.messages.window_content import ContentContext, Offsets
from keyedwm.operators.panes import PaneTiming
from keyedwm.operators.results import Output

SPANS = "spans"
# The columns of held messages: one with whole messages for each side, the event time, and the record.
PAYLOAD, TIME, RECORD = ("left", "right"), "at", ("topic", "partition", "offset")
_UNKEYED = "alone"  # of a message without a key: its record


class JoinedSessions(SessionContent):
    """Sessions of the messages of both sides; each side has a column with whole messages."""

    def __init__(self, plan: WindowJoinPlan, context: ContentContext, state: Mapping[str, Any]) -> None:
        super().__init__(plan_of_both(plan), context, state)
        self._join = plan
        self.watermarks_ms: list[int | None] = state.get("watermarks_ms", [None, None])
        self._spans = OpenSessions(self._plan.key_fields, self._logs, SPANS, self._open.keys)

    def validated(self, input_number: int, rows: pa.Table) -> pa.Table:
        """Return messages of a side in the columns of both sides; raise InputError if they do not fit."""
        number, side = input_number, self._join.sides[input_number]
        rows = validate_messages(side.schema, rows, side.offset)
        count_, times = rows.num_rows, contiguous(rows[side.time])
        at = millis(pc.fill_null(times, pa.scalar(0, times.type)))
        validate_times(side.time, at)
        missing = times.is_null().to_numpy(zero_copy_only=False)
        topic = pc.binary_join_element_wise(pa.scalar(topic_prefix(number)), rows[side.topic].cast(pa.string()), "")
        payload = [pa.nulls(count_, _whole(one)) for one in self._join.sides]
        payload[number] = pa.StructArray.from_arrays(
            [contiguous(one) for one in rows.columns], fields=list(_whole(side))
        )
        partition, arrivals = rows[side.partition].cast(pa.int64()), np.full(count_, self._input_count() + 1)
        if self._by_message:
            arrivals += turns(at, (topic, partition, rows[side.offset]))
        columns = [
            *(rows[name] for name in side.on), _unkeyed(side, rows, topic), pa.array(at, mask=missing), topic,
            partition, rows[side.offset], pa.repeat(pa.scalar(number, pa.int8()), count_), pa.array(arrivals),
            *payload,
        ]  # fmt: skip
        return pa.Table.from_arrays(columns, schema=self._plan.schema)

    def rejected(self, input_number: int, rows: pa.Table) -> pa.Table:
        """Return messages of a side unchanged, with the reason."""
        columns = [*contiguous(rows[PAYLOAD[input_number]]).flatten(), contiguous(rows[REASON])]
        return pa.Table.from_arrays(columns, schema=self._join.sides[input_number].rejected_schema)

    def offsets_of(self, input_number: int, offsets: Offsets) -> Offsets:
        """Return the offsets of a side, by its own topics."""
        prefix = topic_prefix(input_number)
        return {
            (topic.removeprefix(prefix), partition): offset
            for (topic, partition), offset in offsets.items()
            if topic.startswith(prefix)
        }

    def due(self, watermark_ms: int, input_number: int = 0) -> Iterator[Output]:
        """Apply the watermark of a side: the lower watermark of both completes sessions."""
        before = self.watermarks_ms[input_number]
        self.watermarks_ms[input_number] = watermark_ms if before is None else max(before, watermark_ms)
        known = [ms for ms in self.watermarks_ms if ms is not None]
        if len(known) == len(self.watermarks_ms):
            yield from super().due(min(known))

    def output_watermark_ms(self, watermark_ms: int) -> int:
        """Return the watermark of the pairs: a kept session can have late pairs."""
        known = [ms for ms in self.watermarks_ms if ms is not None]
        return (
            super().output_watermark_ms(min(watermark_ms, *known)) if len(known) == len(self.watermarks_ms) else LOWEST
        )

    @property
    def _by_message(self) -> bool:
        """Whether rows are emitted with each message, and not when a session is complete."""
        return self._join.emit is not Emit.FINAL

    def _input_count(self) -> int:
        """Return the number of messages so far, from which the arrival numbers of a call's messages continue."""
        return sum(one.counter.counts.given for one in self._inputs)

    def _buffer_messages(self, messages: Messages, now_ms: int | None) -> Iterator[Output]:
        if not self._by_message:
            yield from super()._buffer_messages(messages, now_ms)
            return
        rows = messages.rows
        for places_of in in_turn(self._open.numbers(rows), ints(contiguous(rows["arrival"]))):
            yield from super()._buffer_messages(messages.take_rows(places_of), now_ms)
            yield from self._show(np.flatnonzero(self._has_news() & ~self._is_complete()), PaneTiming.EARLY)

    def _release(self, last: int, *, over_limit: bool = False) -> Iterator[Output]:
        yield from super()._release(last, over_limit=over_limit)
        spans = self._spans.parts
        left = self._open.sessions.owners(spans.keys, spans.starts) == NONE
        if left.any():
            self._spans.replace(left, spans.take_rows(spans.keys[:0]))

    def _panes(self, sessions: Sessions, timing: PaneTiming, *, last: bool) -> Iterator[Output]:
        if self._by_message and (last or timing is PaneTiming.ON_TIME):
            return  # all rows were emitted with the messages
        by_key = np.lexsort((sessions.starts, sessions.keys))
        rows, owners = self._messages.of(self._open, sessions.take_rows(by_key))
        owners, at = by_key[owners], places(self._plan, rows)
        ranks = self.channels.ranks()[self.channels.numbers(rows)]
        order = np.lexsort((self.channels.offsets(rows), ranks, at, owners))
        rows, owners, at = rows.take(pa.array(order)), owners[order], at[order]
        spans = np.full(len(at), NONE) if self._join.emit is Emit.RUNNING else self._spans_of(rows, at)
        if self._join.emit is Emit.PAIRED:
            unused = spans == NONE
            rows, owners, at, spans = rows.filter(pa.array(unused)), owners[unused], at[unused], spans[unused]
        known = pc.is_null(contiguous(rows[_UNKEYED])).to_numpy(zero_copy_only=False)
        side = ints(contiguous(rows["side"]).cast(pa.int64()))
        where = [np.flatnonzero(side == number) for number in (LEFT, RIGHT)]
        members = [Members(owners[own_places], spans[own_places], known[own_places]) for own_places in where]
        if self._join.emit is Emit.FINAL:
            self._remember(sessions, np.full(len(sessions), self._input_count()))
        elif self._join.emit is Emit.PAIRED:
            left, right = (one.sessions[one.known] for one in members)
            joined_sessions = np.intersect1d(left, right)
            lasts = np.full(len(sessions), NONE)
            np.maximum.at(lasts, owners, ints(contiguous(rows["arrival"])))
            self._remember(sessions.take_rows(joined_sessions), lasts[joined_sessions])
        messages = [
            self._side_messages(number, rows.take(pa.array(own_places))) for number, own_places in enumerate(where)
        ]
        for pairs in self._find_pairs(*members):
            if len(pairs[LEFT]):
                yield self._output(sessions, (messages[LEFT], messages[RIGHT]), members, pairs, timing)

    def _find_pairs(self, left: Members, right: Members) -> Iterator[tuple[Ints, Ints]]:
        """Yield the places of the messages of each emitted row, NONE for no message, in pieces of bounded size."""
        unmatched = []
        for number in self._join.outer:
            members = unmatched_places(*((left, right) if number == LEFT else (right, left)), self._join.keep)
            none = np.full(len(members), NONE)
            unmatched.append((members, none) if number == LEFT else (none, members))
        pieces: Iterable[tuple[Ints, Ints]] = [chosen_pairs(left, right, self._join.keep)]
        if self._join.keep is Keep.ALL:
            pieces = new_pairs(left, right, self._logs.limits.piece_rows)
        for piece in pieces:
            at_left, at_right = (np.concatenate(places_of) for places_of in zip(piece, *unmatched, strict=True))
            yield at_left, at_right
            unmatched = []

    def _output(
        self,
        sessions: Sessions,
        messages: tuple[SideMessages, SideMessages],
        members: Sequence[Members],
        pairs: tuple[Ints, Ints],
        timing: PaneTiming,
    ) -> Output:
        (at_left, at_right), (left, right) = pairs, members
        of = np.where(
            at_left != NONE, np.append(left.sessions, NONE)[at_left], np.append(right.sessions, NONE)[at_right]
        )
        order = np.lexsort((at_right, at_left, of))
        at_left, at_right, of = at_left[order], at_right[order], of[order]
        edges = sessions.starts[of], sessions.ends[of]
        return rows_output(self._join, messages, (at_left, at_right), edges, pa.repeat(timing.value, len(of)))

    def _side_messages(self, number: int, rows: pa.Table) -> SideMessages:
        """Return the messages of a side unchanged."""
        schema = self._join.sides[number].schema
        whole = contiguous(rows[PAYLOAD[number]]).flatten() if rows.num_rows else schema.empty_table().columns
        none = np.zeros(rows.num_rows, np.int64)
        return SideMessages(pa.Table.from_arrays(whole, schema=schema), none, none, none, none, none.astype(np.bool_))

    def _spans_of(self, rows: pa.Table, at: Ints) -> Ints:
        """Return the session in which each message was shown before, NONE for new messages."""
        span_places = self._spans.sessions.owners(self._spans.numbers(rows), at)
        if not len(self._spans.sessions):
            return span_places
        arrivals = ints(contiguous(rows["arrival"]))
        return np.where(arrivals <= self._spans.parts.last[span_places], span_places, NONE)

    def _remember(self, sessions: Sessions, lasts: Ints) -> None:
        """Note for each of these sessions the last arrival number that was shown."""
        if not len(sessions):
            return
        spans = self._spans.parts
        by_key = np.lexsort((sessions.starts, sessions.keys))
        inside = sessions.take_rows(by_key).owners(spans.keys, spans.starts) != NONE
        none, one = np.zeros(len(sessions), np.int64), np.ones(len(sessions), np.int64)
        new_spans = SessionFragments(
            sessions.keys, none, sessions.starts, sessions.ends, none, lasts, one, none, none, none
        )
        self._spans.replace(inside, new_spans)

    def state(self) -> dict[str, Any]:
        """See StoreContent; with the watermark of each side."""
        return {**super().state(), "watermarks_ms": self.watermarks_ms}

    def _tables(self) -> list[OpenSessions]:
        return [*super()._tables(), self._spans]

    def _bytes(self, rows: pa.Table) -> Ints:
        """Return the bytes of each original message in Arrow, without added columns."""
        sizes, sides = np.zeros(rows.num_rows, np.int64), ints(contiguous(rows["side"]).cast(pa.int64()))
        for number, side in enumerate(self._join.sides):
            own_places = np.flatnonzero(sides == number)
            if len(own_places):
                whole = contiguous(rows[PAYLOAD[number]]).take(pa.array(own_places)).flatten()
                sizes[own_places] = message_bytes(pa.Table.from_arrays(whole, schema=side.schema))
        return sizes

    def _by_input(self, parts: SessionFragments) -> list[SessionFragments]:
        of_right = np.array([topic.startswith(topic_prefix(RIGHT)) for topic, _ in self.channels.known], np.bool_)[
            parts.channels
        ]
        return [parts.take_rows(~of_right), parts.take_rows(of_right)]


def topic_prefix(number: int) -> str:
    """Return the prefix of the topics of a side, by its number, since both sides are stored together."""
    return f"{number}:"


def plan_of_both(plan: WindowJoinPlan) -> StorePlan:
    """Return the plan of the sessions of both sides together."""
    keys = [pa.field(f"key{at}", plan.left.schema.field(name).type) for at, name in enumerate(plan.left.on)]
    numbers = [("partition", pa.int64()), ("offset", pa.int64()), ("side", pa.int8()), ("arrival", pa.int64())]
    whole = [(name, _whole(side)) for name, side in zip(PAYLOAD, plan.sides, strict=True)]
    schema = pa.schema([*keys, (_UNKEYED, pa.string()), (TIME, pa.int64()), ("topic", pa.string()), *numbers, *whole])
    return StorePlan(
        schema=schema, by=(*(one.name for one in keys), _UNKEYED), window=plan.session,
        aggregates=(("messages", count()),), retention=plan.retention, time=TIME,
    )  # fmt: skip


def _unkeyed(side: WindowJoinSide, rows: pa.Table, topic: pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Return topic, partition and offset as the key of messages whose key is null, and null for other messages."""
    if not any(rows[name].null_count for name in side.on):
        return pa.nulls(rows.num_rows, pa.string())
    is_known = reduce(pc.and_, (pc.is_valid(rows[name]) for name in side.on))
    places_ = (rows[name].cast(pa.string()) for name in (side.partition, side.offset))
    return pc.if_else(is_known, pa.scalar(None, pa.string()), pc.binary_join_element_wise(topic, *places_, "-"))


def _whole(side: WindowJoinSide) -> pa.StructType:
    """Return the type of a whole message; it is null for messages of the other side."""
    return pa.struct([one.with_nullable(nullable=True) for one in side.schema])
