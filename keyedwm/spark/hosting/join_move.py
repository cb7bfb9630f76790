"""How the buckets of a new join begin with the state of a stopped one: `join(..., continue_from=TARGET)`.

Rule: as for windows (`bucket_move`). A slice of rows and the bits beside it are cut together.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from keyedwm.operators.join.held import MATCHED
from keyedwm.operators.join.move import JoinMove
from keyedwm.operators.join.plan import JoinPlan
from keyedwm.operators.state.note import NOTE
from keyedwm.savepoint import STATE, Files, check_blobs
from keyedwm.spark.hosting.continued import follows_of, operator_of
from keyedwm.spark.hosting.join_batch import JoinLayout, JoinNote

if TYPE_CHECKING:
    from pyspark.sql import GroupedData, SparkSession

# What a new bucket is given before its first rows: a blob, or, in a row of its own, nothing but its existence.
_PIECE = pa.schema(
    [
        pa.field("bucket", pa.int32()),
        pa.field("name", pa.string()),
        pa.field("blob", pa.binary()),
        pa.field("fact", pa.string()),
    ]
)


@dataclass(frozen=True, kw_only=True)
class MovedJoin:
    """What every new bucket must know of the old ones. follows: source → the snapshot that must come next of it."""

    move: JoinMove
    name: str
    notes: tuple[Mapping[str, Any], ...]
    follows: Mapping[str, int | None]

    def first_note(self, layout: JoinLayout, bucket: int) -> JoinNote:
        """Return the note with which a new bucket begins.

        Who follows the join has not heard of a channel that is new: its watermarks are told in the first batch.
        """
        note = self.notes[0]
        is_known = layout.ids.index(bucket) < len(self.notes) and layout.name == self.name
        emitted = dict(note["emitted"]) if is_known else {}
        return JoinNote(inboxes=list(note["inboxes"]), emitted=emitted, snapshot=note["snapshot"])

    def note_with(self, before: bytes | None, pieces: Iterable[Any], number: int) -> bytes:  # noqa: ARG002  all alike
        """Return the operator's note in a new bucket with these rows of `_PIECE` told; before: as it was."""
        told = {} if before is None else self.move.facts_in(before)
        for piece in pieces:
            if piece.fact is not None:
                told.setdefault(piece.name.rpartition("-")[0], []).append(json.loads(piece.fact))
        return self.move.note_of(told)


@dataclass(frozen=True)
class CutJoin:
    """Cuts old blobs by new buckets, on executors; a value for `mapInArrow`."""

    move: JoinMove
    ids: tuple[int, ...]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Take old buckets, names, blobs and the bits beside them; yield rows of `_PIECE`, a batch for each blob."""
        for batch in batches:
            for row in range(batch.num_rows):
                bucket, name, blob, matched = (column[row].as_py() for column in batch.columns)
                cut = self.move.cut(bucket, name, blob, matched, len(self.ids))
                rows = [
                    {"bucket": self.ids[one.bucket], "name": one.name, "blob": one.blob, "fact": _text(one.fact)}
                    for one in cut
                ]
                if rows:
                    yield pa.RecordBatch.from_pylist(rows, schema=_PIECE)


def _text(fact: list[int] | None) -> str | None:
    return None if fact is None else json.dumps(fact)


def moved_join(place: str, plan: JoinPlan, layout: JoinLayout) -> MovedJoin:
    """Return what the buckets of this plan begin with. Raises OptionError and FormatError for what cannot move."""
    savepoint, operator = operator_of(place, layout)
    move = JoinMove(
        who=f"{layout.who}: continue_from {place}",
        plan=plan,
        digest=operator.digest,
        facts=tuple(operator.facts),
        blobs=tuple(tuple(name for name in note["blobs"] if name != NOTE) for note in operator.notes),
    )
    return MovedJoin(
        move=move, name=operator.name, notes=tuple(operator.notes), follows=follows_of(savepoint, operator)
    )


def initial_state(spark: SparkSession, place: str, moved: MovedJoin, layout: JoinLayout) -> GroupedData:
    """Return the state as Spark hands it to the new buckets, once, before their first rows."""
    from pyspark.sql import functions as F
    from pyspark.sql.pandas.types import from_arrow_schema

    schema = from_arrow_schema(_PIECE)
    state = spark.read.parquet(f"{Files(place).for_spark}/{STATE}").where(F.col("operator") == moved.name)
    counts = {row["bucket"]: row["count"] for row in state.groupBy("bucket").count().collect()}
    check_blobs(moved.move.who, moved.notes, counts)
    bits = state.where(F.col("name").endswith(MATCHED)).select(
        "bucket", F.expr(f"left(name, length(name) - {len(MATCHED)})").alias("name"), F.col("blob").alias("matched")
    )
    slices = state.where(~F.col("name").endswith(MATCHED)).select("bucket", "name", "blob")
    pieces = slices.join(bits, ["bucket", "name"], "left").mapInArrow(CutJoin(moved.move, layout.ids), schema)
    each = spark.createDataFrame([(one, None, None, None) for one in layout.ids], schema)
    return pieces.unionAll(each).groupBy("bucket")
