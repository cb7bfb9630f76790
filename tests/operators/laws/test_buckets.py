"""The laws of operators over kept messages that compare them with their blobs alone, and with buckets."""

from __future__ import annotations

import json
from collections import Counter

from keyedwm.operators.messages.windows import CompletedBy, KeyRowWindow
from keyedwm.operators.state.manifest import MANIFEST
from tests.operators.laws import laws
from tests.operators.laws.cases import every_case, every_window, seed_of
from tests.operators.laws.kinds import Kind
from tests.operators.stored import SCHEMA, Message, Restarted, plan_of, random_messages, split_steps, table
from tests.operators.test_store_buckets import Buckets, bucket_store, joined, rising


@every_window
def test_blobs_alone_tell_what_the_operator_lists_and_holds(kind: Kind, window, full):
    seed = seed_of(kind, window, full)
    listed_count = laws.is_listed_by_its_blobs(kind, window, full, seed)
    assert listed_count > 5 or window == KeyRowWindow(1, 1)  # which is complete with each message


# The last messages of each channel: they end what few others end.
LAST = [Message("z", 9, 150, *channel, 10**6) for channel in (("a", 0), ("a", 1), ("b", 0))]


@every_case
def test_buckets_say_together_what_one_operator_says_whatever_the_tasks(kind: Kind, window, full: CompletedBy):
    messages = random_messages(f"buckets {window}", 60, span=70)
    steps = [*rising(split_steps(f"buckets {window}", messages, watermarks=True)), ("add_message", LAST)]
    settings = {"retention": kind.retention, "full": full}
    one_operator = Restarted(plan_of(window, **settings))
    for name, argument in steps:
        one_operator.step(name, table(argument) if name == "add_message" else argument)
    # A message completes windows of time for all keys of its bucket, so those are compared in one bucket and in order.
    buckets, tasks = (1, 1) if full is CompletedBy.MESSAGE and not kind.by_channel else (3, 2)
    seed = seed_of(kind, window, full)
    cut_so = joined(steps) if kind.by_channel and seed % 2 else steps  # not depending on the cut is a law of its own
    many = Buckets(bucket_store(window, **settings), buckets, tasks=tasks)
    panes, rejected = many.run(cut_so)
    assert Counter(panes) == Counter(one_operator.results)
    assert Counter(map(str, rejected)) == Counter(str((tuple(one), reason)) for one, reason in one_operator.rejected)
    notes = [json.loads(store.get(MANIFEST)) for _, store in many.state.values() if store.blobs]
    if one_operator.plan.kind.spread_by(("k",), SCHEMA.names[3:]) != ("k",):
        assert sum(len(note["channels"][0]) for note in notes) == len(LAST)  # a channel is whole in one bucket
    if kind.by_channel:
        assert {manifest.emitted_ms for manifest, _ in many.state.values()} == {
            max(watermark for name, watermark in cut_so if name == "watermark")
        }
    counts = many.counts()
    assert counts["given"] == len(messages) + len(LAST) == counts["taken"] + counts["rejected"] + counts["replayed"]
    assert len(one_operator.results) > 4
