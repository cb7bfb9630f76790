"""The manifest of an operator's state: a JSON object beside its tables, in the blob called `note`.

Rule: the manifest carries the format's version and the plan's digest. State of an unknown version or of another plan is
rejected with an error, and so is a manifest with a wrong checksum. The checksum stands first; 0.2.0 wrote none. In
version 2 of the window state, which 0.2.0 wrote, sessions were slices.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from keyedwm.core.errors import FormatError
from keyedwm.core.parsing import parse_json
from keyedwm.operators.state.blobs import damaged
from keyedwm.operators.state.store import BlobStore

VERSION = 3
# A possible cause if the plan has a user's own functions.
OTHER_PYTHON = (
    "if keyedwm 0.2.0 wrote it and only Python changed, run the query for one batch with that Python and this keyedwm: "
    "it stores the version of an Aggregate in place of its byte-code"
)
MANIFEST = "note"
# The checksum of everything after it.
_CHECKSUM = re.compile(rb'\{"checksum": ([0-9]+), ')


@dataclass(frozen=True, kw_only=True, slots=True)
class ManifestFormat:
    """The manifests of one kind of state. state: its name in errors. version: the version that is written. readable:
    the versions that are read. unchanged: the settings that must not change, for the error about another plan.
    """

    state: str
    version: int
    readable: tuple[int, ...]
    unchanged: str

    def write(self, digest: str, state: Mapping[str, Any]) -> bytes:
        """Return the manifest: state, version and the plan's digest."""
        content = json.dumps({"version": self.version, "plan": digest, **state}, sort_keys=True).encode()[1:]
        return b'{"checksum": %d, %b' % (zlib.crc32(content), content)

    def copy(self, manifest: Mapping[str, Any]) -> bytes:
        """Return the manifest of this content, as the current version writes it."""
        others = {name: part for name, part in manifest.items() if name not in {"checksum", "version", "plan"}}
        return self.write(manifest["plan"], others)

    def read(self, digest: str, store: BlobStore, earlier: Sequence[str] = ()) -> dict[str, Any]:
        """Return the content of a store's manifest, empty without one; raise FormatError if it is another plan's.

        earlier: digests of the plan in keyedwm 0.2.0, if the byte-code of a user's functions was part of them.
        """
        if not store.sizes:
            return {}
        if MANIFEST not in store.sizes:
            raise FormatError(f"the {self.state} holds {', '.join(sorted(store.sizes))}, but no {MANIFEST}")
        content = content_of(store.get(MANIFEST))
        self.check_versions(f"the {self.state}", [content])
        if content.get("plan") not in (digest, *earlier):
            raise FormatError(
                f"the {self.state} belongs to plan {content.get('plan')}, this is plan {digest}: {self.unchanged} must "
                f"stay as they were{f'; {OTHER_PYTHON}' if earlier else ''}"
            )
        return content

    def check_versions(self, owner: str, manifests: Iterable[Mapping[str, Any]]) -> None:
        """Raise FormatError for manifests of an unknown version. owner: the owner of the state, for the message."""
        unknown = {one.get("version") for one in manifests} - set(self.readable)
        if unknown:
            raise FormatError(
                f"{owner} is of version {max(unknown, key=str)}, this keyedwm reads "
                f"{', '.join(map(str, self.readable))}"
            )


def content_of(blob: bytes) -> dict[str, Any]:
    """Return the content of a manifest; raise DamagedError if it was changed."""
    checksum = _CHECKSUM.match(blob)
    if checksum and zlib.crc32(blob[checksum.end() :]) != int(checksum[1]):
        raise damaged(MANIFEST, "does not agree with its checksum")
    try:
        content = parse_json(blob)
    except ValueError as error:
        raise damaged(MANIFEST, "is not JSON") from error
    if not isinstance(content, dict):
        raise damaged(MANIFEST, "is no JSON object")
    return content


class Planned(Protocol):
    """The parts of a plan that its state depends on."""

    @property
    def earlier_digests(self) -> Sequence[str]:
        """Digests of this plan in keyedwm 0.2.0."""

    def digest(self) -> str:
        """Return a short text; two plans with the same text can use each other's state."""


FORMAT = ManifestFormat(
    state="window state", version=VERSION, readable=(2, VERSION),
    unchanged="windows, by, aggregates (the version of your own, too), early, accumulating, late_rule and lateness",
)  # fmt: skip


def manifest_of(plan: Planned, state: Mapping[str, Any]) -> bytes:
    """Return the manifest of a window operator or of a processor."""
    return FORMAT.write(plan.digest(), state)


def read_manifest(plan: Planned, store: BlobStore) -> dict[str, Any]:
    """Return the content of its manifest; see `ManifestFormat.read`."""
    return FORMAT.read(plan.digest(), store, plan.earlier_digests)
