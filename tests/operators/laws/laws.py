"""The laws of operators over kept messages, each played for one seed; tests and the command choose the seeds."""

from __future__ import annotations

import random

from keyedwm.operators.messages.windows import CompletedBy
from tests.operators.laws.kinds import Kind, steps
from tests.operators.laws.played import Blobs, PlayedOperator
from tests.operators.stored import Message, plan_of, random_messages, split_steps


def follows_the_model(kind: Kind, window: object, full: CompletedBy, seed: int) -> int:
    """Panes, rejected messages, what is held and listed, timers and counts are those of the scalar model.

    The operator is built anew after each step, in two of three seeds; return how many panes there were.
    """
    plan = kind.plan(seed, window, full)
    model, player = kind.model(plan), PlayedOperator(plan, always=seed % 3 != 2)
    in_order = list if model.is_ordered else lambda panes: sorted(panes, key=str)
    # More than ten partitions at times: numbers of two digits have another order as texts.
    channels = 15 if seed % 4 == 2 else 3
    clock_steps = steps(f"{kind.name} {seed}", 25 + seed % 30, has_clock=plan.by_clock, channels=channels)
    for name, argument, now_ms in clock_steps:
        begin = len(model.results)
        model.play(name, argument, now_ms)
        step_panes = player.play((name, argument, now_ms))
        assert in_order(step_panes) == in_order([pane[-7:] for pane in model.results[begin:]])
        held_messages = player.holding()
        assert held_messages == model.holding()
        player.adds_up(len(held_messages))
        assert in_order(player.listed_windows()) == in_order(model.listed_windows())
        assert player.operator.next_timeout_ms == model.next_timeout()
    counts = player.operator.counts
    assert counts.given == sum(len(argument) for name, argument, _ in clock_steps if name == "add_message")
    assert (counts.rejected, counts.dropped_messages) == (len(model.rejected), model.dropped_messages)
    if random.Random(seed).random() < 0.5:
        begin = len(model.results)
        model.finish()
        assert in_order(player.step("finish")) == in_order([pane[-7:] for pane in model.results[begin:]])
        assert player.holding() == []
    assert sorted(player.rejected, key=str) == sorted(model.rejected, key=str)
    return len(model.results)


def is_not_changed_by_the_cut(kind: Kind, window: object, full: CompletedBy, seed: int) -> int:
    """The last pane of each window and the rejected messages are those of any other cut, and of other tasks.

    Messages between two watermarks are cut in any way, and mixed in any order that keeps that of each channel, where
    the watermark completes windows. Return how many windows there were.
    """
    plan = plan_of(window, full=full, retention=kind.retention)
    messages, outcomes = random_messages(f"cuts {seed}", 60, span=50), []
    for again in range(2):
        player, before = PlayedOperator(plan, always=again % 2 == 0), 0
        for border in range(20, 61, 20):
            block = messages[before:border]
            if full is CompletedBy.WATERMARK:
                block = mixed(again, block)
            for _, piece in split_steps(f"{seed} {again}", block, watermarks=False):
                player.play(("add_message", piece, 0))
            player.play(("watermark", border - 18, 0))
            before = border
        player.step("finish")
        outcomes.append((last_panes(kind, player.results), sorted(player.rejected, key=str)))
    assert outcomes == outcomes[:1] * 2
    return len(outcomes[0][0])


def knows_replays(kind: Kind, window: object, full: CompletedBy, seed: int) -> int:
    """A record that comes again, whenever it does, changes nothing but the count of replays; return how many came."""
    plan = kind.plan(seed, window, full)
    rng, earlier_messages, again = random.Random(f"replays {seed}"), [], 0
    once, twice = PlayedOperator(plan), PlayedOperator(plan)
    for name, argument, now_ms in steps(f"replays {kind.name} {seed}", 40, has_clock=plan.by_clock):
        assert once.play((name, argument, now_ms)) == twice.play((name, argument, now_ms))
        if name == "add_message":
            earlier_messages += argument
            before = twice.operator.counts.replayed
            some = rng.sample(earlier_messages, rng.randrange(len(earlier_messages)) + 1)
            assert twice.play(("add_message", some, now_ms)) == []
            assert twice.operator.counts.replayed - before == len(some)
            again += len(some)
    assert (twice.holding(), twice.listed_windows(), twice.rejected) == (
        once.holding(),
        once.listed_windows(),
        once.rejected,
    )
    assert twice.operator.next_offsets() == once.operator.next_offsets()
    return again


def is_listed_by_its_blobs(kind: Kind, window: object, full: CompletedBy, seed: int) -> int:
    """Blobs alone tell what the operator lists and holds, after each step; return how many windows they told of."""
    plan = kind.plan(seed, window, full)
    player, listed_count = PlayedOperator(plan), 0
    for step in steps(f"blobs {kind.name} {seed}", 40, has_clock=plan.by_clock):
        player.play(step)
        blobs = Blobs(plan, player.store)
        expected_windows = [tuple(one.values()) for one in player.operator.get_windows(-(10**6), 10**6).to_pylist()]
        assert sorted(blobs.listed_windows()) == sorted(expected_windows)
        held_messages = player.holding()
        assert sorted(blobs.holding(), key=str) == sorted(held_messages, key=str)
        summary = blobs.summary()
        assert (summary.rows, summary.size_bytes) == (len(held_messages), sum(player.store.sizes.values()))
        listed_windows = player.listed_windows()
        windows = {
            (k if kind.by_key else "", end, tuple(channel_and_more[:2]) if kind.by_channel else ())
            for k, _, end, *channel_and_more in listed_windows
        }
        starts = [] if kind.by_channel else [start for _, start, *_ in listed_windows]
        assert (summary.frames, summary.oldest_ms) == (len(windows), min(starts, default=None))
        listed_count += len(expected_windows)
    return listed_count


def last_panes(kind: Kind, panes: list[tuple]) -> dict[tuple, tuple]:
    """What is said last: of each window, or where windows join, of each message."""
    if kind.joins:
        return {(one,): pane[:4] for pane in panes for one in pane[3].split()}
    if kind.by_channel:
        return {(*pane[:3], pane[3].split(":")[0]): pane[:4] for pane in panes}
    return {pane[:3]: pane[:4] for pane in panes}


def mixed(seed: object, messages: list[Message]) -> list[Message]:
    """The same messages, each channel in order, the channels mixed anew."""
    rng = random.Random(f"mixed {seed}")
    by_channel: dict[tuple, list[Message]] = {}
    for one in messages:
        by_channel.setdefault(one[3:5], []).append(one)
    mixed_messages = []
    while by_channel:
        channel = rng.choice(sorted(by_channel))
        mixed_messages.append(by_channel[channel].pop(0))
        if not by_channel[channel]:
            del by_channel[channel]
    return mixed_messages


LAWS = (follows_the_model, is_not_changed_by_the_cut, knows_replays, is_listed_by_its_blobs)
