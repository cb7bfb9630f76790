"""A savepoint: the state of a stopped query for another, in a directory or at an address (docs/design/formats.md).

Rule: `savepoint.json` is written last, so a directory without it is no savepoint. Operators' blobs are beside it, as
Spark wrote them. A savepoint is never changed, so any number of queries may start from it.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from keyedwm.config.addresses import appears_early, open_address, replace_file, store_errors
from keyedwm.core.errors import DamagedError, FormatError, OptionError, UnavailableError
from keyedwm.core.parsing import parse_json
from keyedwm.core.text import error_text, short_repr, words_of

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

VERSION = 1
SAVEPOINT_MANIFEST = "savepoint.json"
STATE = "state"
_NOTE = "note"  # the operator's own manifest: it is stored inside savepoint.json, not as a blob file
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")


def kind_of(description: Mapping[str, Any] | None) -> str:
    """Return the operator's name as users know it, from the description of its plan."""
    kind: str = (description or {}).get("kind", "aggregate")
    return "aggregate" if kind == "store" else kind


@dataclass(frozen=True, kw_only=True)
class OperatorState:
    """An aggregate, processor or join of the old query.

    axis: the time axis that it follows; a list if it has several inputs or axes. description: that of its plan, None
    if keyedwm 0.2.0 wrote the state. manifests: one for each old bucket, without the owner. states: for each bucket,
    the operator's own manifest.
    """

    name: str
    axis: int | list[int]
    digest: str
    description: Mapping[str, Any] | None
    manifests: Sequence[Mapping[str, Any]]
    states: Sequence[Mapping[str, Any]]

    @property
    def snapshot(self) -> int | None:
        """The last barrier that the operator has emitted."""
        return self.manifests[0]["snapshot"]

    @property
    def kind(self) -> str:
        """The operator's name as users know it."""
        return kind_of(self.description)

    @property
    def sources(self) -> set[str]:
        """The owners, sources or other operators, of the channels that the operator follows."""
        manifest = self.manifests[0]
        return {
            source
            for inbox in (manifest["inbox"], *manifest.get("inboxes", ()))
            for source in (inbox["of_source"] if "of_source" in inbox else inbox["sources"].values())
        }


@dataclass(frozen=True, kw_only=True)
class Savepoint:
    """Offsets and operators after batch `batch` of the query with this checkpoint. sources: as in its offset log."""

    place: str
    checkpoint: str
    batch: int
    sources: Sequence[Mapping[str, Any]]
    operators: Mapping[str, OperatorState]


class Files:
    """Small files at a path of this machine or at an address, such as s3a://bucket/savepoint."""

    def __init__(self, place: str) -> None:
        if not isinstance(place, str) or not place.strip():
            raise OptionError(f"{place!r}: the path of a directory, or an address, is expected, as text")
        self.place = place
        self.is_local = place.startswith("file:") or not _SCHEME.match(place)
        if self.is_local:
            place = place.removeprefix("file:")
            self.path = str(Path("/" + place.lstrip("/") if self.place.startswith("file:") else place).absolute())

    @property
    def for_spark(self) -> str:
        """The place in a form that does not depend on Spark's default file system."""
        return f"file:{self.path}" if self.is_local else self.place

    def is_in(self, other: Files) -> bool:
        """Whether this place is `other` or lies inside it, by their names: links are not resolved."""
        own, its = (one.for_spark.rstrip("/") for one in (self, other))
        return f"{own}/".startswith(f"{its}/")

    def below(self, name: str) -> Files:
        """Return the place of a directory in this one, before the store's parameters (`?...`) of an address."""
        address, separator, query = self.place.partition("?") if not self.is_local else (self.place, "", "")
        return Files(f"{address.rstrip('/')}/{name}{separator}{query}")

    def exists(self) -> bool:
        """Whether there is a directory or a file at the place."""
        from pyarrow.fs import FileType

        files, at = self._opened()
        with _one_sentence(self.place):
            return bool(files.get_file_info(at).type != FileType.NotFound)

    def names(self, directory: str = "") -> list[str] | None:
        """Return the names in a directory; None if there is no directory."""
        from pyarrow.fs import FileSelector, FileType

        files, at = self._opened()
        at = f"{at}/{directory}".rstrip("/")
        with _one_sentence(self.place):
            if files.get_file_info(at).type in (FileType.NotFound, FileType.File):
                return None
            return sorted(info.base_name for info in files.get_file_info(FileSelector(at)))

    def written_ms(self, name: str) -> int | None:
        """Return when a file was written, by the clock of its file system; None if there is no such file."""
        files, at = self._opened()
        with _one_sentence(self.place):
            found_ns = files.get_file_info(f"{at}/{name}").mtime_ns
        return None if found_ns is None else found_ns // 1_000_000

    def times_ms(self, directory: str) -> dict[str, int]:
        """Return when each file of a directory was written, by one request; empty if there is no directory."""
        from pyarrow.fs import FileSelector, FileType

        files, at = self._opened()
        with _one_sentence(self.place):
            infos = files.get_file_info(FileSelector(f"{at}/{directory}", allow_not_found=True))
        return {
            info.base_name: info.mtime_ns // 1_000_000
            for info in infos
            if info.type == FileType.File and info.mtime_ns is not None
        }

    def read(self, name: str) -> str | None:
        """Return a file's text, None if there is no such file. Raises DamagedError if the file is no UTF-8 text."""
        files, at = self._opened()
        with _one_sentence(self.place):
            try:
                with files.open_input_stream(f"{at}/{name}") as stream:
                    return bytes(stream.read()).decode()
            except FileNotFoundError:
                return None
            except UnicodeDecodeError as error:
                raise DamagedError(f"{self.place}/{name} is damaged: it is no text in UTF-8") from error

    def write(self, name: str, text: str) -> None:
        """Write a file, or replace it: no reader sees a part of it."""
        files, at = self._opened()
        data = text.encode()
        with _one_sentence(self.place):
            files.create_dir(at, recursive=True)
            if self.is_local:
                self._write_beside(Path(at), name, text)
                return
            path = f"{at}/_{name}" if appears_early(files) else f"{at}/{name}"
            with files.open_output_stream(path) as stream:  # other stores show it when it is closed
                stream.write(data)
            if appears_early(files):
                replace_file(files, path, f"{at}/{name}")

    def links(self, names: Iterable[str]) -> list[str]:
        """Return the names that are links on this machine: another user may have put a link there."""
        return [name for name in names if self.is_local and Path(self.path, name).is_symlink()]

    def barred_by(self) -> str | None:
        """Return the local file or directory that keeps this user from writing at the place; None if none is known."""
        if not self.is_local:
            return None
        existing = next(str(one) for one in (Path(self.path), *Path(self.path).parents) if os.path.lexists(one))
        may_write = Path(existing).is_dir() and os.access(existing, os.W_OK | os.X_OK)
        return None if may_write else existing

    @staticmethod
    def _write_beside(directory: Path, name: str, text: str) -> None:
        """Write a new file beside the name, and move it there: a file or link at the name is replaced."""
        aside = directory / f"_{name}"
        aside.unlink(missing_ok=True)
        with aside.open("x", encoding="utf-8") as file:
            file.write(text)
        aside.replace(directory / name)

    def _opened(self) -> tuple[FileSystem, str]:
        from pyarrow.fs import LocalFileSystem

        if self.is_local:
            return LocalFileSystem(), self.path
        return open_address(self.place, self.place)


@contextmanager
def _one_sentence(place: str) -> Iterator[None]:
    """Turn an error of the file system into an UnavailableError of one sentence."""
    try:
        yield
    except store_errors(ValueError) as error:  # ValueError: names that are no text, invalid paths
        raise UnavailableError(f"{place} cannot be read or written: {words_of(error)}") from error


def write_savepoint(files: Files, savepoint: Savepoint) -> None:
    """Write the manifest, after everything else is written."""
    content = {name: value for name, value in asdict(savepoint).items() if name != "place"}
    files.write(SAVEPOINT_MANIFEST, json.dumps({"version": VERSION, **content}, sort_keys=True))


def read_savepoint(caller: str, place: str) -> Savepoint:
    """Read a savepoint. caller: the option that names it. Raises OptionError if there is none, FormatError."""
    if not place.strip():
        raise OptionError(f"{caller}: it is empty, the place of a savepoint is expected")
    text = Files(place).read(SAVEPOINT_MANIFEST)
    if text is None:
        raise OptionError(
            f"{caller}: there is no savepoint at {place}: make one with keyedwm savepoint CHECKPOINT {place}"
        )
    try:
        content = parse_json(text)
        version = content["version"]
        if version != VERSION:
            raise FormatError(
                f"{caller}: {place} has version {short_repr(version)}, this keyedwm reads version {VERSION}"
            )
        operators = {name: _operator_of(one) for name, one in content["operators"].items()}
        if not _are_objects(content["sources"]):
            raise TypeError("sources are no list of objects")
        return Savepoint(
            place=place, checkpoint=content["checkpoint"], batch=content["batch"], sources=content["sources"],
            operators=operators,
        )  # fmt: skip
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise FormatError(
            f"{caller}: the savepoint at {place} is damaged ({error_text(error)}): make it again"
        ) from error


def _operator_of(content: Mapping[str, Any]) -> OperatorState:
    operator = OperatorState(**content)
    if not (_are_objects(operator.manifests) and _are_objects(operator.states) and operator.manifests):
        raise TypeError("an operator has no list of manifests, or none of states")
    if not isinstance(operator.description, dict | None) or len(operator.manifests) != len(operator.states):
        raise TypeError("an operator has no plan, or another number of manifests than of states")
    return operator


def _are_objects(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(one, dict) for one in value)


def check_blobs(who: str, manifests: Sequence[Mapping[str, Any]], counts: Mapping[int, int]) -> None:
    """Raise FormatError if a bucket has more or fewer blobs than its manifest names: a partial copy would lose rows.

    counts: old bucket -> the number of its blobs, without the operator's manifest.
    """
    for bucket, manifest in enumerate(manifests):
        expected = len(manifest["blobs"].keys() - {_NOTE})
        if counts.get(bucket, 0) != expected:
            raise FormatError(
                f"{who} has {counts.get(bucket, 0)} blobs of bucket {bucket} under {STATE}, and {SAVEPOINT_MANIFEST} "
                f"lists {expected}: it is not whole; copy it once more, or make it again"
            )
