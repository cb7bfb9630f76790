"""State of windows with a store that moves to another query: results are those of the query that stayed."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from keyedwm.core.errors import OptionError
from keyedwm.operators.frames.plan import SessionWindow
from keyedwm.operators.messages.bucket_store import BucketStore
from keyedwm.operators.messages.windows import HoppingWindow, KeyRowWindow, tumbling_rows
from keyedwm.operators.state.manifest import MANIFEST
from keyedwm.operators.state.rescale_pieces import SameBuckets
from keyedwm.operators.state.store import MemoryStore
from keyedwm.spark.hosting.bucket_batch import BucketLayout
from keyedwm.spark.hosting.rescale_state import RescaledState
from tests.operators.moving import pieces
from tests.operators.stored import KEEP_ALL, random_messages
from tests.operators.test_store_buckets import Buckets, bucket_store

BUCKETS = 3
WINDOWS = (HoppingWindow(10, 3), SessionWindow(8), tumbling_rows(7), KeyRowWindow(4, 2))


def rescale_of(old: Buckets, plan: BucketStore, buckets: int = BUCKETS) -> SameBuckets:
    stores = [store for _, store in old.state.values()]
    return SameBuckets(
        who="aggregate new", plan=plan, count=buckets, digest=old.plan.digest(), description=None,
        states=tuple(json.loads(store.get(MANIFEST)) for store in stores),
        blobs=tuple(tuple(store.blobs.keys() - {MANIFEST}) for store in stores),
    )  # fmt: skip


def move(old: Buckets, plan: BucketStore) -> Buckets:
    """Return buckets of another query, which begin with the state of these."""
    new = Buckets(plan, BUCKETS)
    layout = BucketLayout("new", tuple(old.state), ((0,),))
    begin = RescaledState(rescale=rescale_of(old, plan), name="old", manifests=(), follows={})
    state_pieces = pieces(begin, layout, [store.blobs for _, store in old.state.values()])
    for number, (bucket, (manifest, _)) in enumerate(old.state.items()):
        own = [piece for piece in state_pieces if piece.bucket == bucket]
        blobs = {piece.name: piece.blob for piece in own}
        new.state[bucket] = manifest, MemoryStore(blobs | {MANIFEST: begin.manifest_with(None, own, number)})
    new._snapshot = old._snapshot
    return new


@pytest.mark.parametrize("window", WINDOWS, ids=str)
def test_a_store_that_moved_to_as_many_buckets_continues_as_one_that_stayed(window, seed):
    plan, messages = bucket_store(window), random_messages(seed, 120)
    stayed, moving_buckets = Buckets(plan, BUCKETS), Buckets(plan, BUCKETS)
    for at in range(0, 60, 20):
        assert moving_buckets.batch(messages[at : at + 20], at // 3) == stayed.batch(messages[at : at + 20], at // 3)
    moved_buckets = move(
        moving_buckets, replace(plan, plan=replace(plan.plan, retention=replace(KEEP_ALL, max_messages=10**8)))
    )
    later = [buckets.batch(messages[60:], 10**6) for buckets in (moved_buckets, stayed)]
    assert later[0] == later[1]
    assert later[0][0]
    assert moved_buckets.counts() == stayed.counts()


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"buckets": 2}, "its state of 3 buckets goes to as many buckets only: give buckets=3"),
        ({"plan": bucket_store(HoppingWindow(10, 10))}, "the state belongs to another window store"),
    ],
)
def test_a_store_moves_to_no_other_number_of_buckets_and_to_no_other_plan(change, sentence):
    old = Buckets(bucket_store(HoppingWindow(10, 3)), BUCKETS)
    old.batch(random_messages("a seed", 10))
    with pytest.raises(OptionError, match=sentence):
        rescale_of(old, **{"plan": old.plan, **change})
