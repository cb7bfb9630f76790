"""Several channels of a source through the product's planner: `pyspark_wm_source.driver.plan.plan`, a step at a time.

Rule: an event is planned, read by an `AxisRun` as a task reads it, and its state planned again; what the planner
coalesced meanwhile is the answer. The scalar model answers too and must say the same. It plays fixed lags: a policy by
the clock falls under the cap of another channel's event in Jet, and under its own channel's alone in the product.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

import numpy as np

from conformance.axis_runs import AxisPolicy
from conformance.disagreement import DisagreementError
from conformance.models.mapper import Mapper, MapperConfig
from keyedwm.arrow.axis import AxisRun
from keyedwm.core.axis import AxisConfig, AxisState, Counts
from keyedwm.core.coalescer import CommonState, Output
from keyedwm.core.policy import FixedLag
from keyedwm.core.throttle import NoThrottle
from keyedwm.core.watermark import Guarantee, IdleMarker, Watermark
from keyedwm.kafka.client.values import TopicPartition
from pyspark_wm_source.driver.plan import BrokerAnswers, Rules, plan
from pyspark_wm_source.values.offsets import NOT_STARTED, QueryOffset
from pyspark_wm_source.values.ranges import RangeResult

Answer = TypeVar("Answer")


def mapper_of(config: MapperConfig) -> Mapper:
    """The mapper that plays a vector from its start."""
    policy = config.policy.policy if isinstance(config.policy, AxisPolicy) else config.policy
    return PlannedMapper(config, policy) if isinstance(policy, FixedLag) else Mapper(config)


class PlannedMapper(Mapper):
    """The planner's answers, which the scalar mapper must share."""

    def __init__(self, config: MapperConfig, policy: FixedLag) -> None:
        super().__init__(config)
        self._key = config.key
        self._axis = AxisConfig(config.key, policy, NoThrottle())
        self._rules = Rules(guarantee=Guarantee.EXACTLY_ONCE, idleness=config.idleness, max_offsets=None)
        self._planned_throttle = config.throttle.build()
        self._ends: dict[TopicPartition, int] = {}
        self._names: dict[str, TopicPartition] = {}
        self._after: dict[TopicPartition, RangeResult] = {}
        self._offset = QueryOffset(batch=NOT_STARTED, group="", state_key="", now_ms=0, coalesced=CommonState())

    def add(self, channels: Iterable[str], now_ms: int) -> list[Output]:
        """See Mapper."""
        names = list(channels)
        expected = super().add(names, now_ms)
        for name in names:
            self._names[name] = TopicPartition("t", len(self._names))
            self._ends[self._names[name]] = 0
        return self._agreed(expected, self._planned(now_ms))

    def remove(self, channel: str, now_ms: int, wall_ms: int | None = None) -> list[Output]:
        """See Mapper."""
        expected = super().remove(channel, now_ms, wall_ms)
        del self._ends[self._names[channel]]
        return self._agreed(expected, self._planned(now_ms))

    def event(self, channel: str, event_ms: int | None, now_ms: int, wall_ms: int | None = None) -> list[Output]:
        """See Mapper."""
        expected = super().event(channel, event_ms, now_ms, wall_ms)
        before, where = self._offset, self._names[channel]
        self._ends[where] += 1
        self._plan(now_ms)
        state = self._offset.channels[where].axes.get(self._key, AxisState())
        run = AxisRun(self._axis, state, self._offset.now_ms)
        run.rows(np.array([event_ms], np.int64), None)
        run.end()
        result = RangeResult(next_offset=self._ends[where], counts=Counts(), axes={self._key: run.state()})
        self._after = {where: result}
        self._plan(now_ms)
        self._after = {}
        return self._agreed(expected, self._output(before))

    def tick(self, now_ms: int, wall_ms: int | None = None, *, behind: frozenset[str] = frozenset()) -> list[Output]:
        """See Mapper."""
        return self._agreed(super().tick(now_ms, wall_ms, behind=behind), self._planned(now_ms))

    def watermark_ms(self, channel: str) -> int | None:
        """See Mapper."""
        state = self._offset.channels[self._names[channel]].axes.get(self._key, AxisState())
        return self._agreed(super().watermark_ms(channel), state.emitted_ms)

    def _planned(self, now_ms: int) -> list[Output]:
        before = self._offset
        self._plan(now_ms)
        return self._output(before)

    def _plan(self, now_ms: int) -> None:
        begins = {where: 0 for where in self._ends if where not in self._offset.channels}
        answers = BrokerAnswers(ends=dict(self._ends), begins=begins, requested_ms=now_ms, now_ms=now_ms)
        self._offset = plan(self._offset, self._after, answers, self._rules)

    def _output(self, before: QueryOffset) -> list[Output]:
        """What the coalesced state says now and did not say before, throttled."""
        output: list[Output] = []
        watermark_ms = self._offset.watermark_ms(self._key)
        if watermark_ms is not None and watermark_ms != before.watermark_ms(self._key):
            sent_ms = self._planned_throttle.end_of_batch(watermark_ms)
            output += [] if sent_ms is None else [Watermark(self._key, sent_ms)]
        if self._offset.coalesced.idle_spell and not before.coalesced.idle_spell:
            output.append(IdleMarker())
        return output

    @staticmethod
    def _agreed(model: Answer, product: Answer) -> Answer:
        if model != product:
            raise DisagreementError(f"the scalar mapper says {model}, the planner {product}")
        return product
