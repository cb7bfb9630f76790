"""Cutting a batch into tasks: everything follows from the two offsets."""

from __future__ import annotations

import pickle
import pickletools
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from keyedwm.core.axis import AxisState, Counts, PropagatedState
from keyedwm.core.rows import ControlKind
from pyspark_wm_source.driver.splits import ControlSettings, splits
from pyspark_wm_source.options.source_options import LIMITS
from pyspark_wm_source.values.offsets import QueryOffset
from pyspark_wm_source.values.ranges import ChannelRange, Split
from tests.seeds import times
from tests.source.plans import Simulation, tp

ENOUGH = LIMITS.offsets_per_task


def splits_of(sim: Simulation, *, control: bool = True, barriers: bool = True) -> list[Split]:
    return splits(sim.starts[-1], sim.offset, ControlSettings(axes={"": 0}, control=control, barriers=barriers))


def known_rows(sim: Simulation) -> list[tuple]:
    return [(r.kind, r.channel, r.offset, r.watermark_ms) for split in splits_of(sim) for r in split.control]


def test_small_channels_share_a_task_and_large_ones_have_their_own():
    sizes = [ENOUGH, 3, 4, ENOUGH, 5]
    sim = Simulation({p: [1] * size for p, size in enumerate(sizes)})
    sim.step()
    assert [[r.channel.partition for r in split.ranges] for split in splits_of(sim)] == [[0], [1, 2, 3], [4]]


def cut(sizes: list[int], most_tasks: int | None) -> list[list[int]]:
    """The partitions of each task; a partition has as many records as `sizes` says."""
    sim = Simulation({p: [1] * size for p, size in enumerate(sizes)})
    sim.step()
    tasks = splits(
        sim.starts[-1],
        sim.offset,
        ControlSettings(axes={"": 0}, control=True, barriers=True),
        replace(LIMITS, most_tasks=most_tasks),
    )
    return [[one.channel.partition for one in split.ranges] for split in tasks]


def test_no_more_tasks_than_max_partitions_read_shares_of_nearly_equal_size():
    sizes = [ENOUGH, 3 * ENOUGH, ENOUGH, 2 * ENOUGH]
    assert cut(sizes, None) == cut(sizes, 4) == [[0], [1], [2], [3]]
    assert cut(sizes, 2) == [[0, 3], [1, 2]]
    assert cut(sizes, 1) == [[0, 1, 2, 3]]


def test_small_channels_still_share_a_task_below_max_partitions():
    sizes = [ENOUGH, 3, 4, ENOUGH, 5]
    assert cut(sizes, 3) == cut(sizes, None)


@settings(max_examples=times(20))
@given(st.lists(st.sampled_from([0, 1, ENOUGH, 3 * ENOUGH]), min_size=1, max_size=8), st.integers(1, 9))
def test_max_partitions_loses_and_doubles_no_channel(sizes, most_tasks):
    tasks = cut(sizes, most_tasks)
    assert sorted(partition for task in tasks for partition in task) == [p for p, size in enumerate(sizes) if size]
    assert all(task == sorted(task) for task in tasks)
    assert len(tasks) <= max(most_tasks, 1)
    loads = [sum(sizes[partition] for partition in task) for task in tasks]
    if len(loads) == most_tasks:
        assert max(loads) - min(loads) <= max(sizes)


@settings(max_examples=times(20))
@given(st.lists(st.sampled_from([0, 1, 7, ENOUGH - 1, ENOUGH]), min_size=1, max_size=6))
def test_every_offset_is_read_by_exactly_one_task(sizes):
    sim = Simulation({p: [1] * size for p, size in enumerate(sizes)})
    sim.step()
    ranges = [r for split in splits_of(sim) for r in split.ranges]
    assert [(r.channel, r.start, r.end) for r in ranges] == [
        (tp(p), 0, size) for p, size in enumerate(sizes) if size
    ]  # fmt: skip


def test_a_batch_is_cut_the_same_way_from_the_log_alone():
    sim = Simulation({0: [1, 2], 1: [5], 2: []})
    while sim.step():
        before = pickle.dumps(splits_of(sim))
        sim.starts[-1] = QueryOffset.from_json(sim.starts[-1].to_json())
        sim.restart()
        assert pickle.dumps(splits_of(sim)) == before


def test_the_ranges_of_a_task_are_pickled_without_the_slow_way_of_dataclasses():
    """The driver pickles every range of a batch; a state set field by field took twice the time."""
    sim = Simulation({p: [1] for p in range(3)})
    while sim.step():
        if any(split.ranges for split in splits_of(sim)):
            (split,) = splits_of(sim)
            carried = pickle.dumps(split, protocol=pickle.HIGHEST_PROTOCOL)
            assert pickle.loads(carried) == split  # noqa: S301
            assert sum(code.name == "BUILD" for code, _, _ in pickletools.genops(carried)) == 1  # of the task itself
        sim.logs = {p: [*log, 7] if len(log) < 3 else log for p, log in sim.logs.items()}


def test_every_field_of_a_range_arrives_at_its_task():
    values = {name: number for number, name in enumerate(ChannelRange.__slots__)}
    counts = Counts(1, 2, 3, 4, bad_values=((2, 5),))
    axes = {3: AxisState(PropagatedState(1, 2, 3, idle=True), None)}
    one = ChannelRange(**{**values, "axes": axes, "counts": counts})
    assert pickle.loads(pickle.dumps(one)) == one  # noqa: S301


def test_channels_without_news_need_no_task_of_their_own():
    sim = Simulation({0: [1], 1: [], 2: []})
    sim.step()
    (split,) = splits_of(sim)
    assert [r.channel for r in split.ranges] == [tp(0)]
    assert [(r.kind, r.channel, r.channels) for r in split.control] == [
        (ControlKind.BARRIER, "t-1", 3), (ControlKind.BARRIER, "t-2", 3),
    ]  # fmt: skip
    assert split.channels == 3


def test_a_control_only_batch_is_one_task():
    sim = Simulation({0: [70]})
    sim.drain()
    (split,) = splits_of(sim)
    assert split.ranges == ()
    assert known_rows(sim) == [(ControlKind.WATERMARK, None, None, 70), (ControlKind.BARRIER, "t-0", 1, None)]


def test_without_control_rows_a_control_only_batch_has_no_task():
    sim = Simulation({0: [70]})
    sim.drain()
    assert splits_of(sim, control=False) == []


def test_barriers_can_be_left_out():
    sim = Simulation({0: [70]})
    sim.drain()
    assert [r.kind for split in splits_of(sim, barriers=False) for r in split.control] == [ControlKind.WATERMARK]


def test_an_idle_spell_is_told_once_channel_by_channel_and_as_a_whole():
    sim = Simulation({0: [100], 1: [10]})
    sim.drain()
    sim.now_ms = 5_000
    sim.step()
    assert known_rows(sim) == [
        (ControlKind.WATERMARK, None, None, 100), (ControlKind.IDLE, None, None, None),
        (ControlKind.IDLE, "t-0", 1, None), (ControlKind.BARRIER, "t-0", 1, None),
        (ControlKind.IDLE, "t-1", 1, None), (ControlKind.BARRIER, "t-1", 1, None),
    ]  # fmt: skip
    sim.logs[0].append(200)
    sim.step()
    assert known_rows(sim) == [(ControlKind.BARRIER, "t-1", 1, None)]
    assert [(r.channel, r.woken) for r in splits_of(sim)[0].ranges] == [(tp(0), True)]


def test_every_row_of_a_batch_is_stamped_with_the_watermark_it_was_planned_with():
    sim = Simulation({0: [100]})
    sim.step()
    assert [split.stamps for split in splits_of(sim)] == [{"": None}]
    sim.logs[0].append(200)
    sim.step()
    assert [split.stamps for split in splits_of(sim)] == [{"": 100}]


def test_a_batch_within_an_idle_spell_does_not_tell_it_again():
    sim = Simulation({0: [100], 1: [10]})
    sim.drain()
    sim.now_ms = 5_000
    sim.step()
    assert sim.step(ends={0: 1})  # partition 1 went away
    assert sim.offset.coalesced.idle_spell
    assert known_rows(sim) == [(ControlKind.BARRIER, "t-0", 1, None)]
