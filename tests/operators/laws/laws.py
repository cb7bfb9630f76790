"""The laws of operators over kept messages, each played for one seed; tests and the command choose the seeds."""

from __future__ import annotations

import random

from keyedwm.operators.messages.windows import CompletedBy
from tests.operators.laws.kinds import Kind, steps
from tests.operators.laws.played import Blobs, Played
from tests.operators.stored import Message, cut, plan_of, random_messages


def follows_the_model(kind: Kind, window: object, full: CompletedBy, seed: int) -> int:
    """Panes, rejected messages, what is held and listed, timers and counts are those of the scalar model.

    The operator is built anew after each step, in two of three seeds; return how many panes there were.
    """
    plan = kind.plan(seed, window, full)
    model, played = kind.model(plan), Played(plan, always=seed % 3 != 2)
    in_order = list if model.is_ordered else lambda panes: sorted(panes, key=str)
    given = steps(f"{kind.name} {seed}", 25 + seed % 30, has_clock=plan.by_clock)
    for name, what, now_ms in given:
        begin = len(model.made)
        model.play(name, what, now_ms)
        found = played.play((name, what, now_ms))
        assert in_order(found) == in_order([pane[-7:] for pane in model.made[begin:]])
        held = played.holding()
        assert held == model.holding()
        played.adds_up(len(held))
        assert in_order(played.listed()) == in_order(model.listed())
        assert played.operator.next_timeout_ms == model.next_timeout()
    counts = played.operator.counts
    assert counts.given == sum(len(what) for name, what, _ in given if name == "add_message")
    assert (counts.rejected, counts.dropped_messages) == (len(model.rejected), model.dropped)
    if random.Random(seed).random() < 0.5:
        begin = len(model.made)
        model.finish()
        assert in_order(played.step("finish")) == in_order([pane[-7:] for pane in model.made[begin:]])
        assert played.holding() == []
    assert sorted(played.rejected, key=str) == sorted(model.rejected, key=str)
    return len(model.made)


def is_not_changed_by_the_cut(kind: Kind, window: object, full: CompletedBy, seed: int) -> int:
    """The last pane of each window and the rejected messages are those of any other cut, and of other tasks.

    Messages between two watermarks are cut in any way, and mixed in any order that keeps that of each channel, where
    the watermark completes windows. Return how many windows there were.
    """
    plan = plan_of(window, full=full, retention=kind.retention)
    messages, made = random_messages(f"cuts {seed}", 60, span=50), []
    for again in range(2):
        played, before = Played(plan, always=again % 2 == 0), 0
        for border in range(20, 61, 20):
            block = messages[before:border]
            if full is CompletedBy.WATERMARK:
                block = mixed(again, block)
            for _, piece in cut(f"{seed} {again}", block, watermarks=False):
                played.play(("add_message", piece, 0))
            played.play(("watermark", border - 18, 0))
            before = border
        played.step("finish")
        made.append((last_panes(kind, played.made), sorted(played.rejected, key=str)))
    assert made == made[:1] * 2
    return len(made[0][0])


def knows_replays(kind: Kind, window: object, full: CompletedBy, seed: int) -> int:
    """A record that comes again, whenever it does, changes nothing but the count of replays; return how many came."""
    plan = kind.plan(seed, window, full)
    rng, seen, again = random.Random(f"replays {seed}"), [], 0
    once, twice = Played(plan), Played(plan)
    for name, what, now_ms in steps(f"replays {kind.name} {seed}", 40, has_clock=plan.by_clock):
        assert once.play((name, what, now_ms)) == twice.play((name, what, now_ms))
        if name == "add_message":
            seen += what
            before = twice.operator.counts.replayed
            some = rng.sample(seen, rng.randrange(len(seen)) + 1)
            assert twice.play(("add_message", some, now_ms)) == []
            assert twice.operator.counts.replayed - before == len(some)
            again += len(some)
    assert (twice.holding(), twice.listed(), twice.rejected) == (once.holding(), once.listed(), once.rejected)
    assert twice.operator.next_offsets() == once.operator.next_offsets()
    return again


def is_listed_by_its_blobs(kind: Kind, window: object, full: CompletedBy, seed: int) -> int:
    """Blobs alone tell what the operator lists and holds, after each step; return how many windows they told of."""
    plan = kind.plan(seed, window, full)
    played, told = Played(plan), 0
    for step in steps(f"blobs {kind.name} {seed}", 40, has_clock=plan.by_clock):
        played.play(step)
        blobs = Blobs(plan, played.store)
        wanted = [tuple(one.values()) for one in played.operator.get_windows(-(10**6), 10**6).to_pylist()]
        assert sorted(blobs.listed()) == sorted(wanted)
        held = played.holding()
        assert sorted(blobs.holding(), key=str) == sorted(held, key=str)
        summary = blobs.summary()
        assert (summary.rows, summary.size_bytes) == (len(held), sum(played.store.sizes.values()))
        listed = played.listed()
        windows = {(k if kind.by_key else "", end, channel if kind.by_channel else ())
                   for k, _, end, *channel_and_more in listed for channel in [tuple(channel_and_more[:2])]}  # fmt: skip
        starts = [] if kind.by_channel else [start for _, start, *_ in listed]
        assert (summary.frames, summary.oldest_ms) == (len(windows), min(starts, default=None))
        told += len(wanted)
    return told


def last_panes(kind: Kind, made: list[tuple]) -> dict[tuple, tuple]:
    """What is said last: of each window, or where windows join, of each message."""
    if kind.joins:
        return {(one,): pane[:4] for pane in made for one in pane[3].split()}
    if kind.by_channel:
        return {(*pane[:3], pane[3].split(":")[0]): pane[:4] for pane in made}
    return {pane[:3]: pane[:4] for pane in made}


def mixed(seed: object, messages: list[Message]) -> list[Message]:
    """The same messages, each channel in order, the channels mixed anew."""
    rng = random.Random(f"mixed {seed}")
    by_channel: dict[tuple, list[Message]] = {}
    for one in messages:
        by_channel.setdefault(one[3:5], []).append(one)
    found = []
    while by_channel:
        channel = rng.choice(sorted(by_channel))
        found.append(by_channel[channel].pop(0))
        if not by_channel[channel]:
            del by_channel[channel]
    return found


LAWS = (follows_the_model, is_not_changed_by_the_cut, knows_replays, is_listed_by_its_blobs)
