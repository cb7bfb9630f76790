"""The manifest of a join's state; see `keyedwm.operators.state.manifest`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from keyedwm.operators.join.plan import JoinPlan
from keyedwm.operators.state.manifest import ManifestFormat
from keyedwm.operators.state.store import BlobStore

VERSION = 1
FORMAT = ManifestFormat(
    state="state of the join", version=VERSION, readable=(VERSION,),
    unchanged="on, how, time bounds, condition, columns, names of the sides and late",
)  # fmt: skip


def manifest_of(plan: JoinPlan, state: Mapping[str, Any]) -> bytes:
    """Return the manifest of an operator."""
    return FORMAT.write(plan.digest(), state)


def read_manifest(plan: JoinPlan, store: BlobStore) -> dict[str, Any]:
    """Return the content of a state's manifest; see `ManifestFormat.read`."""
    return FORMAT.read(plan.digest(), store)
