"""The state of a stopped query for the buckets of a new query: `continue_from=TARGET`.

Rule: the new bucket of each blob depends on the savepoint and the plan alone. So a first batch that runs again begins
with the same state.
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

# Rows of initial state: each blob of a new bucket, with its entry in the operator's manifest as JSON; and for each new
# bucket a row without a blob, so that a bucket without blobs exists, too.
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
    """The state of the old buckets, for every new bucket. follows: source -> the snapshot that must come next."""

    rescale: Rescale
    name: str
    manifests: tuple[Mapping[str, Any], ...]
    follows: Mapping[str, int | None]

    def first_manifest(self, layout: BucketLayout, bucket: int) -> BucketManifest:
        """Return the manifest with which a new bucket begins.

        For an operator that follows this one, a new channel has no watermark, so the first batch emits one. A known
        channel continues from its last watermark; channels can differ if a processor delays rows.
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
        """Return the operator's manifest in a new bucket with these rows of `_PIECE` added to `before`."""
        return self.rescale.manifest_with(before, [(piece.name, json.loads(piece.entry)) for piece in pieces], number)


@dataclass(frozen=True)
class CutBlobs:
    """The function of a `mapInArrow` that cuts old blobs by new bucket, on executors."""

    rescale: Rescale
    ids: tuple[int, ...]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield rows of `_PIECE`, a batch for each old blob. batches: old bucket, name, blob, the blob beside it."""
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
    """Return the first state of the buckets. Raises OptionError or FormatError for state that cannot move."""
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
    """Return the initial state by bucket, for `transformWithState`: each bucket gets it once, before its first rows."""
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
    """Return each blob with the blob beside it, whose name is the same with this suffix; null if there is none."""
    from pyspark.sql import functions as F

    if suffix is None:
        return blobs.withColumn("beside", F.lit(None).cast("binary"))
    is_beside = F.col("name").endswith(suffix)
    name = F.expr(f"left(name, length(name) - {len(suffix)})")
    beside = blobs.where(is_beside).select("bucket", name.alias("name"), F.col("blob").alias("beside"))
    return blobs.where(~is_beside).join(beside, ["bucket", "name"], "left").select("bucket", "name", "blob", "beside")
