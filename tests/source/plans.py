"""A source without Kafka or Spark for planning tests: logs are lists of event times, the clock is a number."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from conformance.models.axis import Axis
from keyedwm.core.axis import AxisConfig, Counts
from keyedwm.core.coalescer import CommonState
from keyedwm.core.idleness import Idleness
from keyedwm.core.places import EventTime
from keyedwm.core.policy import FixedLag, Policy
from keyedwm.core.throttle import Throttle, ThrottleByBatch
from keyedwm.core.watermark import Guarantee, Status
from keyedwm.kafka.client.values import TopicPartition
from pyspark_wm_source.driver.plan import BrokerAnswers, Rules, plan, worth_a_batch
from pyspark_wm_source.options.axes import TimeAxis
from pyspark_wm_source.values.offsets import NOT_STARTED, QueryOffset
from pyspark_wm_source.values.ranges import RangeResult

GROUP, STATE_KEY = "g-1", "0123456789abcdef" * 4
MANY = 1_000
BY_BATCH = ThrottleByBatch()


def tp(partition: int) -> TopicPartition:
    return TopicPartition("t", partition)


@dataclass
class Simulation:
    """Plans batches over logs that the test fills; `now_ms` stands where the test puts it.

    logs: partition → event times in offset order, None for a record without one.
    """

    logs: dict[int, list[int | None]]
    lag_ms: int = 0
    idle_timeout_ms: int | None = 1_000
    max_offsets: int | None = None
    now_ms: int = 0
    policy: Policy | None = None
    throttle: Throttle = BY_BATCH
    offset: QueryOffset = field(init=False)
    starts: list[QueryOffset] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.axis = AxisConfig(key=0, policy=self.policy or FixedLag(lag_ms=self.lag_ms), throttle=self.throttle)
        self.offset = QueryOffset(
            batch=NOT_STARTED, group=GROUP, state_key=STATE_KEY, now_ms=self.now_ms, coalesced=CommonState(),
            begins={tp(p): 0 for p in self.logs},
        )  # fmt: skip

    def step(self, *, ends: Mapping[int, int] | None = None, took_ms: int = 0) -> QueryOffset | None:
        """Plan one batch; the broker's answer takes `took_ms` and shows `ends`, else the whole logs."""
        shown_ends = (
            {tp(p): len(log) for p, log in self.logs.items()} if ends is None else {tp(p): e for p, e in ends.items()}
        )
        answers = BrokerAnswers(
            ends=shown_ends, begins={t: self.offset.begins.get(t, 0) for t in shown_ends}, requested_ms=self.now_ms,
            now_ms=self.now_ms + took_ms,
        )  # fmt: skip
        clocked = TimeAxis(config=self.axis, event_time=EventTime()).moves_by_clock
        rules = Rules(
            guarantee=Guarantee.EXACTLY_ONCE, idleness=Idleness(self.idle_timeout_ms), max_offsets=self.max_offsets,
            axes=(self.axis,), clocked=(self.axis,) if clocked else (),
        )  # fmt: skip
        planned = plan(self.offset, self.after(), answers, rules)
        self.now_ms += took_ms
        if not worth_a_batch(self.offset, planned):
            return None
        self.starts.append(self.offset)
        self.offset = planned
        return planned

    def after(self) -> dict[TopicPartition, RangeResult]:
        """What the tasks of the last batch leave, by the scalar reference."""
        states = {}
        for place, channel in self.offset.channels_to_read():
            times = self.logs[place.partition][channel.start : channel.next_offset]
            run = Axis(self.axis, channel.axes.get(0))
            for event_ms in times:
                if event_ms is not None:
                    run.observe(event_ms, self.offset.now_ms)
            run.end(self.offset.now_ms)
            counts = channel.counts.plus(Counts(bad=sum(event_ms is None for event_ms in times)))
            states[place] = RangeResult(next_offset=channel.next_offset, counts=counts, axes={0: run.state()})
        return states

    def restart(self) -> None:
        """Go on from the offset log alone."""
        self.offset = QueryOffset.from_json(json.loads(json.dumps(self.offset.to_json())))

    def drain(self) -> int:
        """Plan until nothing is new; returns how many batches that took."""
        count = 0
        while self.step():
            count += 1
            assert count < MANY, "planning does not come to rest"
        return count

    def status(self, partition: int) -> Status:
        return self.offset.channels[tp(partition)].status

    @property
    def watermark_ms(self) -> int | None:
        return self.offset.watermark_ms(0)


def promise(times: Sequence[int | None], lag_ms: int) -> int | None:
    """What a channel promises after these events."""
    known = [t for t in times if t is not None]
    return max(known) - lag_ms if known else None
