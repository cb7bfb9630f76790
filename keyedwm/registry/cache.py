"""Schemas on disk, by the registry's address and the id, so that other processes need not ask for them.

Rule: the cache only saves questions. A file that is damaged or of another format is ignored, and a directory that
cannot be written loses nothing. The digest before the content detects damage.
"""

from __future__ import annotations

import functools
import hashlib
import json
import logging
import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

from keyedwm.core.schemas import NO_ID, NamedSchema, RegisteredSchema, SchemaKind
from keyedwm.registry.options import NO_CACHE, RegistryConfig
from keyedwm.runtime import private_dirs

FORMAT = 1
_log = logging.getLogger(__name__)


class SchemaCache:
    """The files of one registry; no files without a directory for them."""

    def __init__(self, home: Path | None) -> None:
        self._home = home

    @classmethod
    def of(cls, config: RegistryConfig) -> SchemaCache:
        """Choose the directory: the configured one, or a private one of this user."""
        if config.cache == NO_CACHE:
            return cls(None)
        name = hashlib.sha256("\n".join(sorted(map(str, config.addresses))).encode()).hexdigest()[:16]
        if config.cache is not None:
            return cls(Path(config.cache) / name)
        for place in private_dirs.places(os.environ, "schemas"):
            if private_dirs.unsafe(place) is None:
                return cls(place / name)
        return cls(None)

    def read(self, name: int | str) -> RegisteredSchema | None:
        """Return the schema that was written under an id or a GUID, None if there is none that can be used."""
        if self._home is None:
            return None
        try:
            digest, _, content = self._path(self._home, name).read_bytes().partition(b"\n")
        except FileNotFoundError:
            return None
        except OSError as error:
            _warn(str(self._home), f"cannot be read ({error.strerror})")
            return None
        if hashlib.sha256(content).hexdigest().encode() != digest:
            _warn(str(self._home), "hold a damaged file")
            return None
        try:
            return _schema_of(json.loads(content), name)
        except (KeyError, TypeError, ValueError, RecursionError):  # written by others, with a digest
            _warn(str(self._home), "hold a file of another form")
            return None

    def write(self, schema: RegisteredSchema, guid: str | None = None) -> None:
        """Write a schema under its id, or under `guid`. A directory that cannot be written is a warning only."""
        if self._home is None:
            return
        name = schema.schema_id if guid is None else guid
        content = json.dumps({
            "format": FORMAT, "id": name, "kind": schema.kind.value, "text": schema.text,
            "references": [[one.name, one.text] for one in schema.references],
        }).encode()  # fmt: skip
        path, new = self._path(self._home, name), None
        try:
            self._home.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(prefix=".new-", dir=self._home, delete=False) as file:
                new = Path(file.name)
                file.write(hashlib.sha256(content).hexdigest().encode() + b"\n" + content)
            # Readable for all: hosts and users may share a configured directory.
            new.chmod(0o644)
            new.rename(path)
        except OSError as error:
            if new is not None:
                with suppress(OSError):
                    new.unlink()
            _warn(str(self._home), f"cannot be written ({error.strerror})")

    def clear(self) -> None:
        """Delete all schemas of this registry."""
        if self._home is not None:
            with suppress(OSError):
                shutil.rmtree(self._home)

    @staticmethod
    def _path(home: Path, name: int | str) -> Path:
        return home / f"{name}.json"


def _schema_of(entry: dict[str, Any], name: int | str) -> RegisteredSchema | None:
    """Return the schema in a file, None for another format or id; raises KeyError and others for another form."""
    if entry["format"] != FORMAT or entry["id"] != name:
        return None
    references = tuple(NamedSchema(called, text) for called, text in entry["references"])
    if not all(isinstance(text, str) for text in (entry["text"], *(one.text for one in references))):
        raise TypeError
    kind = SchemaKind(entry["kind"])
    return RegisteredSchema(name if isinstance(name, int) else NO_ID, kind, entry["text"], references)


@functools.cache
def _warn(home: str, why: str) -> None:
    """Log each warning once in a process."""
    _log.warning("schemas kept in %s %s: the schema registry is asked instead", home, why)
