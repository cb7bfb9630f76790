"""State of a processor that moves to other buckets: nothing is lost, nothing comes twice, and the rest is refused."""

from __future__ import annotations

import json
import pickle
from collections import Counter
from dataclasses import replace

import pyarrow as pa
import pytest

from keyedwm.core.control_row import ControlRow
from keyedwm.core.errors import InputError, OptionError
from keyedwm.core.rows import ControlKind
from keyedwm.operators.buckets import bucket_ids
from keyedwm.operators.frames.plan import SlidingWindow
from keyedwm.operators.process.plan import ProcessPlan
from keyedwm.operators.process.processor import Processor
from keyedwm.operators.state.blobs import unpacked
from keyedwm.operators.state.manifest import MANIFEST
from keyedwm.operators.state.store import MemoryStore
from keyedwm.savepoint_files import STATE, Files, OperatorState, Savepoint, write_savepoint
from keyedwm.spark.hosting.bucket_batch import BucketBatch, BucketLayout, BucketManifest
from keyedwm.spark.hosting.rescale_state import RescaledState, rescaled
from keyedwm.spark.hosting.stage_one import CONTROL_TEXT, StageOne
from tests.operators.moving import pieces
from tests.operators.test_move import plan_of as windows_of
from tests.operators.test_process import RESULT, SHOP, TWO, stretches, two_streams

SOURCES = ("orders", "refunds")


class Pipeline:
    """All buckets of a processor of two inputs; every batch begins from what the one before wrote down."""

    def __init__(self, plan: ProcessPlan, buckets: int, name: str = "both") -> None:
        self.plan = plan
        self.layout = BucketLayout(name, tuple(bucket_ids(buckets)), ((0,), (0,)), "process")
        self.state = {one: (BucketManifest(), MemoryStore()) for one in self.layout.ids}

    def batch(self, number: int, events) -> Counter:
        control = [control_rows(source, number, max(ms for _, (*_, ms) in events) - 80) for source in SOURCES]
        result_counts: Counter = Counter()
        for bucket in self.layout.ids:
            note, store = self.state[bucket]
            note = BucketManifest.from_json(json.loads(json.dumps(note.as_json())))
            now = BucketBatch(self.plan, self.layout, bucket, note, store)
            rows = [self._shipped(of, bucket, events) for of in (0, 1)]
            for frame in now.on_input(control=control, rows=rows, null_event_time_rows=0, now_ms=None):
                result_counts.update(map(repr, unpacked(frame["results"][0]).to_pylist()))
            changed_blobs, removed = now.drain()
            kept_blobs = {name: blob for name, blob in store.blobs.items() if name not in removed} | dict(changed_blobs)
            self.state[bucket] = now.manifest, MemoryStore(kept_blobs)
        return result_counts

    def _shipped(self, of: int, bucket: int, events) -> list[pa.Table]:
        input_rows = [(*event, event[2]) for number, event in events if number == of]
        columns = [list(column) for column in zip(*input_rows, strict=True)] or [[]] * 4
        columns[2] = [ms * 1_000 for ms in columns[2]]
        rows = pa.table(
            [pa.array(column, inner.type) for column, inner in zip(columns, SHOP, strict=True)], schema=SHOP
        )
        rows = rows.select(self.plan.inputs[of].schema.names)
        exchange_batches = rows.append_column(CONTROL_TEXT, pa.nulls(rows.num_rows, pa.string())).to_batches()
        shipped = [
            row
            for batch in StageOne({of: self.plan.inputs[of]}, self.layout.ids)(exchange_batches)
            for row in batch.to_pylist()
        ]
        return [unpacked(row["partials"]) for row in shipped if row["bucket"] == bucket]


def control_rows(source: str, snapshot: int, watermark_ms: int) -> list[ControlRow]:
    row = {"channel": f"{source}-0", "source": source}
    rows = [ControlRow(kind=ControlKind.BARRIER, snapshot=snapshot, channels=1, offset=9, **row)]
    return [ControlRow(kind=ControlKind.WATERMARK, key=0, watermark_ms=watermark_ms, offset=8, **row), *rows]


def save_state(old: Pipeline, place: str, **others: OperatorState) -> None:
    """What `savepoint` writes, but for the blobs, which Spark has."""
    notes = [json.loads(json.dumps(old.state[one][0].as_json())) for one in old.layout.ids]
    operator = OperatorState(
        name=old.layout.name,
        axis=old.layout.axis,
        digest=old.plan.digest(),
        description=old.plan.description(),
        manifests=notes,
        states=[json.loads(old.state[one][1].get(MANIFEST)) for one in old.layout.ids],
    )
    operators = {operator.name: operator, **others}
    write_savepoint(Files(place), Savepoint(place=place, checkpoint="c", batch=3, sources=[], operators=operators))


def gone_on(old: Pipeline, place: str, buckets: int, name: str = "both") -> Pipeline:
    """Another pipeline that begins with the state of this one, through the savepoint's file."""
    save_state(old, place)
    new = Pipeline(old.plan, buckets, name)
    begin = rescaled(place, new.plan, new.layout)
    state_pieces = pieces(begin, new.layout, [old.state[one][1].blobs for one in old.layout.ids])
    for number, one in enumerate(new.layout.ids):
        begin_bucket(begin, new, number, [piece for piece in state_pieces if piece.bucket == one])
    return new


def begin_bucket(begin: RescaledState, new: Pipeline, number: int, bucket_pieces: list) -> None:
    one = new.layout.ids[number]
    blobs = {piece.name: piece.blob for piece in bucket_pieces}
    assert len(blobs) == len(bucket_pieces)
    half = begin.manifest_with(
        begin.manifest_with(None, bucket_pieces[::2], number), bucket_pieces[1::2], number
    )  # Spark may cut it
    assert json.loads(half) == json.loads(begin.manifest_with(None, bucket_pieces, number))
    blobs[MANIFEST] = half
    note = begin.first_manifest(new.layout, one)
    note.blobs = {name: len(blob) for name, blob in blobs.items()}
    new.state[one] = note, MemoryStore(blobs)


def watermarks(pipeline: Pipeline) -> set[tuple]:
    notes = [json.loads(store.get(MANIFEST)) for _, store in pipeline.state.values()]
    return {(note["watermark_ms"], *note["watermarks_ms"]) for note in notes}


@pytest.mark.parametrize("buckets", [(2, 2, 2), (2, 3, 1), (1, 4, 2)])
def test_results_are_those_of_a_processor_that_was_not_moved(buckets, seed, tmp_path):
    events = two_streams(seed)[:400]
    still, moving_pipeline = Pipeline(stretches(), buckets[0]), Pipeline(stretches(), buckets[0])
    row_count = 0
    for number, at in enumerate(range(0, 400, 40)):
        if number in {3, 6}:
            before = watermarks(moving_pipeline)
            moving_pipeline = gone_on(
                moving_pipeline, str(tmp_path / str(number)), buckets[number // 3], f"name {number}"
            )
            assert watermarks(moving_pipeline) == before
        expected_rows = still.batch(number, events[at : at + 40])
        assert moving_pipeline.batch(number, events[at : at + 40]) == expected_rows
        row_count += expected_rows.total()
    assert row_count > 100
    rows = sum(
        json.loads(moving_pipeline.state[one][1].get(MANIFEST))["rows"]["open"] for one in moving_pipeline.layout.ids
    )
    assert rows == 6


class Counting(Processor):
    """Keeps a count of its own, and a log without keys."""

    def on_rows(self, input_number, rows):  # noqa: ARG002
        self.state.facts["rows"] = self.state.facts.get("rows", 0) + rows.num_rows
        return ()

    def output_watermark_ms(self, watermark_ms):
        return watermark_ms - self.state.facts.get("rows", 0)


class Widened(Processor):
    """A log with keys whose columns are those of the program's version."""

    columns = ("shop",)

    def on_rows(self, input_number, rows):  # noqa: ARG002
        self.state.append("log", rows.select(list(self.columns)))
        return ()


class Keyless(Processor):
    """A log in which nobody stands."""

    def on_rows(self, input_number, rows):  # noqa: ARG002
        self.state.append("times", rows.select(["event_time"]))
        return ()


def started_pipeline(make: type) -> Pipeline:
    pipeline = Pipeline(ProcessPlan(inputs=TWO, make=make, result=RESULT, called=make.__name__, version=1), 2)
    pipeline.batch(0, two_streams(1)[:41])
    return pipeline


def test_what_stands_in_no_keys_table_goes_to_as_many_buckets_and_to_no_others(tmp_path):
    for number, (make, sentence) in enumerate(
        (
            (Counting, r"state\.facts differ between buckets"),
            (Keyless, "the log 'times' has no key column 'shop'"),
        )
    ):
        old = started_pipeline(make)
        new = gone_on(old, str(tmp_path / f"{number}"), 2)
        facts = [[json.loads(state.get(MANIFEST)) for _, state in one.state.values()] for one in (old, new)]
        assert facts[0] == facts[1]
        with pytest.raises(OptionError, match=rf"{sentence}.*give buckets=2"):
            gone_on(old, str(tmp_path / f"{number} others"), 3)


@pytest.mark.parametrize("name", ["both", "renamed"])
def test_a_bucket_goes_on_from_the_watermark_that_it_told_itself(name, tmp_path):
    """A follower refuses a watermark that comes again; of another name no channel is known."""
    old = started_pipeline(Counting)
    emitted_watermarks_ms = [note.emitted_ms for note, _ in old.state.values()]
    assert len(set(emitted_watermarks_ms)) == 2
    new = gone_on(old, str(tmp_path), 2, name)
    assert [note.emitted_ms for note, _ in new.state.values()] == (
        emitted_watermarks_ms if name == "both" else [None, None]
    )


def test_buckets_that_told_different_watermarks_keep_their_number_where_another_operator_follows(tmp_path):
    """Rows that bucket 1 holds would leave by channel 0, below what that has told."""
    place, old = str(tmp_path / "target"), started_pipeline(Keyless)
    note = {"inbox": {"of_source": {"both": [["both#", [0, 1]]]}}, "snapshot": 3}
    follower = OperatorState(name="hours", axis=0, digest="d", description=None, manifests=[note], states=[{}])
    layouts = [BucketLayout("both", tuple(bucket_ids(count)), ((0,), (0,)), "process") for count in (1, 2)]
    save_state(old, place, hours=follower)
    assert all(rescaled(place, old.plan, layout) for layout in layouts)
    old.state[old.layout.ids[1]][0].emitted_ms -= 1
    save_state(old, place, hours=follower)
    with pytest.raises(OptionError, match=r"aggregate hours, which follows them: give buckets=2"):
        rescaled(place, old.plan, layouts[0])
    assert rescaled(place, old.plan, layouts[1])
    save_state(old, place)
    assert rescaled(place, old.plan, layouts[0])


@pytest.mark.parametrize("batches", [0, 1])
@pytest.mark.parametrize("buckets", [2, 3])
def test_a_table_of_another_schema_is_refused_by_a_log_that_was_moved(buckets, batches, tmp_path, monkeypatch):
    new = gone_on(started_pipeline(Widened), str(tmp_path), buckets)
    for number in range(batches):
        new.batch(1 + number, two_streams(1)[41:82])
    monkeypatch.setattr(Widened, "columns", ("shop", "event_time"))
    with pytest.raises(InputError, match=r"the log 'log' would hold tables of several schemas \(shop: string and shop"):
        new.batch(2, two_streams(1)[82:123])


def test_another_processor_axis_or_kind_is_refused_in_one_sentence(tmp_path):
    place = str(tmp_path / "target")
    old = started_pipeline(Counting)
    save_state(old, place)
    with pytest.raises(OptionError, match="is that of another processor"):
        rescaled(place, replace(old.plan, version=2), old.layout)
    with pytest.raises(
        OptionError, match=r"follows the time axis with key \[0, 0\], this plan the one with key \[0, 1\]"
    ):
        rescaled(place, old.plan, replace(old.layout, axes=((0,), (1,))))
    with pytest.raises(OptionError, match=r"aggregate hours: continue_from .* holds the state of no aggregate"):
        rescaled(place, windows_of(SlidingWindow(6_000, 6_000)), BucketLayout("hours", (0,), ((0,),)))
    begin = rescaled(place, old.plan, old.layout)
    assert pickle.loads(pickle.dumps(begin.rescale)) == begin.rescale  # noqa: S301  as Spark does
    assert STATE not in (Files(place).names() or ())
