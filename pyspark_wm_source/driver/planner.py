"""The planner: asks the broker and the clock, and lets `plan` decide.

Rule: everything it keeps between calls can be read again (offsets in Spark's log, states in Kafka's committed offsets
or by a recovery read). To keep it only saves round trips.
"""

from __future__ import annotations

import json
import logging
import secrets
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from keyedwm.core.coalescer import CommonState
from keyedwm.core.encoding import KEY_BYTES, MARK
from keyedwm.core.errors import DataLossError, KeyedwmError, OptionError, StartBeyondEndError
from keyedwm.core.text import offsets_text
from keyedwm.kafka.client.errors import LogTruncatedError, TopicRecreatedError, UnknownTopicError
from keyedwm.kafka.client.values import Isolation, LogEnd, TopicPartition
from keyedwm.kafka.requests.cluster import Cluster, shared
from pyspark_wm_source.driver.alignment import Aligner, ChannelPosition
from pyspark_wm_source.driver.assignment import Assigner, Assignment
from pyspark_wm_source.driver.changed_settings import are_changed, carried_on
from pyspark_wm_source.driver.future_watermarks import FutureWatermarks
from pyspark_wm_source.driver.idle_pause import IdlePause
from pyspark_wm_source.driver.lost_logs import ShortLog, check_frozen, missing_channels
from pyspark_wm_source.driver.plan import BrokerAnswers, Rules, plan, position_of, worth_a_batch
from pyspark_wm_source.driver.recover_state import StateLoader
from pyspark_wm_source.driver.report import barriers_again, describe, nothing_selected
from pyspark_wm_source.driver.resolve_offsets import assigned, continued, resolve
from pyspark_wm_source.driver.splits import ControlSettings, splits
from pyspark_wm_source.driver.stable_ends import ask_readable_ends, next_offset_of, readable_ends
from pyspark_wm_source.driver.stale_answers import confirmed
from pyspark_wm_source.driver.truncation import Epochs, TruncationCheck, not_behind
from pyspark_wm_source.options.source_options import SourceOptions
from pyspark_wm_source.options.start_offsets import LATEST
from pyspark_wm_source.task.fetching import by_option
from pyspark_wm_source.task.propagated import last_barrier
from pyspark_wm_source.values.offsets import NOT_STARTED, STATE_TIMEOUT_MS, IdleTimeout, QueryOffset
from pyspark_wm_source.values.ranges import RangeResult, Split

LOG = logging.getLogger("keyedwm.source")


class Planner:
    """Plans one query's batches on the driver."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._initial: QueryOffset | None = None
        self._group = ""
        self._assigner = Assigner(options.topics)
        self._rows = ControlSettings.of(options)
        self._states = StateLoader(options)
        self._read_lately: list[tuple[Mapping[str, Any], QueryOffset]] = []
        self._frozen: BrokerAnswers | None = None
        self._freeze = False
        self._closed = False
        self._warned_of_settings = False
        self._warned_of_nothing = False
        self._read_planned_at_s: float | None = None
        self._progress: dict[str, Any] | None = None
        self._ends: dict[TopicPartition, int] | None = None
        self._aligner: Aligner | None = None
        self._truncations = TruncationCheck()
        self._future_watermarks = FutureWatermarks(self._options)
        self.idle_pause = IdlePause()

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
            self._group = options.group_id or f"{options.group_prefix}-{query}"
            if options.continue_from is not None:
                self._initial = continued(options.continue_from, options.topics)
                if options.group_id is not None:
                    self._check_group(options.group_id, list(self._initial.channels))
                return self._initial
            channels = assigned(self._cluster, options.topics, running=False)
            if options.group_id is not None:
                self._check_group(options.group_id, channels)
            self._initial = QueryOffset(
                batch=NOT_STARTED,
                group=self._group,
                state_key=secrets.token_hex(KEY_BYTES),
                now_ms=self._now_ms(),
                coalesced=CommonState(),
                begins=resolve(self._cluster, options.start, channels, LATEST),
            )
        return self._initial

    def next(self, start_json: dict[str, Any], *, once: bool) -> dict[str, Any]:
        """Return the end of the next batch, or `start_json` itself if nothing has changed."""
        offset = self._read(start_json)
        self._tell_changed_settings(offset)
        start = carried_on(offset, self._options)
        after = self._states.load_states(self._cluster, start, at_once=once or self._freeze)
        if after is None:
            self._progress = {**(self._progress or {}), "recovery": self._states.recovery_progress()}
            return start_json
        answers = self._look(start)
        options = self._options
        limit = None if once else options.max_offsets
        if options.aligned:
            answers, limit = replace(answers, ends=self._aligned(start, after, answers, limit)), None
        corrected = self._future_watermarks.corrected(start, after, answers.now_ms)
        start, after = corrected.start, corrected.after
        planned = plan(start, after, answers, Rules.of(options, limit))
        if options.continue_from is not None and offset == self._initial:
            # A query that continues from a savepoint has its own group, and no operator has followed its rows so far.
            planned = replace(planned, group=self._group, told_ms={})
        planned = replace(planned, outage=self._states.outage.why, idle_timeout=IdleTimeout(options.idle_timeout_ms))
        self._progress = describe(
            planned, answers, self._ends or {}, self._states.recovered,
            sets_idle=options.idle_timeout_ms is not None, before=start.channels,
        )  # fmt: skip
        self._tell_nothing_selected(planned)
        if options.propagate:
            self._progress["barriers_again"] = barriers_again(planned)
        first, reads = start.batch == NOT_STARTED, any(True for _ in planned.channels_to_read())
        worth = corrected.is_changed or worth_a_batch(start, planned)
        if not worth or (not first and not reads and (once or self._closed)):
            return start_json
        if reads and not once and self._too_few(planned):
            return start_json
        self._closed = self._frozen is not None and not reads
        if first or reads:
            self._read_planned_at_s = time.monotonic()
        planned_json = planned.to_json()
        self._future_watermarks.planned()
        if LOG.isEnabledFor(logging.DEBUG):
            LOG.debug("planned %s", json.dumps({**self._progress, "group": planned.group}))
        self._keep(planned_json, planned)
        return planned_json

    def splits(self, start_json: Mapping[str, Any], end_json: Mapping[str, Any]) -> list[Split]:
        """Cut the batch between two offsets into tasks."""
        end = self._read(end_json)
        if self._frozen is not None:
            check_frozen(self._cluster, end)
        tasks = splits(self._read(start_json), carried_on(end, self._options), self._rows, self._options.limits)
        # Tasks leave their states in the group; where its coordinator is away, each would wait for it.
        return (
            [replace(split, group="") for split in tasks] if self._states.outage.is_paused(time.monotonic()) else tasks
        )

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
        """Return the facts of the last planning: newest log ends, channels that block the watermark, idle channels."""
        return self._progress

    def _too_few(self, planned: QueryOffset) -> bool:
        """Hold a batch below minOffsetsPerTrigger until maxTriggerDelay is over, never a first one (Spark's rule)."""
        smallest = self._options.min_offsets
        if smallest is None or self._read_planned_at_s is None or self._frozen is not None:
            return False
        waiting = sum((self._ends or {}).get(tp, c.next_offset) - c.start for tp, c in planned.channels.items())
        waited_ms = (time.monotonic() - self._read_planned_at_s) * 1_000
        return waiting < smallest and waited_ms < self._options.max_trigger_delay_ms

    def _look(self, start: QueryOffset) -> BrokerAnswers:
        """Ask for log ends; read the clock before and after the answer."""
        requested_ms = self._now_ms()
        if self._frozen is not None:
            # Records after the freeze are ignored, so silence counts up to the freeze only.
            frozen = self._frozen
            restarts = {
                tp: first
                for tp, first in frozen.restarts.items()
                if start.topic_ids.get(tp.topic) != frozen.topic_ids.get(tp.topic)
                or (tp in start.channels and start.channels[tp].leader_epoch != frozen.leader_epochs.get(tp))
            }
            return replace(self._frozen, now_ms=requested_ms, restarts=restarts)
        known = start.begins if start.batch == NOT_STARTED else start.channels
        there, log_ends = self._log_ends(start, known)
        ends = {tp: end.offset for tp, end in log_ends.items()}
        epochs: Epochs = {tp: end.leader_epoch for tp, end in log_ends.items()}
        high = ends
        if self._options.client.isolation is Isolation.READ_COMMITTED:
            high = self._cluster.latest(there.channels, Isolation.READ_UNCOMMITTED)
        now_ms = self._now_ms()
        begins, restarts = self._begins(start, there)
        epochs = not_behind(epochs, start, restarts)
        restarts = self._truncated(start, epochs, restarts) | restarts
        self._ends = self._checked(start, ends, high, restarts, there)
        answers = BrokerAnswers(
            ends=self._ends,
            begins=begins,
            requested_ms=requested_ms,
            now_ms=now_ms,
            high=high,
            restarts=restarts,
            topic_ids=there.topic_ids,
            leader_epochs=epochs,
        )
        if self._freeze:
            self._frozen = answers
        return answers

    def _log_ends(
        self, start: QueryOffset, known: Collection[TopicPartition]
    ) -> tuple[Assignment, dict[TopicPartition, LogEnd]]:
        """Ask for the channels and their log ends; twice if the second answer contradicts the first one."""
        there = self._assignment(start, known)
        try:
            ends = self._cluster.log_ends(there.channels)
        except UnknownTopicError:
            ends = None  # a topic was deleted between the two questions
        if ends is None or any(end.offset < next_offset_of(start, tp) for tp, end in ends.items()):
            # The assignment may be a second old, and a topic may have been recreated since.
            self._assigner.forget()
            there = self._assignment(start, known)
            ends = self._cluster.log_ends(there.channels)
        return there, ends

    def _aligned(
        self, start: QueryOffset, after: Mapping[TopicPartition, RangeResult], answers: BrokerAnswers, limit: int | None
    ) -> dict[TopicPartition, int]:
        """Where the batch ends: behind barriers, never in the middle of a snapshot."""
        if self._aligner is None or answers.restarts:
            self._aligner = Aligner(self._cluster, self._options.control_authors, by_option(self._options))
        channels = {}
        for tp, end in answers.ends.items():
            before = start.channels.get(tp)
            axes = after[tp].axes if tp in after else {} if before is None else before.axes
            channels[tp] = ChannelPosition(
                position=position_of(start, answers, tp), end=end, barrier=last_barrier(axes),
                is_ahead=answers.uncommitted(tp) > 0,
            )  # fmt: skip
        return self._aligner.ends(channels, limit)

    def _assignment(self, start: QueryOffset, known: Collection[TopicPartition]) -> Assignment:
        there = self._assigner.current(self._cluster, known, start.topic_ids)
        left_out = [tp for tp in there.missing_of(known) if not self._options.topics.selects(tp)]
        if left_out:
            self._leave_out(left_out)
        if missing := sorted(set(there.missing_of(known)) - set(left_out)):
            self._stop_on_loss(missing_channels(missing))
        for topic in there.recreated(start.topic_ids):
            self._stop_on_loss(TopicRecreatedError.of(topic, start.topic_ids[topic], there.topic_ids[topic]))
        return there

    def _tell_changed_settings(self, start: QueryOffset) -> None:
        """Warn, once, that the checkpoint was written with other watermark settings, and say what that means."""
        if self._warned_of_settings or not are_changed(start, self._options):
            return
        self._warned_of_settings = True
        LOG.warning(
            "the watermark settings (eventTime, watermarkPolicy, lags, propagate or guarantee) are not those of "
            "batch %d of this checkpoint: the new ones count from this start on, from the last "
            "watermark of each partition; no watermark goes back, so a larger lag shows only when event times have "
            "passed it; start again with another checkpointLocation to apply them to all records",
            start.batch,
        )

    def _tell_nothing_selected(self, planned: QueryOffset) -> None:
        """Report in the progress, and warn once, that there is nothing to read."""
        why = nothing_selected(planned, self._options.topics)
        if why and not self._warned_of_nothing:
            LOG.warning("%s", why)
        self._warned_of_nothing = bool(why)
        self._progress = {**(self._progress or {}), **({"nothing_selected": why} if why else {})}

    def _leave_out(self, left_out: Sequence[TopicPartition]) -> None:
        """Raise OptionError for options that do not select a channel of the checkpoint: the options changed."""
        option = self._options.topics.option
        problem = (
            f"the checkpoint reads {', '.join(map(str, left_out))}, and the option {option} does not select it any more"
        )
        if self._options.fail_on_data_loss:
            raise OptionError(
                f"{problem}: select it again, start again with another checkpointLocation, or ignore it with "
                f"failOnDataLoss=false"
            )
        LOG.warning("%s: it is ignored (failOnDataLoss=false)", problem)

    def _begins(
        self, start: QueryOffset, there: Assignment
    ) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
        """Return the first offsets of channels that the last offset does not have, and of channels of recreated topics.

        New partitions are read from their beginning, whatever startingOffsets says (Spark's rule). A partition that was
        absent for a while continues at its position.
        """
        known = start.begins if start.batch == NOT_STARTED else start.channels
        recreated = set(there.recreated(start.topic_ids))
        begins = {tp: start.begins[tp] for tp in there.channels if tp in start.begins}
        back = {tp: start.retired[tp].next_offset for tp in there.channels if tp in start.retired}
        new = [tp for tp in there.channels if tp not in known and (tp not in back or tp.topic in recreated)]
        again = [tp for tp in there.channels if tp in known and tp.topic in recreated]
        firsts = self._cluster.earliest([*new, *again]) if new or again else {}
        for tp in new:
            if firsts[tp] > 0 and tp.topic not in recreated:
                missing_offsets = offsets_text(0, firsts[tp])
                self._stop_on_loss(
                    DataLossError(
                        f"{tp} appeared while the query ran, and its log does not hold {missing_offsets} any more"
                    )
                )
        return begins | back | {tp: firsts[tp] for tp in new}, {tp: firsts[tp] for tp in again}

    def _truncated(
        self, start: QueryOffset, epochs: Epochs, recreated: Collection[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """Raise DataLossError for logs that lost records which were read.

        With failOnDataLoss=false, return where they continue.
        """
        truncated = {}
        for tp, position, epoch, end in self._truncations.find(self._cluster, start, epochs, recreated):
            self._stop_on_loss(LogTruncatedError.of(tp, position, epoch, end))
            truncated[tp] = end
        return truncated

    def _check_group(self, group: str, channels: Sequence[TopicPartition]) -> None:
        """Raise OptionError for a group that another application commits to: its positions would be overwritten."""
        try:
            committed = self._cluster.fetch_offsets(group, channels, timeout_ms=STATE_TIMEOUT_MS)
        except KeyedwmError as error:
            LOG.warning("whether another application uses the consumer group %r is not known: %s", group, error.message)
            return
        foreign = sorted(tp for tp, position in committed.items() if not position.metadata.startswith(MARK))
        if foreign:
            raise OptionError(
                f"option kafka.group.id: group {group!r} has committed offsets of another application "
                f"({foreign[0]}: {committed[foreign[0]].next_offset}), which this query would overwrite: choose a "
                f"group of its own, or delete the group's offsets first"
            )

    def _checked(
        self,
        start: QueryOffset,
        ends: Mapping[TopicPartition, int],
        high: Mapping[TopicPartition, int],
        restarts: Mapping[TopicPartition, int],
        there: Assignment,
    ) -> dict[TopicPartition, int]:
        """Raise DataLossError for log ends below the query's positions (with failOnDataLoss=false: warn)."""
        recreated = there.recreated(start.topic_ids)
        positions = {
            tp: next_offset_of(start, tp)
            for tp in sorted(there.channels)
            if tp not in restarts and tp.topic not in recreated
        }

        def behind(answer: Mapping[TopicPartition, int]) -> list[TopicPartition]:
            return [tp for tp, position in positions.items() if answer[tp] < position]

        isolation = self._options.client.isolation
        # A leader that just took over can answer with an older end for a moment (KAFKA-7703).
        checked = confirmed(
            readable_ends(ends, high, positions), behind,
            lambda answer: answer | ask_readable_ends(self._cluster, behind(answer), positions, isolation),
        )  # fmt: skip
        for tp in behind(checked):
            at = positions[tp]
            if tp not in start.begins:
                ids = start.topic_ids.get(tp.topic), there.topic_ids.get(tp.topic)
                self._stop_on_loss(ShortLog(tp, checked[tp], at, *ids).error())
            else:
                holds = offsets_text(self._cluster.earliest([tp])[tp], checked[tp])
                self._stop_on_loss(StartBeyondEndError(
                    f"option {self._options.start.option_name or 'startingOffsets'}: {tp} is to start at offset {at}, "
                    f"and its log holds {holds}"
                ))  # fmt: skip
        return checked

    def _now_ms(self) -> int:
        """The time by the clock; in a test of a pipeline, the time in the file of its clock."""
        clock = self._options.test_clock
        return time.time_ns() // 1_000_000 if clock is None else int(Path(clock).read_text())

    def _stop_on_loss(self, error: DataLossError) -> None:
        if self._options.fail_on_data_loss:
            raise error
        LOG.warning("%s; the query continues (failOnDataLoss=false)", error.message)
