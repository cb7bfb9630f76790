"""Jars from a Maven registry, fetched once into a cache, by the Apache Ivy that PySpark contains.

Rule: a directory of the cache is complete or absent. It is filled in another place and renamed under a lock. So several
processes may need one directory at once, and a process that dies half way leaves no directory.

A jar whose SHA-256 is not the one in jars.txt is an error. A line of jars.txt changes only with the version in the
jar's name.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType

from keyedwm.core.errors import OptionError, UnavailableError
from keyedwm.testing.java import complaint, find_java


def read_hashes(path: Path) -> dict[str, str]:
    """Return file name -> SHA-256 from a list in the format of `sha256sum`, one file a line."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return {name: digest for digest, name in (line.split() for line in lines)}


HASHES: Mapping[str, str] = MappingProxyType(read_hashes(Path(__file__).parent / "jars.txt"))
QUIET_S = 2.0
REPORT_S = 10.0
STALLED_S = 120.0
_PIECE_BYTES = 1 << 20


def cache_dir() -> Path:
    """Return KEYEDWM_CACHE, or `keyedwm` under XDG_CACHE_HOME or ~/.cache."""
    own = os.environ.get("KEYEDWM_CACHE")
    if own:
        return Path(own).expanduser().absolute()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache").absolute() / "keyedwm"


def fetch_jars(
    name: str, coordinates: Sequence[str], *, transitive: bool = True, hashes: Mapping[str, str] = HASHES
) -> list[Path]:
    """Return the jars of these coordinates, sorted by name. name: their common name in messages and in the cache.

    A coordinate is `group:artifact:version`, with a fourth part for a jar with a classifier. transitive: whether to
    fetch their dependencies, too. hashes: name of a jar -> its SHA-256. Raises UnavailableError if the registry does
    not answer, lacks a jar, or has one with another SHA-256.
    """
    key = hashlib.sha256("\n".join([*sorted(coordinates), str(transitive)]).encode()).hexdigest()[:8]

    def fill(jars: Path) -> None:
        _fill(jars, name, coordinates, transitive=transitive)
        _check(sorted(jars.glob("*.jar")), hashes)

    home = kept_once(cache_dir() / "jars" / f"{name}-{key}", fill)
    return sorted(home.glob("*.jar"))


def fetch_archive(name: str, coordinate: str, *, hashes: Mapping[str, str] = HASHES) -> Path:
    """Return a directory with the content of a tar archive, which is checked as jars are.

    coordinate: `group:artifact:version:classifier:tar.gz`.
    """

    def fill(home: Path) -> None:
        packed = home.parent / "packed"
        _fill(packed, name, [coordinate], transitive=False)
        (archive,) = _fetched(packed)
        _check([archive], hashes)
        with tarfile.open(archive) as tar:
            tar.extractall(home, filter="data")

    return kept_once(cache_dir() / "archives" / f"{name}-{hashlib.sha256(coordinate.encode()).hexdigest()[:8]}", fill)


def kept_once(home: Path, fill: Callable[[Path], None]) -> Path:
    """Return a directory of the cache; if it is not there yet, `fill` fills it in another place first."""
    if not home.is_dir():
        with _lock(home.with_name(f"{home.name}.lock")):
            if not home.is_dir():
                with tempfile.TemporaryDirectory(prefix=".fetch-", dir=home.parent) as aside:
                    fill(Path(aside) / "whole")
                    (Path(aside) / "whole").rename(home)
    return home


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = path.open("w")
    except OSError as error:
        raise OptionError(
            f"cannot write the cache {path.parent} ({error.strerror}): set KEYEDWM_CACHE to a directory of yours"
        ) from error
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _fill(jars: Path, name: str, coordinates: Sequence[str], *, transitive: bool) -> None:
    work = jars.parent
    (work / "ivy.xml").write_text(_ivy_module(coordinates, transitive=transitive))
    _run_ivy(work, jars, name)
    if not _fetched(jars):
        raise UnavailableError(f"the Maven registry gave no jar for {', '.join(coordinates)}")


def _fetched(directory: Path) -> list[Path]:
    return sorted(path for path in directory.glob("*") if path.suffix in {".jar", ".gz"})


def _check(jars: Sequence[Path], hashes: Mapping[str, str]) -> None:
    for jar in jars:
        digest = hash_of(jar)
        if digest != hashes.get(jar.name):
            raise UnavailableError(
                f"{jar.name} from the Maven registry has the SHA-256 {digest}, not the expected one: "
                "it is another file than before, or a version was changed without its hash"
            )


def hash_of(file: Path) -> str:
    """Return a file's SHA-256. The file is read in pieces: some jars have hundreds of megabytes."""
    digest = hashlib.sha256()
    with file.open("rb") as data:
        while piece := data.read(_PIECE_BYTES):
            digest.update(piece)
    return digest.hexdigest()


def _ivy_module(coordinates: Sequence[str], *, transitive: bool) -> str:
    lines = []
    for coordinate in coordinates:
        parts = coordinate.split(":")
        if not 3 <= len(parts) <= 5:
            raise OptionError(f"coordinate {coordinate!r} is not group:artifact:version")
        group, artifact, version, *classifier = parts[:4]
        kind = parts[4] if len(parts) == 5 else "jar"
        of_classifier = "".join(
            f'<artifact name="{artifact}" type="{kind}" ext="{kind}" m:classifier="{one}"/>' for one in classifier
        )
        lines.append(
            f'<dependency org="{group}" name="{artifact}" rev="{version}" conf="default" '
            f'transitive="{str(transitive).lower()}">{of_classifier}</dependency>'
        )
    return (
        '<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">'
        '<info organisation="keyedwm" module="jars"/><dependencies>' + "".join(lines) + "</dependencies></ivy-module>"
    )


def _run_ivy(work: Path, jars: Path, name: str) -> None:
    log = work / "log"
    command: list[str | Path] = [
        find_java(), "-cp", _ivy_jar(), "org.apache.ivy.Main", "-cache", work / "cache", "-ivy", work / "ivy.xml",
        "-confs", "default", "-types", "jar", "bundle", "tar.gz", "-retrieve",
        jars / "[artifact]-[revision](-[classifier]).[ext]",
    ]  # fmt: skip
    with log.open("w") as out, subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, cwd=work) as ivy:
        try:
            code = _watch(ivy, log, name)
        finally:
            ivy.kill()
    if code != 0:
        output = log.read_text(errors="replace")
        raise UnavailableError(
            f"could not fetch the jars of {name}: the Maven registry did not answer or lacks one ({complaint(output)})"
        )


def _watch(ivy: subprocess.Popen, log: Path, name: str) -> int | None:
    """Return Ivy's exit code, None if it made no progress for STALLED_S; print its progress to stderr after QUIET_S."""
    size, since, patience_s = 0, time.monotonic(), QUIET_S
    while True:
        try:
            return ivy.wait(patience_s)
        except subprocess.TimeoutExpired:
            output = log.read_text(errors="replace")
            print(
                f"fetching {name}: {output.count(chr(9) + 'found ')} jars found, {output.count('[SUCCESSFUL ]')} "
                f"fetched (once; kept in {cache_dir()})",
                file=sys.stderr,
            )
            patience_s = REPORT_S
        if log.stat().st_size != size:
            size, since = log.stat().st_size, time.monotonic()
        elif time.monotonic() - since > STALLED_S:
            return None


def _ivy_jar() -> Path:
    spec = find_spec("pyspark")
    jars = sorted(Path(spec.origin).parent.glob("jars/ivy-*.jar")) if spec and spec.origin else []
    if not jars:
        raise UnavailableError(
            "found no jars/ivy-*.jar in the installed PySpark: install pyspark 4.2 or newer from PyPI"
        )
    return jars[-1]
