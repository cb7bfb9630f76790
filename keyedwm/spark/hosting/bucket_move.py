"""How the buckets of a new query begin with the state of a stopped one: `continue_from=TARGET`.

Rule: which blob goes where depends on the savepoint and the plan alone, so a first batch that runs again begins with
the same state.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from keyedwm.arrow.columns import contiguous, ints
from keyedwm.core.errors import OptionError
from keyedwm.operators.frames.plan import WindowPlan
from keyedwm.operators.frames.rescale import Move
from keyedwm.operators.frames.session_log import YOUNG
from keyedwm.operators.names import END
from keyedwm.operators.process.plan import ProcessPlan
from keyedwm.operators.process.rescale import ProcessMove
from keyedwm.operators.state.blobs import stored
from keyedwm.operators.state.note import NOTE
from keyedwm.operators.state.store import PART
from keyedwm.savepoint import STATE, Files, check_blobs
from keyedwm.spark.hosting.bucket_batch import BucketLayout, BucketNote
from keyedwm.spark.hosting.continued import follows_of, operator_of

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
        pa.array([stored(name, table) for _, name, table in cut], pa.binary()),
        pa.array([table.num_rows for table in tables], pa.int64()),
        pa.array(ends, pa.int64()),
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=_PIECE)


def moved(place: str, plan: WindowPlan | ProcessPlan, layout: BucketLayout) -> Moved:
    """Return what the buckets of this plan begin with. Raises OptionError and FormatError for what cannot move."""
    savepoint, operator = operator_of(place, layout)
    who = f"{layout.who}: continue_from {place}"
    if operator.axis != layout.axis:
        raise OptionError(
            f"{who}: the state follows the time axis with key {operator.axis}, this plan the one with key "
            f"{layout.axis}: give that axis, or start from a new checkpoint"
        )
    blobs = tuple(tuple(name for name in note["blobs"] if name != NOTE) for note in operator.notes)
    facts = tuple(operator.facts)
    move: Move | ProcessMove
    if isinstance(plan, ProcessPlan):
        move = ProcessMove(who=who, plan=plan, count=len(layout.ids), digest=operator.digest, facts=facts, blobs=blobs)
    else:
        move = Move(who=who, plan=plan, digest=operator.digest, told=operator.told, facts=facts, blobs=blobs)
    return Moved(move=move, name=operator.name, notes=tuple(operator.notes), follows=follows_of(savepoint, operator))


def initial_state(spark: SparkSession, place: str, moved: Moved, layout: BucketLayout) -> GroupedData:
    """Return the state as Spark hands it to the new buckets, once, before their first rows."""
    from pyspark.sql import functions as F
    from pyspark.sql.pandas.types import from_arrow_schema

    schema = from_arrow_schema(_PIECE)
    state = spark.read.parquet(f"{Files(place).for_spark}/{STATE}")
    mine = state.where(F.col("operator") == moved.name).select("bucket", "name", "blob")
    counts = {row["bucket"]: row["count"] for row in mine.groupBy("bucket").count().collect()}
    check_blobs(moved.move.who, moved.notes, counts)
    pieces: DataFrame = mine.mapInArrow(CutState(moved.move, layout.ids), schema)
    each = spark.createDataFrame([(one, None, None, 0, None) for one in layout.ids], schema)
    return pieces.unionAll(each).groupBy("bucket")
