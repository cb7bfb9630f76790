"""The coalescer's laws, on random sequences: rules 1 to 6 and 13."""

from __future__ import annotations

from itertools import pairwise, permutations

from hypothesis import given, settings
from hypothesis import strategies as st

from conformance.models.single_steps import SingleSteps
from keyedwm.core.channel_encoding import decode_channels, encode_channels
from keyedwm.core.coalescer import (
    ChannelAdded,
    ChannelFinished,
    ChannelRemoved,
    ChannelWentIdle,
    ChannelWoken,
    WatermarkAdvanced,
)
from keyedwm.core.errors import KeyedwmError
from keyedwm.core.watermark import Guarantee, IdleMarker, Status, Watermark
from tests.seeds import times

NAMES = ["a", "b", "c", "d"]
channels = st.sampled_from(NAMES)
changes = st.one_of(
    st.builds(ChannelAdded, channels),
    st.builds(ChannelRemoved, channels),
    st.builds(WatermarkAdvanced, channels, st.integers(-1, 1), st.integers(-20, 60)),
    st.builds(WatermarkAdvanced, channels, st.just(0), st.integers(-20, 60)),
    st.builds(ChannelWoken, channels),
    st.builds(ChannelWentIdle, channels),
    st.builds(ChannelFinished, channels),
)
retentions = st.none() | st.integers(0, 9)
sequences = st.lists(st.tuples(st.integers(0, 5), st.lists(changes, max_size=3)), max_size=40)
OPTIONS = {"guarantee": Guarantee.AT_LEAST_ONCE}


class Brute:
    """The rules said again as plainly as can be: everything is worked out from the whole past at every step."""

    def __init__(self, retention_ms):
        self.retention_ms = retention_ms
        self.channels, self.tops, self.emitted, self.spell, self.past = {}, {}, {}, False, []

    def step(self, some, now_ms):
        for change in some:
            self.apply(change)
        self.past.append((now_ms, dict(self.tops)))
        active = [marks for status, marks in self.channels.values() if status is Status.ACTIVE]
        flush = not active and not self.spell
        output = []
        for key in sorted(self.tops):
            for value in [self.tops[key]] if flush else self.next_watermark(key, active, now_ms):
                if value > self.emitted.get(key, -(10**9)):
                    self.emitted[key] = value
                    output.append(Watermark(key, value))
        if flush:
            self.spell = True
            if not self.channels or any(status is Status.IDLE for status, _ in self.channels.values()):
                output.append(IdleMarker())
        return output

    def next_watermark(self, key, active, now_ms):
        values = []
        if active and all(key in marks for marks in active):
            values.append(min(marks[key] for marks in active))
        if active and self.retention_ms is not None:
            values += [tops[key] for at, tops in self.past if at <= now_ms - self.retention_ms and key in tops][-1:]
        return values

    def apply(self, change):
        kind, name = type(change), change.channel
        if kind is ChannelAdded:
            self.channels[name] = [Status.ACTIVE, {}]
            self.spell = False
        elif kind is ChannelRemoved:
            del self.channels[name]
        elif kind in (ChannelFinished, ChannelWentIdle):
            self.channels[name][0] = Status.DONE if kind is ChannelFinished else Status.IDLE
        elif self.channels[name][0] is not Status.DONE:
            self.channels[name][0], self.spell = Status.ACTIVE, False
            if kind is WatermarkAdvanced:
                marks = self.channels[name][1]
                marks[change.key] = max(change.time_ms, marks.get(change.key, change.time_ms))
                self.tops[change.key] = max(change.time_ms, self.tops.get(change.key, change.time_ms))


def legal(coalescer, change):
    """Whether a change may come now: tried on a copy."""
    try:
        SingleSteps.restore(coalescer.snapshot(), **OPTIONS).step([change], 0)
    except KeyedwmError:
        return False
    return True


def played(sequence, retention_ms, *, restore=False, encode=False):
    """Answers, final state, and the legal part of the sequence."""
    it = SingleSteps(retention_ms=retention_ms, **OPTIONS)
    now_ms, answers, fine_steps = 0, [], []
    for pause_ms, some in sequence:
        now_ms += pause_ms
        probe = SingleSteps.restore(it.snapshot(), retention_ms=retention_ms, **OPTIONS)
        fine = []
        for change in some:
            if legal(probe, change):
                fine.append(change)
                probe.step([change], now_ms)
        answers.append(it.step(fine, now_ms))
        fine_steps.append((now_ms, fine))
        if restore:
            state = it.snapshot()
            state = decode_channels(encode_channels(state)) if encode else state
            it = SingleSteps.restore(state, retention_ms=retention_ms, **OPTIONS)
    return answers, it.snapshot(), fine_steps


@given(sequences, retentions)
@settings(max_examples=times(50))
def test_the_coalescer_does_what_the_rules_say_worked_out_from_the_whole_past(sequence, retention_ms):
    answers, _, fine_steps = played(sequence, retention_ms)
    brute = Brute(retention_ms)
    assert answers == [brute.step(some, now_ms) for now_ms, some in fine_steps]


@given(sequences, retentions)
def test_the_output_of_every_key_strictly_increases(sequence, retention_ms):
    answers, _, _ = played(sequence, retention_ms)
    for key in (-1, 0, 1):
        times = [out.time_ms for answer in answers for out in answer if out != IdleMarker() and out.key == key]
        assert times == sorted(set(times))


@given(sequences)
def test_the_output_is_never_above_the_lowest_active_channel(sequence):
    it = SingleSteps(**OPTIONS)
    for _, fine_step in played(sequence, None)[2]:
        for output in it.step(fine_step, 0):
            if isinstance(output, Watermark):
                active = [marks for status, marks in it.snapshot().channels.values() if status is Status.ACTIVE]
                assert all(output.time_ms <= marks[output.key] for marks in active)


@given(sequences, retentions, st.booleans())
def test_a_restore_after_every_step_is_invisible(sequence, retention_ms, encode):
    plain, state, _ = played(sequence, retention_ms)
    restored, again, _ = played(sequence, retention_ms, restore=True, encode=encode)
    assert restored == plain
    assert again == state


@given(
    st.permutations(
        [
            WatermarkAdvanced("a", 0, 5),
            WatermarkAdvanced("b", 0, 8),
            WatermarkAdvanced("c", 1, 3),
            ChannelWoken("d"),
            ChannelWentIdle("b"),
        ]
    )
)
def test_the_order_of_changes_to_different_channels_does_not_matter_within_a_step(order):
    # b's watermark comes before it goes idle: those two are one channel's and keep their order.
    ordered = [change for change in order if change.channel != "b"]
    ordered[2:2] = [WatermarkAdvanced("b", 0, 8), ChannelWentIdle("b")]
    it = SingleSteps()
    it.step([ChannelAdded(name) for name in NAMES], 0)
    output = it.step(ordered, 0)
    same = SingleSteps()
    same.step([ChannelAdded(name) for name in NAMES], 0)
    assert output == same.step(
        [
            WatermarkAdvanced("b", 0, 8),
            ChannelWentIdle("b"),
            WatermarkAdvanced("a", 0, 5),
            WatermarkAdvanced("c", 1, 3),
            ChannelWoken("d"),
        ],
        0,
    )
    assert it.snapshot() == same.snapshot()


@given(st.lists(st.tuples(channels, st.integers(0, 50)), max_size=20), st.randoms(use_true_random=False))
def test_the_order_of_steps_on_different_channels_does_not_matter_in_the_end(pairs, random):
    highest = {}
    per_channel = {name: [] for name in NAMES}
    for name, time_ms in pairs:
        if time_ms > highest.get(name, -1):
            highest[name] = time_ms
            per_channel[name].append(WatermarkAdvanced(name, 0, time_ms))
    ends = set()
    for _ in range(4):
        queues = {name: list(steps) for name, steps in per_channel.items()}
        it = SingleSteps()
        it.step([ChannelAdded(name) for name in NAMES], 0)
        while any(queues.values()):
            name = random.choice([name for name in NAMES if queues[name]])
            it.step([queues[name].pop(0)], 0)
        ends.add(it.emitted_ms())
    assert len(ends) == 1


@given(st.dictionaries(channels, st.integers(-5, 5), max_size=4), st.sets(channels))
def test_the_order_of_going_idle_does_not_matter(watermarks, done):
    ends = set()
    for order in permutations(NAMES):
        it = SingleSteps()
        it.step([ChannelAdded(name) for name in NAMES], 0)
        for name, time_ms in watermarks.items():
            it.watermark(name, 0, time_ms)
        output = []
        for name in order:
            output += it.done(name) if name in done else it.idle(name)
        markers = [out for out in output if isinstance(out, IdleMarker)]
        assert markers == [IdleMarker()] * (len(done) < len(NAMES))
        assert output[-1:] == markers[-1:] or not markers
        ends.add(it.emitted_ms())
    assert ends == {max(watermarks.values(), default=None)}


@given(st.lists(st.tuples(channels, st.integers(0, 50)), max_size=20), st.sets(st.integers(0, 20)))
def test_cutting_watermarks_into_steps_any_way_ends_in_the_same_state(pairs, cuts):
    whole, parts = SingleSteps(**OPTIONS), SingleSteps(**OPTIONS)
    for it in (whole, parts):
        it.step([ChannelAdded(name) for name in NAMES], 0)
    advances = [WatermarkAdvanced(name, 0, time_ms) for name, time_ms in pairs]
    whole.step(advances, 0)
    edges = [0, *sorted(split_at for split_at in cuts if split_at < len(advances)), len(advances)]
    for start, end in pairwise(edges):
        parts.step(advances[start:end], 0)
    assert parts.snapshot() == whole.snapshot()
