"""State of a join that moves to other buckets: nothing is lost, nothing comes twice, and the rest is refused."""

from __future__ import annotations

import json
import pickle
import random
from dataclasses import replace

import pytest

from keyedwm.core.control_row import ControlRow, encode_rows
from keyedwm.core.errors import FormatError, OptionError
from keyedwm.core.rows import ControlKind
from keyedwm.operators.join.bounds import Bound
from keyedwm.operators.join.plan import LEFT, How, JoinPlan
from keyedwm.operators.join.side_buffer import MATCHED
from keyedwm.operators.state.manifest import MANIFEST
from keyedwm.operators.state.store import MemoryStore
from keyedwm.savepoint_files import Files, OperatorState, Savepoint, write_savepoint
from keyedwm.spark.hosting.rescale_state import RescaledState, rescaled
from keyedwm.spark.hosting.stage_one import CONTROL_TEXT
from tests.operators.joins import plan_of, random_plan, row_counts
from tests.operators.laws.small import SMALL
from tests.operators.moving import pieces
from tests.operators.test_join_latest import latest_plan
from tests.spark.test_join_batch import Pipeline, event, events, kinds, layout_of, told
from tests.spark.two_inputs import TwoInputs

SEEDS = 20
EACH = 5


def save_state(old: TwoInputs, place: str, **others: OperatorState) -> None:
    """What `savepoint` writes, but for the blobs, which Spark has."""
    operator = OperatorState(
        name=old.layout.name,
        axis=old.layout.axis,
        digest=old.plan.digest(),
        description=old.plan.description(),
        manifests=[json.loads(json.dumps(old.state[one][0].as_json())) for one in old.layout.ids],
        states=[json.loads(old.state[one][1].get(MANIFEST)) for one in old.layout.ids],
    )
    operators = {operator.name: operator, **others}
    write_savepoint(Files(place), Savepoint(place=place, checkpoint="c", batch=3, sources=[], operators=operators))


def gone_on(old: TwoInputs, place: str, buckets: int, name: str = "pairs") -> TwoInputs:
    """Another pipeline that begins with the state of this one, through the savepoint's file."""
    save_state(old, place)
    new = Pipeline(old.plan, buckets, name)
    begin = pickle.loads(pickle.dumps(rescaled(place, new.plan, new.layout)))  # noqa: S301  as Spark does
    state_pieces = pieces(begin, new.layout, [old.state[one][1].blobs for one in old.layout.ids])
    for one in new.layout.ids:
        begin_bucket(new, begin, one, [piece for piece in state_pieces if piece.bucket == one])
    return new


def begin_bucket(new: TwoInputs, begin: RescaledState, bucket: int, bucket_pieces: list) -> None:
    """Begin a bucket as Spark does, which may hand its pieces over in several turns, in any order."""
    blobs = {piece.name: piece.blob for piece in bucket_pieces}
    assert len(blobs) == len(bucket_pieces)
    number = new.layout.ids.index(bucket)
    whole = begin.manifest_with(None, bucket_pieces, number)
    assert (
        begin.manifest_with(begin.manifest_with(None, bucket_pieces[1::2], number), bucket_pieces[::2], number) == whole
    )
    blobs[MANIFEST] = whole
    note = begin.first_manifest(new.layout, bucket)
    note.blobs = {name: len(blob) for name, blob in blobs.items()}
    new.state[bucket] = note, MemoryStore(blobs, SMALL)


def side_rows(rng: random.Random, plan: JoinPlan, side: int, batch: int) -> list[dict]:
    """A batch of a side: rows about its time, some late, and its watermarks."""
    one = plan.sides[side]
    at_ms = 4 * batch + (5 if side == LEFT else 0)
    rows: list[dict] = []
    for _ in range(rng.randrange(0, 7)):
        times = {name: None if rng.random() < 0.03 else at_ms - rng.randrange(-4, 8) for name in one.times}
        keys = {"k": rng.choice([None, *"aabbcd"]), "n": rng.randrange(3)}
        rows.append({**keys, one.schema.names[2]: rng.choice([None, 1, 2, 3]), **times})
    channel = f"{'lr'[side]}-0"
    marks = [
        ControlRow(kind=ControlKind.WATERMARK, channel=channel, offset=9, key=axis.key, watermark_ms=at_ms - 6)
        for axis in one.axes
        if rng.random() < 0.8
    ]
    barrier = ControlRow(kind=ControlKind.BARRIER, channel=channel, offset=9, snapshot=batch, channels=1)
    return [*rows, *({CONTROL_TEXT: encode_rows([row])[1:-1]} for row in (*marks, barrier))]


def rows_of(result_rows: list[dict]) -> dict:
    names = [name for name in result_rows[0] if name != "control" and not name.startswith("watermark")]
    return row_counts({name: row[name] for name in names} for row in result_rows if row["control"] is None)


def watermarks(result_rows: list[dict]) -> set[tuple]:
    control_rows = [row["control"] for row in result_rows if row["control"] is not None]
    return {(one["kind"], one["key"], one["watermark"], one["snapshot"]) for one in control_rows}


def check(seed: int, place: str) -> int:
    """One random join, rescaled twice on its way; returns how many rows left afterwards."""
    rng = random.Random(seed)
    kinds = [How.LEFT, How.INNER]
    plan = random_plan(rng) if rng.random() < 0.7 else latest_plan(rng.choice(kinds), rng.choice([("k",), ("k", "n")]))
    first, second = sorted(rng.sample(range(1, 9), 2))
    still, moved_pipeline = (Pipeline(plan, 2 if plan.left.on else 1) for _ in range(2))
    row_count = 0
    for number in range(11):
        if number in {first, second}:
            buckets = rng.randrange(1, 5) if plan.left.on else 1
            moved_pipeline = gone_on(moved_pipeline, f"{place}/{number}", buckets, f"pairs {number}")
        batch = [side_rows(rng, plan, side, number) for side in (0, 1)]
        expected_rows, moved_rows = still.batch(*batch), moved_pipeline.batch(*batch)
        assert rows_of(moved_rows) == rows_of(expected_rows), f"seed {seed}, batch {number}"
        # New channels get the current watermarks. Each watermark of the other query is expected here, too.
        expected_watermarks = watermarks(expected_rows)
        assert expected_watermarks <= watermarks(moved_rows)
        if number not in {first, second}:
            assert watermarks(moved_rows) == expected_watermarks
        row_count += rows_of(expected_rows).total() if number >= first else 0
    return row_count


@pytest.mark.parametrize("start", range(0, SEEDS, EACH))
def test_results_are_those_of_a_join_that_was_not_moved(start, tmp_path):
    assert sum(check(seed, str(tmp_path / str(seed))) for seed in range(start, start + EACH)) > 20


def started_pipeline(plan: JoinPlan | None = None, buckets: int = 2) -> TwoInputs:
    """A join that holds rows of both sides, some of them matched."""
    pipeline = Pipeline(plan or plan_of([Bound(0, 0, 0, 10)], how=How.FULL), buckets)
    pipeline.batch([event(key, 20) for key in "abcdef"] + told("t-0", 0, 2), [event("a", 25), *told("u-0", 0, 2)])
    return pipeline


def test_rows_that_were_matched_are_not_shown_alone_after_the_move(tmp_path):
    new = gone_on(started_pipeline(), str(tmp_path / "target"), 3)
    assert sum(name.endswith(MATCHED) for _, store in new.state.values() for name in store.blobs) == 2
    result_rows = new.batch(told("t-0", 1, 99), told("u-0", 1, 99))
    assert events(result_rows) == {(key, 20, None): 1 for key in "bcdef"}


def test_what_has_left_stays_behind(tmp_path):
    old = Pipeline(plan_of([Bound(0, 0, 0, 10)]), 1)
    old.batch([*(event(key, 20) for key in "abcdef"), event("a", 50), *told("t-0", 0, 2)], told("u-0", 0, 2))
    old.batch([], told("u-0", 1, 31))
    assert held_count(old) == 7
    assert held_count(gone_on(old, str(tmp_path / "target"), 3)) == 1


def test_of_changes_at_one_time_the_one_after_the_move_counts(tmp_path):
    old = Pipeline(latest_plan(), 2)
    changes = [{"k": "a", "n": 1, "w": number, "__time0": 10} for number in range(4)]
    old.batch(told("t-0", 0, 2), [*changes[:3], *told("u-0", 0, 2)])
    new = gone_on(old, str(tmp_path / "target"), 3)
    result_rows = new.batch([event("a", 10), *told("t-0", 1)], [changes[3], *told("u-0", 1, 11)])
    assert [row["w"] for row in result_rows if row["control"] is None] == [3]


def held_count(pipeline: TwoInputs) -> int:
    """How many rows of the left side stand in slices."""
    return sum(one[1] for _, store in pipeline.state.values() for one in json.loads(store.get(MANIFEST))["left"])


@pytest.mark.parametrize(("name", "new"), [("pairs", 1), ("others", 3)])
def test_channels_that_are_new_tell_the_watermarks_that_stand(name, new, tmp_path):
    later = gone_on(started_pipeline(), str(tmp_path / "target"), 3, name)
    result_rows = later.batch(told("t-0", 1), told("u-0", 1))
    assert kinds(result_rows).count("watermark") == 2 * new


def test_another_join_is_refused_in_one_sentence(tmp_path):
    place, old = str(tmp_path / "target"), started_pipeline()
    save_state(old, place)
    with pytest.raises(OptionError, match=r"join pairs: continue_from .*: the state is that of another join \(on, how"):
        rescaled(place, replace(old.plan, how=How.INNER), old.layout)
    with pytest.raises(OptionError, match=r"join_latest rates: continue_from .* holds the state of no join_latest"):
        rescaled(place, latest_plan(), layout_of(latest_plan(), 2, "rates"))
    begin = rescaled(place, old.plan, old.layout)
    apart = [dict(facts, received={"0": number}) for number, facts in enumerate(begin.rescale.states)]
    with pytest.raises(FormatError, match="its buckets stand at different watermarks"):
        replace(begin.rescale, states=tuple(apart))
    newer = [dict(facts, version=3) for facts in begin.rescale.states]
    with pytest.raises(FormatError, match="its state is of version 3, this keyedwm reads 1, 2"):
        replace(begin.rescale, states=tuple(newer))


def test_a_join_that_another_operator_follows_keeps_its_name(tmp_path):
    place, old = str(tmp_path / "target"), started_pipeline()
    note = {"inbox": {"of_source": {"pairs": [["pairs#", [0, 1]]]}}, "snapshot": 3}
    follower = OperatorState(name="hours", axis=0, digest="d", description=None, manifests=[note], states=[{}])
    save_state(old, place, hours=follower)
    with pytest.raises(OptionError, match=r"aggregate hours follows its channels by name: give name='pairs'"):
        rescaled(place, old.plan, layout_of(old.plan, 2, "others"))
    assert rescaled(place, old.plan, layout_of(old.plan, 5, "pairs")).name == "pairs"
