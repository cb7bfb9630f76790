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

from keyedwm.core.errors import OptionError
from keyedwm.operators.operator_spec import OperatorSpec
from keyedwm.operators.protocol import KINDS
from keyedwm.operators.state.manifest import MANIFEST
from keyedwm.operators.state.rescale_pieces import Rescale
from keyedwm.savepoint_files import STATE, Files, check_blobs
from keyedwm.spark.hosting.bucket_batch import BucketLayout, BucketManifest
from keyedwm.spark.hosting.continue_from import follows_of, operator_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, GroupedData, SparkSession

# Initial state of a new bucket: a blob, with the JSON of its entry in the operator's manifest; or, in
# a row of its own, nothing but its existence.
_PIECE = pa.schema(
    [
        pa.field("bucket", pa.int32()),
        pa.field("name", pa.string()),
        pa.field("blob", pa.binary()),
        pa.field("entry", pa.string()),
    ]
)


@dataclass(frozen=True, kw_only=True)
class RescaledState:
    """The old buckets, as every new bucket sees them. follows: source → the snapshot that must come next of it."""

    rescale: Rescale
    name: str
    manifests: tuple[Mapping[str, Any], ...]
    follows: Mapping[str, int | None]

    def first_manifest(self, layout: BucketLayout, bucket: int) -> BucketManifest:
        """Return the manifest with which a new bucket begins.

        Followers of the operator do not know a new channel: the first batch passes its watermarks on. A channel that
        they know continues from its last watermark, which differs between buckets if a processor holds rows back.
        """
        manifest = self.manifests[0]
        number = layout.ids.index(bucket)
        is_known = number < len(self.manifests) and layout.name == self.name
        before = self.manifests[number] if is_known else {}
        return BucketManifest(
            inbox=manifest["inbox"],
            inboxes=manifest.get("inboxes", ()),
            emitted_ms=before.get("emitted_ms"),
            emitted=dict(before.get("emitted", {})),
            snapshot=manifest["snapshot"],
        )

    def manifest_with(self, before: bytes | None, pieces: Iterable[Any], number: int) -> bytes:
        """Return the operator's manifest in a new bucket with these rows of `_PIECE` added; before: as it was."""
        return self.rescale.manifest_with(before, [(piece.name, json.loads(piece.entry)) for piece in pieces], number)


@dataclass(frozen=True)
class CutBlobs:
    """Cuts old blobs by new buckets, on executors; a value for `mapInArrow`."""

    rescale: Rescale
    ids: tuple[int, ...]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Take old buckets, names, blobs and the blobs beside them; yield rows of `_PIECE`, a batch for each blob."""
        for batch in batches:
            for row in range(batch.num_rows):
                bucket, name, blob, beside = (column[row].as_py() for column in batch.columns)
                parts = self.rescale.cuts(bucket, name, blob, beside)
                pieces = [
                    one._asdict() | {"bucket": self.ids[one.bucket], "entry": json.dumps(one.entry)} for one in parts
                ]
                if pieces:
                    yield pa.RecordBatch.from_pylist(pieces, schema=_PIECE)


def rescaled(place: str, spec: OperatorSpec, layout: BucketLayout) -> RescaledState:
    """Return the first state of the buckets. Raises OptionError and FormatError for what cannot move."""
    savepoint, operator = operator_of(place, layout)
    who = f"{layout.who}: continue_from {place}"
    rescale = KINDS[spec.kind].rescale(
        who=who, plan=spec, count=len(layout.ids), digest=operator.digest, description=operator.description,
        states=tuple(operator.states),
        blobs=tuple(tuple(name for name in one["blobs"] if name != MANIFEST) for one in operator.manifests),
    )  # fmt: skip
    if operator.axis != layout.axis:
        raise OptionError(
            f"{who}: the state follows the time axis with key {operator.axis}, this plan the one with key "
            f"{layout.axis}: give that axis, or start from a new checkpoint"
        )
    return RescaledState(
        rescale=rescale,
        name=operator.name,
        manifests=tuple(operator.manifests),
        follows=follows_of(savepoint, operator),
    )


def initial_state(spark: SparkSession, place: str, rescaled: RescaledState, layout: BucketLayout) -> GroupedData:
    """Return the state as Spark hands it to the new buckets, once, before their first rows."""
    from pyspark.sql import functions as F
    from pyspark.sql.pandas.types import from_arrow_schema

    schema = from_arrow_schema(_PIECE)
    state = spark.read.parquet(f"{Files(place).for_spark}/{STATE}")
    own_blobs = state.where(F.col("operator") == rescaled.name).select("bucket", "name", "blob")
    counts = {row["bucket"]: row["count"] for row in own_blobs.groupBy("bucket").count().collect()}
    check_blobs(rescaled.rescale.who, rescaled.manifests, counts)
    pieces = _with_beside(own_blobs, rescaled.rescale.beside).mapInArrow(CutBlobs(rescaled.rescale, layout.ids), schema)
    each = spark.createDataFrame([(one, None, None, None) for one in layout.ids], schema)
    return pieces.unionAll(each).groupBy("bucket")


def _with_beside(blobs: DataFrame, suffix: str | None) -> DataFrame:
    """Each blob together with the one whose name has this suffix behind its own, if there is one."""
    from pyspark.sql import functions as F

    if suffix is None:
        return blobs.withColumn("beside", F.lit(None).cast("binary"))
    is_beside = F.col("name").endswith(suffix)
    name = F.expr(f"left(name, length(name) - {len(suffix)})")
    beside = blobs.where(is_beside).select("bucket", name.alias("name"), F.col("blob").alias("beside"))
    return blobs.where(~is_beside).join(beside, ["bucket", "name"], "left").select("bucket", "name", "blob", "beside")
