"""The planner: asks the broker and the clock, and lets `plan` decide.

Rule: all it keeps between calls can be found again (offsets in Spark's log, states in Kafka's committed offsets or by a
recovery read); keeping it saves round trips only.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from keyedwm.core.coalescer import CommonState
from keyedwm.core.errors import DataLossError
from keyedwm.core.idleness import Idleness
from keyedwm.kafka.cluster import Cluster, shared
from keyedwm.kafka.errors import UnknownTopicError
from keyedwm.kafka.values import TopicPartition
from pyspark_wm_source.aligning import Aligner, Standing
from pyspark_wm_source.begin import assigned, resolve
from pyspark_wm_source.channel import After
from pyspark_wm_source.offsets import NOT_STARTED, QueryOffset
from pyspark_wm_source.options import SourceOptions
from pyspark_wm_source.plan import Rules, Seen, plan, position_of, worth_a_batch
from pyspark_wm_source.propagated import reached_by
from pyspark_wm_source.report import barriers_again, describe
from pyspark_wm_source.settle import Settler
from pyspark_wm_source.splits import Cutting, Split, splits
from pyspark_wm_source.start import LATEST

LOG = logging.getLogger("keyedwm.source")
_TOKEN_CHARACTERS = 12
_ASSIGNMENT_AGE_S = 1.0
_END_ATTEMPTS = 4
_END_PAUSE_S = 0.1


class FrozenEndError(DataLossError):
    """Trigger.AvailableNow froze log ends that are not there any more."""

    advice = "start the query again: it freezes anew, and failOnDataLoss decides about what is gone"


class Planner:
    """Plans one query's batches on the driver."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._initial: QueryOffset | None = None
        self._assigned: tuple[float, tuple[TopicPartition, ...]] | None = None
        self._cutting = Cutting.of(options)
        self._settler = Settler(options, self._cutting)
        self._read_lately: list[tuple[Mapping[str, Any], QueryOffset]] = []
        self._frozen: Seen | None = None
        self._freeze = False
        self._closed = False
        self._read_planned_at_s: float | None = None
        self._facts: dict[str, Any] | None = None
        self._ends: dict[TopicPartition, int] | None = None
        self._aligner: Aligner | None = None

    @property
    def _cluster(self) -> Cluster:
        return shared(self._options.client)

    def freeze(self) -> None:
        """Plan towards the log ends of the next call, and no further (Trigger.AvailableNow)."""
        self._freeze = True

    def initial(self, query: str) -> QueryOffset:
        """Return the offset before the first batch: where each channel begins. `query`: fresh hex digits."""
        if self._initial is None:
            options = self._options
            channels = assigned(self._cluster, options.topics, running=False)
            self._initial = QueryOffset(
                batch=NOT_STARTED,
                group=options.group_id or f"{options.group_prefix}-{query}",
                token=query[:_TOKEN_CHARACTERS],
                now_ms=_wall_ms(),
                coalesced=CommonState(),
                begins=resolve(self._cluster, options.start, channels, LATEST),
            )
        return self._initial

    def next(self, start_json: dict[str, Any], *, once: bool) -> dict[str, Any]:
        """Return the end of the next batch, or `start_json` itself if there is nothing to tell."""
        start = self._read(start_json)
        after = self._settler.settle(self._cluster, start)
        seen = self._look(start)
        options = self._options
        limit = None if once else options.max_offsets
        if options.aligned:
            seen, limit = replace(seen, ends=self._aligned(start, after, seen, limit)), None
        rules = Rules(
            guarantee=options.guarantee,
            idleness=Idleness(options.idle_timeout_ms),
            max_offsets=limit,
            retention_ms=options.retention_ms,
            axes=tuple(axis.config for axis in options.axes.values()),
            clocked=tuple(axis.config for axis in options.axes.values() if axis.moves_by_clock),
            propagate=options.propagate,
        )
        planned = plan(start, after, seen, rules)
        self._facts = describe(planned, self._ends or {}, self._settler.recovered)
        if options.propagate:
            self._facts["barriers_again"] = barriers_again(planned)
        first = start.batch == NOT_STARTED
        reads = any(True for _ in planned.moved())
        if not worth_a_batch(start, planned) or (not first and not reads and (once or self._closed)):
            return start_json
        if reads and not once and self._too_few(planned):
            return start_json
        self._closed = self._frozen is not None and not reads
        if first or reads:
            self._read_planned_at_s = time.monotonic()
        planned_json = planned.to_json()
        if LOG.isEnabledFor(logging.INFO):
            LOG.info("planned %s", json.dumps({**self._facts, "group": planned.group}))
        self._keep(planned_json, planned)
        return planned_json

    def splits(self, start_json: Mapping[str, Any], end_json: Mapping[str, Any]) -> list[Split]:
        """Cut the batch between two offsets into tasks."""
        end = self._read(end_json)
        if self._frozen is not None:
            self._still_there(end)
        return splits(self._read(start_json), end, self._cutting)

    def _read(self, offset_json: Mapping[str, Any]) -> QueryOffset:
        """Read an offset back, unless it is known: with thousands of channels that takes a while."""
        for known_json, known in self._read_lately:
            if known_json == offset_json:
                return known
        return self._keep(offset_json, QueryOffset.from_json(offset_json))

    def _keep(self, offset_json: Mapping[str, Any], offset: QueryOffset) -> QueryOffset:
        """Keep the last two: a batch's start and its end."""
        self._read_lately = [*self._read_lately[-1:], (offset_json, offset)]
        return offset

    def reported(self) -> dict[str, Any] | None:
        """Return the facts of the last planning: newest log ends, who holds the watermark, who is idle."""
        return self._facts

    def _too_few(self, planned: QueryOffset) -> bool:
        """Hold a batch below minOffsetsPerTrigger until maxTriggerDelay is over, never a first one (Spark's rule)."""
        smallest = self._options.min_offsets
        if smallest is None or self._read_planned_at_s is None or self._frozen is not None:
            return False
        waiting = sum((self._ends or {}).get(tp, c.next_offset) - c.start for tp, c in planned.channels.items())
        waited_ms = (time.monotonic() - self._read_planned_at_s) * 1_000
        return waiting < smallest and waited_ms < self._options.max_trigger_delay_ms

    def _look(self, start: QueryOffset) -> Seen:
        """Ask for log ends; the two clock readings frame the answer."""
        asked_ms = _wall_ms()
        if self._frozen is not None:
            # What came after the freeze is not looked at, so silence counts up to the freeze only.
            return replace(self._frozen, now_ms=asked_ms)
        known = start.begins if start.batch == NOT_STARTED else start.channels
        channels = self._channels(set(known))
        try:
            ends = self._cluster.latest(channels)
        except UnknownTopicError:
            # A topic went away between the two questions: ask again for what is left.
            self._assigned = None
            channels = self._channels(set(known))
            ends = self._cluster.latest(channels)
        now_ms = _wall_ms()
        self._ends = dict(ends)
        new = {tp: start.begins[tp] for tp in channels if tp in start.begins}
        if found := [tp for tp in channels if tp not in known]:
            new |= self._found_while_running(found)
        seen = Seen(ends=self._checked(start, ends), begins=new, asked_ms=asked_ms, now_ms=now_ms)
        if self._freeze:
            self._frozen = seen
        return seen

    def _aligned(
        self, start: QueryOffset, after: Mapping[TopicPartition, After], seen: Seen, limit: int | None
    ) -> dict[TopicPartition, int]:
        """Where the batch ends: behind barriers, never in the middle of a snapshot."""
        if self._aligner is None:
            self._aligner = Aligner(self._cluster)
        channels = {}
        for tp, end in seen.ends.items():
            before = start.channels.get(tp)
            axes = after[tp].axes if tp in after else {} if before is None else before.axes
            channels[tp] = Standing(position=position_of(start, seen, tp), end=end, reached=reached_by(axes))
        return self._aligner.ends(channels, limit)

    def _channels(self, known: set[TopicPartition]) -> tuple[TopicPartition, ...]:
        now_s = time.monotonic()
        if self._assigned is None or now_s - self._assigned[0] > _ASSIGNMENT_AGE_S:
            self._assigned = (now_s, assigned(self._cluster, self._options.topics, running=True))
        gone = sorted(known - set(self._assigned[1]))
        if gone:
            self._lost(f"{', '.join(map(str, gone))} is gone: the topic was deleted, or this group may not see it")
        return self._assigned[1]

    def _found_while_running(self, found: list[TopicPartition]) -> dict[TopicPartition, int]:
        """New partitions are read from their beginning, whatever startingOffsets says (Spark's rule)."""
        firsts = self._cluster.earliest(found)
        for tp, first in sorted(firsts.items()):
            if first > 0:
                self._lost(f"{tp} appeared while the query ran, and its records before offset {first} are gone")
        return firsts

    def _checked(self, start: QueryOffset, ends: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Refuse (or, with failOnDataLoss=false, note) log ends that lie before where the query stands."""
        checked = dict(ends)
        for attempt in range(_END_ATTEMPTS):
            behind = sorted(tp for tp, end in checked.items() if end < _stands_at(start, tp))
            if not behind:
                return checked
            # A leader that just took over can answer with an older end for a moment (KAFKA-7703).
            time.sleep(_END_PAUSE_S * attempt)
            checked |= self._cluster.latest(behind)
        for tp in behind:
            at = _stands_at(start, tp)
            why = (
                f"but it was read up to {at}: the topic was made anew"
                if tp in start.channels
                else f"but the query is to start at {at}: that offset was never written, or the topic was made anew"
            )
            self._lost(f"{tp} ends at offset {checked[tp]}, {why}")
        return checked

    def _still_there(self, end: QueryOffset) -> None:
        """Refuse to read towards a frozen end that is gone, whatever failOnDataLoss says (Spark's rule)."""
        if not any(True for _ in end.moved()):
            return
        present = self._cluster.partitions({tp.topic for tp in end.channels}, missing_ok=True)
        gone = [tp for tp in sorted(end.channels) if tp.partition not in present.get(tp.topic, ())]
        ends = {} if gone else self._cluster.latest(end.channels)
        shrunk = [f"{tp} ends at offset {ends[tp]}" for tp in sorted(ends) if ends[tp] < end.channels[tp].next_offset]
        if found := [*(f"{tp} is gone" for tp in gone), *shrunk]:
            raise FrozenEndError(f"{found[0]}, but Trigger.AvailableNow planned to read more: the topic was made anew")

    def _lost(self, what: str) -> None:
        if self._options.fail_on_data_loss:
            raise DataLossError(what)
        LOG.warning("%s; going on (failOnDataLoss=false)", what)


def _stands_at(start: QueryOffset, tp: TopicPartition) -> int:
    """The next offset to read of a channel; 0 for one that was found just now."""
    before = start.channels.get(tp)
    return start.begins.get(tp, 0) if before is None else before.next_offset


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000
