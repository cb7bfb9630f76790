"""How the buckets of a new query begin with the state of a stopped one: `continue_from=TARGET`.

Rule: which blob goes where depends on the savepoint and the plan alone, so a first batch that runs again begins with
the same state. What the first batch brings must be what comes next after the savepoint; anything else is refused.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from keyedwm.core.control_row import ControlRow
from keyedwm.core.errors import InputError, OptionError
from keyedwm.core.rows import ControlKind
from keyedwm.savepoint import STATE, Files, OperatorState, Savepoint, read_savepoint
from keyedwm.spark.bucket_batch import BucketLayout, BucketNote
from keyedwm.windows.columns import contiguous, ints
from keyedwm.windows.plan import END, WindowPlan
from keyedwm.windows.process_move import ProcessMove
from keyedwm.windows.process_plan import ProcessPlan
from keyedwm.windows.state.blobs import packed
from keyedwm.windows.state.move import Move
from keyedwm.windows.state.note import NOTE
from keyedwm.windows.state.session_log import YOUNG
from keyedwm.windows.state.store import PART
from pyspark_wm_source.offsets import QueryOffset

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, GroupedData, SparkSession

# What a new bucket is given before its first rows: a part of a log, or, in a row of its own, nothing but its existence.
_PIECE = pa.schema(
    [
        pa.field("bucket", pa.int32()),
        pa.field("name", pa.string()),
        pa.field("blob", pa.binary()),
        pa.field("rows", pa.int64()),
        pa.field("first_end", pa.int64()),
    ]
)


@dataclass(frozen=True, kw_only=True)
class Moved:
    """What every new bucket must know of the old ones. follows: source → the snapshot that must come next of it."""

    move: Move | ProcessMove
    name: str
    notes: tuple[Mapping[str, Any], ...]
    follows: Mapping[str, int | None]

    def first_note(self, layout: BucketLayout, bucket: int) -> BucketNote:
        """Return the note with which a new bucket begins.

        Who follows the aggregate has not heard of a channel that is new: its watermark is told in the first batch.
        """
        note = self.notes[0]
        number = layout.ids.index(bucket)
        is_known = number < len(self.notes) and layout.name == self.name
        return BucketNote(
            inbox=note["inbox"],
            inboxes=note.get("inboxes", ()),
            emitted_ms=note["emitted_ms"] if is_known else None,
            snapshot=note["snapshot"],
        )

    def note_with(self, before: bytes | None, pieces: Iterable[Any], number: int) -> bytes:
        """Return the operator's note in a new bucket with these rows of `_PIECE` counted; before: as it was."""
        told = {} if before is None else json.loads(before)
        rows, first_end = dict(told.get("rows", {})), told.get("young_end")
        for piece in pieces:
            log = piece.name.partition(PART)[0]
            rows[log] = rows.get(log, 0) + int(piece.rows)
            if log == YOUNG:
                first_end = int(piece.first_end) if first_end is None else min(first_end, int(piece.first_end))
        return self.move.note_of(number, rows, first_end)


@dataclass(frozen=True)
class CutState:
    """Cuts old blobs by new buckets, on executors; a value for `mapInArrow`."""

    move: Move | ProcessMove
    ids: tuple[int, ...]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield rows of `_PIECE`, a batch for each old blob."""
        for batch in batches:
            for row in range(batch.num_rows):
                bucket, name, blob = (column[row].as_py() for column in batch.columns)
                cut = list(self.move.cut(bucket, name, blob, len(self.ids)))
                if cut:
                    yield _pieces([(self.ids[number], to, table) for number, to, table in cut])


def _pieces(cut: list[tuple[int, str, pa.Table]]) -> pa.RecordBatch:
    tables = [table for _, _, table in cut]
    ends = [int(ints(contiguous(table[END])).min()) if END in table.column_names else None for table in tables]
    arrays = [
        pa.array([bucket for bucket, _, _ in cut], pa.int32()),
        pa.array([name for _, name, _ in cut], pa.string()),
        pa.array([packed(table) for table in tables], pa.binary()),
        pa.array([table.num_rows for table in tables], pa.int64()),
        pa.array(ends, pa.int64()),
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=_PIECE)


def moved(place: str, plan: WindowPlan | ProcessPlan, layout: BucketLayout) -> Moved:
    """Return what the buckets of this plan begin with. Raises OptionError and FormatError for what cannot move."""
    savepoint = read_savepoint(f"{layout.kind}: continue_from", place)
    operator = _operator(savepoint, layout)
    who = f"{layout.who}: continue_from {place}"
    if operator.axis != layout.axis:
        raise OptionError(
            f"{who}: the state follows the time axis with key {operator.axis}, this plan the one with key "
            f"{layout.axis}: give that axis, or start from a new checkpoint"
        )
    followers = [other for other in savepoint.operators.values() if operator.name in other.sources]
    if operator.name != layout.name and followers:
        raise OptionError(
            f"{who}: {followers[0].kind} {followers[0].name} follows its channels by name: give name={operator.name!r}"
        )
    blobs = tuple(tuple(name for name in note["blobs"] if name != NOTE) for note in operator.notes)
    facts = tuple(operator.facts)
    move: Move | ProcessMove
    if isinstance(plan, ProcessPlan):
        move = ProcessMove(who=who, plan=plan, count=len(layout.ids), digest=operator.digest, facts=facts, blobs=blobs)
    else:
        move = Move(who=who, plan=plan, digest=operator.digest, told=operator.told, facts=facts, blobs=blobs)
    return Moved(move=move, name=operator.name, notes=tuple(operator.notes), follows=_follows(savepoint, operator))


def _operator(savepoint: Savepoint, layout: BucketLayout) -> OperatorState:
    """The state of that kind and name, or the only one there is of the kind."""
    held = {name: one for name, one in savepoint.operators.items() if one.kind == layout.kind}
    if layout.name in held:
        return held[layout.name]
    if len(held) == 1:
        return next(iter(held.values()))
    raise OptionError(
        f"{layout.who}: continue_from {savepoint.place} holds the state of "
        + (
            f"{', '.join(sorted(held))}, and none of that name: give one of them as name"
            if held
            else f"no {layout.kind}"
        )
    )


def _follows(savepoint: Savepoint, operator: OperatorState) -> dict[str, int | None]:
    """Of each source and aggregate that the operator follows, the snapshot that comes next."""
    offsets = [QueryOffset.from_json(source) for source in savepoint.sources]
    sources = {offset.source: offset.batch + 1 for offset in offsets}
    others = {other.name: other.snapshot for other in savepoint.operators.values()}
    known = sources | {name: snapshot + 1 for name, snapshot in others.items() if snapshot is not None}
    followed = operator.sources
    if followed <= known.keys():
        return {name: known[name] for name in sorted(followed)}
    return dict(sources)  # state of 0.2.0 names no sources


def initial_state(spark: SparkSession, place: str, moved: Moved, layout: BucketLayout) -> GroupedData:
    """Return the state as Spark hands it to the new buckets, once, before their first rows."""
    from pyspark.sql import functions as F
    from pyspark.sql.pandas.types import from_arrow_schema

    schema = from_arrow_schema(_PIECE)
    state = spark.read.parquet(f"{Files(place).for_spark}/{STATE}")
    mine = state.where(F.col("operator") == moved.name).select("bucket", "name", "blob")
    pieces: DataFrame = mine.mapInArrow(CutState(moved.move, layout.ids), schema)
    each = spark.createDataFrame([(one, None, None, 0, None) for one in layout.ids], schema)
    return pieces.unionAll(each).groupBy("bucket")


def check_follows(who: str, follows: Mapping[str, int | None], rows: Iterable[ControlRow]) -> dict[str, int | None]:
    """Refuse a first batch that does not come next after the savepoint.

    follows: source → the snapshot that must come next of it, None once it has come. Returns the same after these rows,
    nothing when all have come.
    """
    left = dict(follows)
    for row in rows:
        if row.kind is not ControlKind.BARRIER or row.source is None:
            continue
        wanted = follows.get(row.source, -1)
        if wanted not in {None, row.snapshot}:
            found = "another source" if wanted == -1 else f"snapshot {row.snapshot}, not {wanted},"
            raise InputError(
                f"{who}: it begins with the state of a savepoint, and {found} of its input comes first: give the "
                f"same savepoint to the source (option continueFrom) and to every operator (continue_from)"
            )
        left[row.source] = None
    return left if any(wanted is not None for wanted in left.values()) else {}
