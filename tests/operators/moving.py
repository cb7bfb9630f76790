"""State on its way to other buckets without Spark: what stage and buckets of `continue_from` do with the blobs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from types import SimpleNamespace
from typing import Any

import pyarrow as pa

from keyedwm.operators.process.plan import ProcessPlan
from keyedwm.operators.process.rescale import ProcessRescale
from keyedwm.operators.state.manifest import MANIFEST
from keyedwm.spark.hosting.bucket_batch import BucketLayout
from keyedwm.spark.hosting.rescale_state import CutBlobs, RescaledState

_COLUMNS = pa.schema(
    [("bucket", pa.int32()), ("name", pa.string()), ("blob", pa.binary()), ("beside", pa.binary())]
)  # fmt: skip


def pieces(begin: RescaledState, layout: BucketLayout, old: Iterable[Mapping[str, bytes]]) -> list[SimpleNamespace]:
    """Return what new buckets are given, as rows; old: the blobs of each old bucket."""
    suffix = begin.rescale.beside
    rows = [
        {"bucket": number, "name": name, "blob": blob, "beside": blobs.get(f"{name}{suffix}")}
        for number, blobs in enumerate(old)
        for name, blob in blobs.items()
        if name != MANIFEST and not (suffix and name.endswith(suffix))
    ]
    batches = pa.Table.from_pylist(rows, _COLUMNS).to_batches(max_chunksize=3)
    piece_batches = CutBlobs(begin.rescale, layout.ids)(batches)
    return [SimpleNamespace(**row) for batch in piece_batches for row in batch.to_pylist()]


def processor_in_buckets(who: str, plan: ProcessPlan, blobs: Mapping[str, bytes], count: int) -> list[dict[str, bytes]]:
    """The blobs of so many new buckets of a processor that had one."""
    names = tuple(name for name in blobs if name != MANIFEST)
    facts = (json.loads(blobs[MANIFEST]),)
    move = ProcessRescale(
        who=who, plan=plan, count=count, digest=plan.digest(), description=None, states=facts, blobs=(names,)
    )
    new: list[dict[str, bytes]] = [{} for _ in range(count)]
    manifest_facts: list[list[tuple[str, Any]]] = [[] for _ in range(count)]
    for name in names:
        for number, blob_name, blob, fact in move.cuts(0, name, blobs[name], None):
            new[number][blob_name] = blob
            manifest_facts[number].append((blob_name, fact))
    return [
        new_blobs | {MANIFEST: move.manifest_with(None, manifest_facts[number], number)}
        for number, new_blobs in enumerate(new)
    ]
