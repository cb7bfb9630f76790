"""The checks of this machine and of a session's settings."""

from __future__ import annotations

import pkgutil
import re
import sys
import warnings
from collections.abc import Iterator, Mapping
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from tempfile import TemporaryDirectory
from zipfile import ZipFile
from zipimport import zipimporter

import keyedwm
from keyedwm.cli.doctor.finding import Finding, fail, ok, warn
from keyedwm.runtime import compiled, private_dirs
from keyedwm.testing.java import JavaError, find_java, java_version

_LEAST_PYTHON = (3, 10)
_NEED = re.compile(r"^([A-Za-z0-9._-]+)((?:[<>=!~]=?[0-9.]+,?)*)$")
_BOUND = re.compile(r"(<=|>=|<|>|==)([0-9.]+)")
_MANY_PARTITIONS = 64


def look(variables: Mapping[str, str]) -> Iterator[Finding]:
    """Check Python, Java, the packages, the Python that Spark will start, and the cache of compiled code."""
    python = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info >= _LEAST_PYTHON:
        yield ok("Python", f"{python} at {sys.executable}")
    else:
        yield fail("Python", python, "install Python 3.10 or newer")
    yield java()
    yield ok("keyedwm", keyedwm.__version__)
    yield from packages()
    yield interpreter(variables)
    yield lookup()
    yield cache(variables)


def java() -> Finding:
    """Check the Java that Spark will find."""
    try:
        path = find_java()
    except JavaError as error:
        problem, _, fix = error.message.partition(": install ")
        return fail("Java", problem, f"install {fix or 'Java 17, 21 or 25'}")
    return ok("Java", f"{java_version(path)} at {path}")


def packages() -> Iterator[Finding]:
    """Check the packages that keyedwm requires: one line for all right packages, one line for each other."""
    right = []
    for text in requires("keyedwm") or []:
        need, _, marker = (part.strip() for part in text.partition(";"))
        match = _NEED.match(need.replace(" ", ""))
        if marker or match is None:
            continue
        name, bounds = match.groups()
        try:
            installed = version(name)
        except PackageNotFoundError:
            yield fail(name, "not installed", f"pip install '{need}'")
            continue
        if meets(installed, bounds):
            right.append(f"{name} {installed}")
        else:
            yield fail(name, f"{installed}, {bounds} is expected", f"pip install '{need}'")
    yield ok("packages", ", ".join(sorted(right)))


def meets(installed: str, bounds: str) -> bool:
    """Whether a version lies within bounds such as `>=2.2,<3`."""
    have = _numbers(installed)
    for sign, text in _BOUND.findall(bounds):
        bound = _numbers(text)
        least = max(len(have), len(bound))
        left, right = ((*numbers, *[0] * (least - len(numbers))) for numbers in (have, bound))
        if not {"<": left < right, ">": left > right, "<=": left <= right, ">=": left >= right}.get(
            sign, left == right
        ):
            return False
    return True


def _numbers(text: str) -> tuple[int, ...]:
    release = re.match(r"\d+(?:\.\d+)*", text)
    return tuple(int(part) for part in release[0].split(".")) if release else (0,)


def interpreter(variables: Mapping[str, str]) -> Finding:
    """Check which Python Spark starts with these variables."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        from keyedwm.spark.setup.interpreter import LOOKUP, WORKERS, complaint
    sentence = complaint(variables.get, too_late=False)
    subject = "Python of Spark"
    if sentence is None:
        return ok(subject, "the one that keyedwm is installed in")
    problem, _, fix = sentence.partition(": ")
    if WORKERS in variables or LOOKUP in variables:
        return fail(subject, problem, fix)
    return warn(
        subject, f"{WORKERS} is unset, so spark-submit and the pyspark shell start another Python",
        f"export {WORKERS}={sys.executable}, or import keyedwm.spark before a script creates its session",
    )  # fmt: skip


def lookup() -> Finding:
    """Check that Spark's search for formats gets past an archive on the path (issue 121342 of CPython, in 3.13)."""
    subject = 'search for format("keyedwm")'
    with TemporaryDirectory() as directory:
        archive = Path(directory) / "archive.zip"
        with ZipFile(archive, "w") as file:
            file.writestr("module.py", "")
        importer = zipimporter(str(archive))
        importer.invalidate_caches()
        try:
            list(pkgutil.iter_importer_modules(importer))  # type: ignore[attr-defined]
        except KeyError:
            return warn(
                subject, "this Python cannot list an archive such as pyspark.zip, so load() says DATA_SOURCE_NOT_FOUND",
                "from pyspark_wm_source import DefaultSource; spark.dataSource.register(DefaultSource)",
            )  # fmt: skip
    return ok(subject, "gets past archives on the path")


def cache(variables: Mapping[str, str]) -> Finding:
    """Check that compiled code can be kept, in a directory that only this user can write."""
    subject = "cache of compiled code"
    fix = "set NUMBA_CACHE_DIR to a directory of this user with mode 0700, on the workers too"
    refused = []
    for place in compiled.places(variables):
        why = private_dirs.unsafe(place)
        if why is None:
            return ok(subject, str(place))
        refused.append(f"{place} {why}")
    return warn(
        subject,
        f"{'; '.join(refused) or private_dirs.NO_PLACE}, so every worker process compiles again (some seconds)",
        fix,
    )


def look_at_settings(conf: Mapping[str, str]) -> Iterator[Finding]:
    """Check the settings that `aggregate` and small stateful queries depend on, if any are set outside the program."""
    if not conf:
        yield ok(
            "settings",
            "none were given; keyedwm.spark.session_conf() in the program sets what a query needs, and "
            "--conf NAME=VALUE has those of spark-submit checked",
        )
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        from keyedwm.spark.setup.conf import PARTITIONS, PROVIDER, ROCKSDB
    provider = conf.get(PROVIDER)
    if provider and provider.endswith("RocksDBStateStoreProvider"):
        yield ok("state store", "RocksDB")
    else:
        state = f"{PROVIDER} is {provider or 'not set'}, and keyedwm.spark.aggregate needs RocksDB"
        yield warn("state store", state, f"set {PROVIDER}={ROCKSDB}, as recommended_conf() does")
    partitions = conf.get(PARTITIONS, "200")
    if partitions.isascii() and partitions.isdecimal() and int(partitions) <= _MANY_PARTITIONS:
        yield ok("shuffle partitions", partitions)
    else:
        state = f"{PARTITIONS} is {partitions}{'' if PARTITIONS in conf else ' (the default)'}"
        fix = "set it to about the number of cores before the first run: the checkpoint keeps it"
        yield warn("shuffle partitions", state, fix)
