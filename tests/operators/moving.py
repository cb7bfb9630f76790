"""State on its way to other buckets without Spark: what stage and buckets of `continue_from` do with the blobs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import SimpleNamespace

import pyarrow as pa

from keyedwm.operators.state.note import NOTE
from keyedwm.spark.hosting.bucket_batch import BucketLayout
from keyedwm.spark.hosting.bucket_move import CutState, Moved

_COLUMNS = pa.schema(
    [("bucket", pa.int32()), ("name", pa.string()), ("blob", pa.binary()), ("beside", pa.binary())]
)  # fmt: skip


def pieces(begin: Moved, layout: BucketLayout, old: Iterable[Mapping[str, bytes]]) -> list[SimpleNamespace]:
    """Return what new buckets are given, as rows; old: the blobs of each old bucket."""
    suffix = begin.move.beside
    rows = [
        {"bucket": number, "name": name, "blob": blob, "beside": blobs.get(f"{name}{suffix}")}
        for number, blobs in enumerate(old)
        for name, blob in blobs.items()
        if name != NOTE and not (suffix and name.endswith(suffix))
    ]
    batches = pa.Table.from_pylist(rows, _COLUMNS).to_batches(max_chunksize=3)
    cut = CutState(begin.move, layout.ids)(batches)
    return [SimpleNamespace(**row) for batch in cut for row in batch.to_pylist()]
