"""The state of a bucket, of any operator: blobs in Spark's state, and a manifest that lists them and their owner.

Rule: when a bucket opens, only the manifest is read. When it closes, only changed blobs and the manifest are written.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from pyspark.sql.types import BinaryType, StringType, StructType

from keyedwm.core.errors import FormatError, OptionError, OutOfTurnError
from keyedwm.operators.state.blobs import damaged
from keyedwm.operators.state.manifest import MANIFEST, OTHER_PYTHON
from keyedwm.operators.state.store import StateChanges
from keyedwm.spark.hosting.continue_from import FOLLOWS
from keyedwm.spark.hosting.plan_difference import difference

if TYPE_CHECKING:
    import pandas as pd


# Types, not texts: PySpark asks the JVM to parse a text twice in each task, and each request is a round trip.
_NOTE = StructType().add("note", StringType())
_BLOB_NAME = StructType().add("name", StringType())
_BLOB = StructType().add("blob", BinaryType())


class SparkStore:
    """The blobs of a bucket in Spark's state, read one by one on demand. sizes: name -> bytes, as in the manifest."""

    def __init__(self, blobs: Any, sizes: Mapping[str, int]) -> None:
        self._blobs = blobs
        self.sizes = sizes

    def get(self, name: str) -> bytes:
        """Read one blob; raise DamagedError if the blob is missing or has another size."""
        value = self._blobs.getValue((name,))
        if value is None:
            raise damaged(name, "is missing")
        blob = bytes(value[0])
        if len(blob) != self.sizes[name]:
            raise damaged(name, f"has {len(blob)} bytes, {self.sizes[name]} were written")
        return blob


def named_state(handle: Any) -> tuple[Any, Any]:
    """Create the state variables of a bucket; return the manifest's value state and the blobs' map state."""
    return handle.getValueState("note", _NOTE), handle.getMapState("blobs", _BLOB_NAME, _BLOB)


def read_manifest(manifest: Any) -> dict[str, Any] | None:
    """Return the manifest that the batch before wrote; None in a new bucket."""
    # `exists` is one more request, but `get` alone logs a warning in the JVM for each new bucket.
    return json.loads(manifest.get()[0]) if manifest.exists() else None


def write_state(manifest: Any, blobs: Any, changes: StateChanges, content: Mapping[str, Any]) -> None:
    """Write the blobs that changed, and the manifest."""
    for name in changes.removed:
        blobs.removeKey((name,))
    for name, blob in changes.blobs.items():
        blobs.updateValue((name,), (blob,))
    manifest.update((json.dumps(content, sort_keys=True),))


class StateTakeover(Protocol):
    """The state of the old buckets, as a new bucket reads it."""

    @property
    def follows(self) -> Mapping[str, int | None]:
        """Source -> the snapshot that must come next."""

    def first_manifest(self, layout: Any, bucket: int) -> Any:
        """Return the manifest with which a new bucket begins."""

    def manifest_with(self, before: bytes | None, pieces: Iterable[Any], number: int) -> bytes:
        """Return the operator's manifest with rows of initial state added to `before`. number: the bucket's."""


@dataclass(frozen=True, slots=True)
class BucketOwner:
    """The bucket that takes over state: its layout, its id, and its owner in the manifest (see `require_owner`)."""

    layout: Any
    bucket: int
    owner: Mapping[str, Any]


def take_over(
    states: tuple[Any, Any], initial: pd.DataFrame, rescaled: StateTakeover | None, new_owner: BucketOwner
) -> None:
    """Write the state of a stopped query, before the first rows; Spark may call this several times, with a part each.

    states: the result of `named_state`. initial: rows with name, blob and entry in the operator's manifest.
    """
    if rescaled is None:
        raise OutOfTurnError(f"{new_owner.layout.who}: state came without a savepoint")
    manifest, blobs = states
    saved = read_manifest(manifest)
    content = rescaled.first_manifest(new_owner.layout, new_owner.bucket).as_json() if saved is None else saved
    before = None if saved is None else SparkStore(blobs, content["blobs"]).get(MANIFEST)
    pieces = [piece for piece in initial.itertuples(index=False) if piece.blob is not None]  # the others' names are NaN
    operator = rescaled.manifest_with(before, pieces, new_owner.layout.ids.index(new_owner.bucket))
    blobs_by_name = {piece.name: bytes(piece.blob) for piece in pieces} | {MANIFEST: operator}
    sizes = content["blobs"] | {name: len(blob) for name, blob in blobs_by_name.items()}
    owned_content = content | dict(new_owner.owner) | {"blobs": sizes, FOLLOWS: dict(rescaled.follows)}
    write_state(manifest, blobs, StateChanges(blobs_by_name, frozenset()), owned_content)


def require_owner(
    kind: str, manifest: Mapping[str, Any], owner: Mapping[str, Any], plan_means: str, earlier: Sequence[str] = ()
) -> None:
    """Raise FormatError for state of another version, OptionError for another number of buckets, plan, axis or name.

    kind: the operator's name as users know it. owner: entries of this bucket's manifest (`version`, `buckets`, `plan`,
    `name`, and `axis` if the operator follows one). plan_means: the settings in which two plans may differ. earlier:
    digests that keyedwm 0.2.0 gave the plan.
    """
    name = owner["name"]
    if manifest["version"] != owner["version"]:
        raise FormatError(
            f"{kind} {name}: its state has version {manifest['version']}, this keyedwm reads version {owner['version']}"
        )
    if manifest["buckets"] != owner["buckets"]:
        raise OptionError(
            f"{kind} {name}: the checkpoint has {manifest['buckets']} buckets and this plan {owner['buckets']}; "
            f"their number is fixed in a checkpoint: give buckets={manifest['buckets']}"
        )
    if manifest["plan"] not in (owner["plan"], *earlier):
        differences = difference(manifest.get("description"), owner["description"]) if "description" in owner else ""
        differences = differences or (OTHER_PYTHON if earlier else "")
        raise OptionError(
            f"{kind} {name}: the checkpoint holds the state of another plan ({plan_means} differ"
            f"{differences and '; ' + differences}): go back to that plan, or start from a new checkpoint"
        )
    if "axis" in owner and manifest["axis"] != owner["axis"]:
        raise OptionError(
            f"{kind} {name}: the checkpoint follows the time axis with key {manifest['axis']}, this plan the one "
            f"with key {owner['axis']}: go back to that axis, or start from a new checkpoint"
        )
    if manifest["name"] != name:  # a follower of its channels would wait for channels of the old name
        raise OptionError(
            f"{kind} {name}: the checkpoint calls it {manifest['name']}, and so its channels: "
            f"give name={manifest['name']!r}"
        )
