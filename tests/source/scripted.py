"""A cluster that answers as the test says, for planning without a broker; the planner's pauses take no time."""

# ruff: noqa: ARG002  the cluster's own signatures

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from keyedwm.core.axis import AxisState, Counts
from keyedwm.core.encoding import CommittedState, encode_committed
from keyedwm.kafka.client.errors import Code
from keyedwm.kafka.client.values import Committed, Isolation, LogEnd, TopicPartition
from keyedwm.kafka.requests.versions import Use
from pyspark_wm_source.driver import planner as planner_module
from pyspark_wm_source.driver.planner import Planner
from pyspark_wm_source.options.source_options import SourceOptions
from pyspark_wm_source.values.offsets import QueryOffset, state_place


@dataclass
class Log:
    """One partition: first offset, last stable offset, high watermark; leader epoch, and where earlier ones end.

    newest_ms: the highest timestamp. false_ends: what is answered instead of the ends of epochs.
    """

    first: int = 0
    stable: int = 0
    high: int = 0
    epoch: int | None = None
    epoch_ends: dict[int, int | None] = field(default_factory=dict)
    newest_ms: int | None = None
    false_ends: dict[int, int] = field(default_factory=dict)

    def has_lost(self, position: int, epoch: int) -> bool:
        """Whether the record before a position is gone, or of a later epoch than it was."""
        later = [end for of, end in self.epoch_ends.items() if of == epoch and end is not None and end < position]
        return position > self.high or (self.first < position and bool(later))

    @staticmethod
    def of(end: int, first: int = 0) -> Log:
        return Log(first, end, end)


@dataclass
class ScriptedCluster:
    """`logs` is the truth; `stale`, `stale_ends`: answers about metadata and log ends that come before the true one."""

    logs: dict[TopicPartition, Log]
    ids: dict[str, str] = field(default_factory=dict)
    stale: list[dict[str, tuple[int, ...]]] = field(default_factory=list)
    stale_ends: list[dict[TopicPartition, int]] = field(default_factory=list)
    committed: dict[str, dict[TopicPartition, Committed]] = field(default_factory=dict)
    refusal: Exception | None = None
    requests: list[str] = field(default_factory=list)
    usable: bool = True

    @property
    def metadata(self) -> ScriptedCluster:
        return self

    def topic_id(self, topic: str) -> str | None:
        return self.ids.get(topic)

    def warn_of_losses(self, use: Use) -> None:
        """Nothing is lost: every request is answered."""

    def topics(self) -> tuple[str, ...]:
        return tuple(sorted({tp.topic for tp in self.logs}))

    def partitions(self, topics: Iterable[str], *, missing_ok: bool = False) -> dict[str, tuple[int, ...]]:
        self.requests.append("partitions")
        if self.stale:
            return self.stale.pop(0)
        partitions_by_topic: dict[str, tuple[int, ...]] = {}
        for tp in sorted(self.logs):
            if tp.topic in set(topics):
                partitions_by_topic[tp.topic] = (*partitions_by_topic.get(tp.topic, ()), tp.partition)
        return partitions_by_topic

    def earliest(self, places: Iterable[tuple[str, int]]) -> dict[TopicPartition, int]:
        return {TopicPartition(*tp): self.logs[TopicPartition(*tp)].first for tp in places}

    def latest(
        self, places: Iterable[tuple[str, int]], isolation: Isolation | None = None
    ) -> dict[TopicPartition, int]:
        logs = {TopicPartition(*tp): self.logs[TopicPartition(*tp)] for tp in places}
        stale = self.stale_ends.pop(0) if self.stale_ends else {}
        is_high = isolation is Isolation.READ_UNCOMMITTED
        return {tp: stale.get(tp, log.high if is_high else log.stable) for tp, log in logs.items()}

    def log_ends(
        self, places: Iterable[tuple[str, int]], isolation: Isolation | None = None
    ) -> dict[TopicPartition, LogEnd]:
        return {tp: LogEnd(end, self.logs[tp].epoch) for tp, end in self.latest(places, isolation).items()}

    def newest_times(self, places: Iterable[tuple[str, int]]) -> dict[TopicPartition, int | None]:
        return {TopicPartition(*tp): self.logs[TopicPartition(*tp)].newest_ms for tp in places}

    def epoch_ends(self, epochs: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        self.requests.append("epoch_ends")
        return {tp: {**self.logs[tp].epoch_ends, **self.logs[tp].false_ends}[epoch] for tp, epoch in epochs.items()}

    def lost_records(self, reads: Mapping[TopicPartition, tuple[int, int]]) -> set[TopicPartition]:
        self.requests.append("lost_records")
        return {tp for tp, (position, epoch) in reads.items() if self.logs[tp].has_lost(position, epoch)}

    def fetch_offsets(
        self, group: str, places: Iterable[tuple[str, int]], *, timeout_ms: int | None = None
    ) -> dict[TopicPartition, Committed]:
        self.requests.append("fetch_offsets")
        if self.refusal is not None:
            raise self.refusal
        positions = {TopicPartition(*tp) for tp in places}
        return {tp: committed for tp, committed in self.committed.get(group, {}).items() if tp in positions}

    def commit_offsets(
        self, group: str, positions: Mapping[tuple[str, int], tuple[int, str]], *, timeout_ms: int | None = None
    ) -> dict[TopicPartition, Code]:
        if self.refusal is not None:
            raise self.refusal
        for tp, (offset, metadata) in positions.items():
            self.committed.setdefault(group, {})[TopicPartition(*tp)] = Committed(offset, metadata)
        return {TopicPartition(*tp): Code.NONE for tp in positions}


class Driver:
    """A planner over a scripted cluster; `clock` is the wall clock in ms."""

    def __init__(self, monkeypatch: Any, cluster: ScriptedCluster, **settings: str) -> None:
        self.cluster = cluster
        self.clock = 1_000_000
        self.paused_s = 0.0
        monkeypatch.setattr(planner_module, "shared", lambda _client: cluster)
        monkeypatch.setattr(Planner, "_now_ms", lambda _planner: self.clock)
        monkeypatch.setattr("time.sleep", self._pause)
        topics = {} if "subscribePattern" in settings else {"subscribe": next(iter(cluster.logs)).topic}
        self.options = SourceOptions.parse({"kafka.bootstrap.servers": "x:1", **topics, **settings})
        self.restart()
        self.offset = self.planner.initial("ab" * 16).to_json()

    def _pause(self, seconds: float) -> None:
        self.paused_s += seconds

    def restart(self) -> None:
        self.planner = Planner(self.options)

    def plan(self) -> QueryOffset | None:
        """Plan one batch; None if there is nothing to tell. Every call looks at the cluster afresh."""
        self.planner._assigner.forget()
        planned = self.planner.next(self.offset, once=False)
        if planned is self.offset:
            return None
        self.offset = planned
        return QueryOffset.from_json(planned)

    def run_tasks(self, watermark_ms: int | Mapping[TopicPartition, int | None], counts: Counts | None = None) -> None:
        """Leave the state that the batch's tasks would have left; watermark_ms: of all channels, or of each."""
        end = QueryOffset.from_json(self.offset)
        positions = {}
        for tp, channel in end.channels_to_read():
            ms = watermark_ms if isinstance(watermark_ms, int) else watermark_ms[tp]
            state = CommittedState(end.batch, counts or Counts(), {} if ms is None else {0: AxisState((ms,), ms)})
            place = state_place(end.group, tp, channel.next_offset, end.settings, channel.resets)
            text = encode_committed(state, bytes.fromhex(end.state_key), place)
            positions[tp] = Committed(channel.next_offset, text)
        self.cluster.committed.setdefault(end.group, {}).update(positions)
