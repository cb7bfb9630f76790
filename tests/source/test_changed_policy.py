"""A checkpoint that goes on with another watermark policy: from the last watermark as its floor, never back."""

from __future__ import annotations

import itertools
import json

import numpy as np
import pytest

from keyedwm.arrow.axis import AxisRun
from keyedwm.core.axis import AxisState, Counts
from keyedwm.core.encoding import CommittedState, encode_committed
from keyedwm.core.errors import OptionError
from keyedwm.core.rows import ControlKind
from keyedwm.kafka.client.values import Committed, TopicPartition
from pyspark_wm_source.driver import planner as planner_module
from pyspark_wm_source.driver import recover_state
from pyspark_wm_source.driver.planner import Planner
from pyspark_wm_source.options.source_options import SourceOptions
from pyspark_wm_source.values.offsets import QueryOffset, state_place
from pyspark_wm_source.values.ranges import ChannelRange, RangeResult, part_group
from tests.source.scripted import Log
from tests.source.test_lost_states import Followed, reset_rows

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
POLICIES = {
    "fixedLag": {"watermarkLag": "50ms"},
    "lagAndDelay": {"watermarkDelay": "1 hour", "watermarkLag": "10ms"},
    "lagAndLull": {"watermarkLull": "2 seconds"},
    "timestampAndWallClockLag": {"wallClockLag": "995 seconds", "watermarkLag": "9ms"},
    "realTimeLag": {"wallClockLag": "993 seconds"},
    "none": {},
    "tests.own_policies:whole_hours": {},
}
BASE = {"kafka.bootstrap.servers": "x:1", "subscribe": "t", "startingOffsets": "earliest"}
LOOSE = {"watermarkThrottle": "none"}


def options(policy: str, **more: str) -> SourceOptions:
    return SourceOptions.parse({**BASE, **LOOSE, "watermarkPolicy": policy, **POLICIES[policy], **more})


class Chain:
    """Batches whose tasks run the real policies over event times; a sink and an operator follow the rows."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, first: SourceOptions) -> None:
        self.followed = Followed(monkeypatch, {A: Log.of(0), B: Log.of(0)})
        self.driver = self.followed.driver
        self.driver.options = first
        self.driver.restart()
        self.driver.offset = self.driver.planner.initial("ab" * 16).to_json()

    def batch(self, *, at: dict[TopicPartition, int] | None = None, commit: bool = True) -> bool:
        """One record more in each partition of `at` (partition → event time), then one batch."""
        for tp in at or {}:
            self.driver.cluster.logs[tp] = Log.of(self.driver.cluster.logs[tp].high + 1)
        before = self.driver.offset
        self.driver.planner = Planner(self.driver.options)  # a restart before every batch
        if self.driver.plan() is None:
            return False
        self.run(before, at or {}, commit=commit)
        return True

    def run(self, before: dict, at: dict[TopicPartition, int], *, commit: bool = True) -> None:
        """Run the tasks of the planned batch, each over one event, and let who follows take its rows."""
        config = self.driver.options.axes[""].config
        end = QueryOffset.from_json(self.driver.offset)
        ends_ms = {}
        for split in Planner(self.driver.options).splits(before, json.loads(json.dumps(self.driver.offset))):
            for task in split.ranges:
                start = task.axes.get(0, AxisState())
                run = AxisRun(config, start, split.now_ms)
                run.rows(np.array([at[task.channel]]), None)
                if task.parts == 1 and run.end() is not None:
                    ends_ms[task.channel] = run.state().emitted_ms
                if commit:
                    self._commit(end, task, run.state())
        self.rows = self.followed.follow(before, ends_ms)

    def _commit(self, end: QueryOffset, task: ChannelRange, state: AxisState) -> None:
        group = part_group(end.group, task.part, task.parts)
        place = state_place(group, task.channel, task.end, self.driver.options.settings, task.resets)
        committed = CommittedState(end.batch, Counts(), {0: state})
        text = encode_committed(committed, bytes.fromhex(end.state_key), place)
        self.driver.cluster.committed.setdefault(group, {})[task.channel] = Committed(task.end, text)

    @property
    def told_ms(self) -> int | None:
        return self.followed.inbox.watermark_ms


@pytest.mark.parametrize(("before", "after"), list(itertools.permutations(POLICIES, 2)))
@pytest.mark.parametrize("is_committed", [True, False], ids=["in the offset log", "in kafka"])
def test_each_policy_goes_on_from_the_last_watermark_of_every_other(before, after, is_committed, monkeypatch):
    chain = Chain(monkeypatch, options(before))
    chain.batch(at={A: 5_000, B: 6_000})
    chain.driver.clock += 10
    if is_committed:
        chain.batch()
        chain.batch(at={B: 7_000})
        chain.batch()
    floor_ms = chain.told_ms
    emitted_ms = {tp: channel.axes.get(0, AxisState()).emitted_ms for tp, channel in _channels(chain).items()}
    chain.driver.options = options(after)
    for step in range(4):
        chain.driver.clock += 3_000
        chain.batch(at={A: 4_000 + 3_000 * step, B: 4_500 + 3_000 * step} if step % 2 else None)
        assert floor_ms is None or chain.told_ms >= floor_ms
        floor_ms = chain.told_ms
    for tp, channel in _channels(chain).items():
        now_ms = channel.axes.get(0, AxisState()).emitted_ms
        assert emitted_ms[tp] is None or now_ms >= emitted_ms[tp]
    if after == "fixedLag":
        chain.batch()
        assert chain.told_ms >= 13_000 - 50


def _channels(chain: Chain) -> dict:
    return QueryOffset.from_json(chain.driver.offset).channels


@pytest.mark.parametrize(("before", "after"), list(itertools.permutations(POLICIES, 2)))
def test_a_batch_of_the_old_policy_is_read_again_by_the_new_one(before, after, monkeypatch):
    chain = Chain(monkeypatch, options(before))
    chain.batch(at={A: 5_000, B: 6_000})
    chain.batch()
    chain.driver.cluster.logs[A] = Log.of(2)
    start = chain.driver.offset
    assert chain.driver.plan()  # and killed before any task ran
    chain.driver.options = options(after)
    planned = json.loads(json.dumps(chain.driver.offset))
    splits_read = [_plain(Planner(chain.driver.options).splits(start, planned)) for _ in range(2)]
    assert splits_read[0] == splits_read[1]
    chain.run(start, {A: 5_500}, commit=False)
    assert chain.told_ms is None or chain.told_ms >= 0


def _plain(splits: list) -> str:
    return repr([(split.ranges, split.control, split.stamps) for split in splits])


class ReadAgain:
    """A recovery read that finds every record, and a lower watermark by the new policy."""

    def __init__(self, _cluster, ranges, _options, _end):
        self._ranges = ranges

    def advance(self, _until_s):
        return True

    def results(self):
        axes = {0: AxisState((3_000, 10**9), 3_000)}
        return {task.channel: RangeResult(next_offset=task.end, counts=Counts(), axes=axes) for task in self._ranges}


def test_a_state_of_the_old_policy_that_is_gone_is_a_reset_as_what_it_told_is_not_known(monkeypatch):
    chain = Chain(monkeypatch, options("fixedLag"))
    chain.batch(at={A: 5_000, B: 6_000})
    chain.driver.options = options("lagAndLull")
    chain.driver.cluster.committed.clear()
    monkeypatch.setattr(recover_state, "Recovery", ReadAgain)
    assert chain.batch()
    assert reset_rows(chain.rows) == ["t-0", "t-1"]
    assert chain.batch(at={A: 4_000, B: 4_000})  # below what the old policy has told: the sink takes it
    assert not reset_rows(chain.rows)


def test_states_of_parts_that_the_old_policy_left_are_read_again(monkeypatch):
    chain = Chain(monkeypatch, options("fixedLag", minPartitions="4"))
    chain.batch(at={A: 5_000, B: 6_000})
    chain.driver.cluster.logs[A] = Log.of(4)
    start = chain.driver.offset
    assert chain.driver.plan()
    chain.run(start, {A: 7_000})
    chain.followed.lose_all(monkeypatch)
    chain.driver.options = options("lagAndDelay", minPartitions="4")
    assert chain.batch()
    assert reset_rows(chain.rows) == ["t-0"]


def test_another_lag_another_unit_and_another_place_go_on_likewise(monkeypatch):
    chain = Chain(monkeypatch, options("lagAndLull"))
    chain.batch(at={A: 5_000, B: 6_000})
    chain.batch()
    floor_ms = chain.told_ms
    placed = {"eventTime": "json:$.t"}
    for more in ({"watermarkLag": "1 hour"}, placed, {**placed, "eventTimeUnit": "s"}):
        chain.driver.options = options("lagAndLull", **more)
        chain.batch(at={A: 100})
        chain.batch()
        assert chain.told_ms >= floor_ms
        floor_ms = chain.told_ms


def test_an_axis_that_is_gone_and_one_that_is_new_stop_nobody(monkeypatch):
    chain = Chain(monkeypatch, options("realTimeLag"))
    chain.batch(at={A: 5_000, B: 6_000})
    chain.driver.clock += 5_000
    assert chain.batch()
    assert any(row.kind is ControlKind.WATERMARK for row in chain.rows)
    chain.driver.options = SourceOptions.parse({**BASE, "watermarks": '{"made": {"key": 3, "eventTime": "json:$.m"}}'})
    planned = json.loads(json.dumps(chain.driver.offset))
    assert Planner(chain.driver.options).splits(planned, planned)
    chain.driver.restart()
    chain.driver.cluster.logs[A] = Log.of(9)
    assert set(chain.driver.plan().channels[A].axes) <= {3}


def test_what_cannot_be_continued_is_named_by_its_option(monkeypatch):
    chain = Chain(monkeypatch, options("fixedLag"))
    chain.batch(at={A: 5_000, B: 6_000})
    chain.batch()
    chain.driver.options = SourceOptions.parse({**BASE, "propagate": "true"})
    chain.driver.restart()
    with pytest.raises(OptionError, match="option propagate: the checkpoint holds the state of a watermark policy"):
        chain.driver.plan()


@pytest.mark.parametrize("after", POLICIES)
def test_a_savepoint_of_another_policy_is_continued_likewise(after, monkeypatch):
    chain = Chain(monkeypatch, options("lagAndLull"))
    chain.batch(at={A: 5_000, B: 6_000})
    stopped = QueryOffset.from_json(chain.driver.offset)
    monkeypatch.setattr(planner_module, "continued", lambda _place, _topics: stopped)
    settings = {**BASE, **LOOSE, "watermarkPolicy": after, **POLICIES[after], "continueFrom": "/savepoint"}
    del settings["startingOffsets"]
    chain.driver.options = SourceOptions.parse(settings)
    chain.driver.restart()
    assert chain.driver.planner.initial("cd" * 16) == stopped
    planned = chain.driver.plan()
    assert {tp: channel.axes[0].emitted_ms >= 5_000 for tp, channel in planned.channels.items()} == {A: True, B: True}
    assert planned.group == "keyedwm-" + "cd" * 16
