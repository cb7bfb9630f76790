"""State that is not as it was written is refused in one sentence, whoever reads it: there is never another result."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import combinations
from typing import NamedTuple

import pyarrow as pa
import pytest

from conformance.driver import DrivenOperator
from keyedwm.core.errors import DamagedError
from keyedwm.operators.frames.partials import combine_rows
from keyedwm.operators.frames.plan import SessionWindow, SlidingWindow
from keyedwm.operators.join.bounds import Bound
from keyedwm.operators.join.plan import How
from keyedwm.operators.join.side_buffer import MATCHED
from keyedwm.operators.messages.windows import KeyRowWindow, session_rows, tumbling_rows
from keyedwm.operators.panes import Early
from keyedwm.operators.state import blobs as stored_blobs
from keyedwm.operators.state.blobs import packed, read_stored, stored
from keyedwm.operators.state.manifest import MANIFEST, content_of
from keyedwm.operators.state.store import MemoryStore, TableLogs
from keyedwm.spark.hosting.bucket_state import SparkStore
from keyedwm.windows import WindowJoin, WindowOperator
from tests.operators import joins, session_joins, streams, test_process, test_running
from tests.operators import stored as kept
from tests.operators.test_join_latest import latest_plan

FLIPS, MOST_PAIRS = 16, 40
Blobs = dict[str, bytes]


class Kind(NamedTuple):
    """State that some batches left, and all that a later program makes of it."""

    blobs: Blobs
    answer: Callable[[Blobs], str]


def window(seed, shape, **how) -> Kind:
    plan = streams.plan_of(shape, **how)
    operator = DrivenOperator(plan)
    events = streams.events(seed, 60)
    for at in range(0, 60, 6):
        operator.take(combine_rows(plan, streams.table(events[at : at + 6])), 0)
        operator.changed()
    return Kind(
        operator.snapshot(),
        lambda blobs: str(streams.rows_of(DrivenOperator(plan, blobs).complete())),
    )


def store(seed, shape) -> Kind:
    plan, memory_store = kept.plan_of(shape), MemoryStore()
    operator = WindowOperator(plan, memory_store)
    messages = kept.random_messages(seed, 60)
    for at in range(0, len(messages), 6):
        operator.add_message(kept.table(messages[at : at + 6]))
        operator.flush()
    more = [kept.Message(key, 1, 150, "a", 0, 10**6 + at) for at, key in enumerate("xyxyxy")]

    def answer(blobs: Blobs) -> str:
        later = WindowOperator(plan, MemoryStore(dict(blobs)))
        later.add_message(kept.table(more))
        later.finish()
        return f"{later.flush().to_pylist()} {later.get_messages(-(10**6), 10**7).to_pylist()}"

    return Kind(dict(memory_store.blobs), answer)


def join(seed, **how) -> Kind:
    return of_join(joins.plan_of([Bound(0, 0, -20, 20)], how=How.FULL, **how), seed)


def join_latest(seed) -> Kind:
    return of_join(latest_plan(), seed)


def of_join(plan, seed) -> Kind:
    join = joins.DrivenJoin(plan, restarts=True)
    rng = random.Random(seed)
    for side in (0, 1, 0, 1, 0, 1, 0, 1):
        join.step(joins.Rows(side, tuple(joins._row(rng, plan, side, 10) for _ in range(6))))

    def answer(blobs: Blobs) -> str:
        later = joins.DrivenJoin(plan)
        later.store.blobs.update(blobs)
        later.operator = later._built()
        return str(later.end())

    return Kind(dict(join.store.blobs), answer)


def running(seed) -> Kind:
    plan = test_running.plan_of()
    player = test_running.RestartedRunning(plan)
    rows = test_running.rows_of(random.Random(seed), 60)
    for at in range(0, 60, 6):
        player.batch(rows[at : at + 6], rows[at][2] - 10_000)

    def answer(blobs: Blobs) -> str:
        later = test_running.RestartedRunning(plan)
        later.blobs, later.watermark_ms = dict(blobs), player.watermark_ms
        return str(later.batch([("a", 1.0, 40_000, 0, 10**6)], 50_000))

    return Kind(dict(player.blobs), answer)


def session_join(seed) -> Kind:
    plan, memory_store = session_joins.join_plan(SessionWindow(8), how=How.FULL), MemoryStore()
    joined = WindowJoin(plan, memory_store)
    for name, number, argument in session_joins.steps_of(seed, 40):
        joined.add_message("left" if number == 0 else "right", kept.table(argument)) if name == "add_message" else None
        joined.flush()

    def answer(blobs: Blobs) -> str:
        later = WindowJoin(plan, MemoryStore(dict(blobs)))
        later.finish()
        return str(later.flush().to_pylist())

    return Kind(dict(memory_store.blobs), answer)


def processor(seed) -> Kind:
    plan = test_process.plan_of(test_process.Deduplicate)
    player, rng = test_process.Restarted(plan), random.Random(seed)
    rows = [(f"{rng.randrange(40)}", at, at) for at in range(60)]
    for at in range(0, 60, 6):
        player.batch(("on_rows", 0, test_process.table(rows[at : at + 6]), None))

    def answer(blobs: Blobs) -> str:
        later = test_process.Restarted(plan)
        later.blobs = dict(blobs)
        return str(later.batch(("on_rows", 0, test_process.table(rows), None)))

    return Kind(dict(player.blobs), answer)


KINDS = {
    "tumbling": lambda seed: window(seed, SlidingWindow(20, 20)),
    "sliding": lambda seed: window(seed, SlidingWindow(40, 10)),
    "panes": lambda seed: window(seed, SlidingWindow(40, 10), early=Early(rows=2), lateness_ms=9),
    "sessions": lambda seed: window(seed, SessionWindow(8)),
    "session panes": lambda seed: window(seed, SessionWindow(8), early=Early(rows=2)),
    "store": lambda seed: store(seed, SlidingWindow(20, 20)),
    "rows": lambda seed: store(seed, tumbling_rows(7)),
    "rows of keys": lambda seed: store(seed, KeyRowWindow(4, 2)),
    "sessions of messages": lambda seed: store(seed, SessionWindow(8)),
    "sessions by rows": lambda seed: store(seed, session_rows(4)),
    "join of sessions": session_join,
    "processor": processor,
    "join": join,
    "join_latest": join_latest,
    "running": running,
}


@pytest.fixture(params=KINDS, scope="module")
def kind(request, seed) -> Kind:
    return KINDS[request.param](f"{seed} {request.param}")


def is_rejected(kind: Kind, expected_answer: str, blobs: Blobs) -> bool:
    """Whether state is refused as damaged; if it is not, the answer is as ever."""
    try:
        answer = kind.answer(blobs)
    except DamagedError:
        return True
    assert answer == expected_answer
    return False


def test_a_changed_byte_is_refused_and_never_gives_another_result(kind, seed):
    expected_answer, rng = kind.answer(kind.blobs), random.Random(seed)
    rejected_count = 0
    for _ in range(FLIPS):
        name = rng.choice(sorted(kind.blobs))
        blob = bytearray(kind.blobs[name])
        blob[rng.randrange(len(blob))] ^= rng.randrange(1, 256)
        rejected_count += is_rejected(kind, expected_answer, kind.blobs | {name: bytes(blob)})
    assert rejected_count > FLIPS // 4


def test_a_blob_that_is_cut_off_is_refused(kind, seed):
    expected_answer, rng = kind.answer(kind.blobs), random.Random(seed)
    rejections = [
        is_rejected(kind, expected_answer, kind.blobs | {name: blob[: rng.randrange(len(blob) - 16)]})
        for name, blob in sorted(kind.blobs.items())
        if name != MANIFEST and len(blob) > 100
    ]
    assert any(rejections)


def test_a_blob_that_is_missing_is_refused(kind):
    expected_answer = kind.answer(kind.blobs)
    rejections = [
        is_rejected(kind, expected_answer, {name: blob for name, blob in kind.blobs.items() if name != missing_name})
        for missing_name in sorted(kind.blobs.keys() - {MANIFEST})
        if not missing_name.endswith(MATCHED)  # of which the bucket's note in Spark knows
    ]
    assert any(rejections)


def test_blobs_in_each_others_place_are_refused(kind, seed):
    expected_answer, names = kind.answer(kind.blobs), sorted(kind.blobs.keys() - {MANIFEST})
    pairs = list(combinations(names, 2))
    rejections = [
        is_rejected(kind, expected_answer, kind.blobs | {one: kind.blobs[other], other: kind.blobs[one]})
        for one, other in random.Random(seed).sample(pairs, min(len(pairs), MOST_PAIRS))
    ]
    assert any(rejections) or len(names) < 2


class BlobState(NamedTuple):
    """A map state of Spark."""

    blobs: Blobs

    def getValue(self, name):
        return (self.blobs[name[0]],) if name[0] in self.blobs else None


@pytest.mark.parametrize(
    ("blobs", "problem"), [({}, "is missing"), ({"left-1": b"abc"}, "has 3 bytes, 4 were written")]
)
def test_what_the_note_of_a_bucket_tells_of_must_be_in_the_state_of_spark(blobs, problem):
    with pytest.raises(DamagedError, match=f"the blob 'left-1' of the operator's state {problem}"):
        SparkStore(BlobState(blobs), {"left-1": 4}).get("left-1")


def test_blobs_of_0_2_0_which_have_no_checksum_are_read():
    table = pa.table({"n": [1, 2]})
    assert read_stored("frame-1", packed(table)).equals(table)
    assert stored_blobs.unsealed("left-1+matched", b"\x03") == b"\x03"


def test_a_part_that_is_missing_from_the_end_of_a_log_is_refused():
    kept_in, tables = MemoryStore(), [pa.table({"n": [at]}) for at in range(3)]
    logs = TableLogs(kept_in, manifest=MANIFEST, state={})
    logs.declare("frame-1", pa.concat_tables)
    for table in tables:
        logs.append("frame-1", table)
        kept_in.apply(logs.drain())
    del kept_in.blobs["frame-1+2"]
    with pytest.raises(DamagedError, match=r"'frame-1' .* holds 2 rows of 3: a part of it is missing"):
        TableLogs(kept_in, manifest=MANIFEST, state=logs.state()).read("frame-1")


def test_a_stored_blob_is_longer_by_its_checksum_alone():
    table = pa.table({"n": [1, 2]})
    assert len(stored("frame-1", table)) == len(packed(table)) + 8


def test_a_manifest_is_checked_by_a_reader_that_has_no_plan(seed):
    manifest_blob = window(seed, SlidingWindow(6_000, 6_000)).blobs[MANIFEST]
    assert content_of(manifest_blob)["version"] == 3
    other_version = manifest_blob.replace(b'"version": 3', b'"version": 2')
    for blob in (other_version, manifest_blob[:-1], b"[]"):
        with pytest.raises(DamagedError, match=MANIFEST):
            content_of(blob)
