"""The parent of Spark's Python workers, which loads our modules and compiled code once, before it forks them.

Rule: a session names it in `spark.python.daemon.module` (`keyedwm.spark.session_conf()`), nobody else does. A session
with a daemon module of its own keeps it, and its workers load for themselves. Beside the loading, and an end without a
traceback after Spark's end, it is PySpark's own daemon. The loaded modules leave no thread that a worker would miss,
only pools that are created again after a fork. A JVM has several such parents; only the first loads (`forked`).
"""

from __future__ import annotations

import functools
import gc
import glob
import os
import sys
from collections.abc import Iterator
from fnmatch import fnmatchcase
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from zipimport import zipimporter

from keyedwm.runtime import early_host
from keyedwm.runtime.forked import serve
from keyedwm.runtime.worker import quiet

# What planning and tasks import that read (a socket that is opened by name, the codec of host names); what those of
# operators do beside it. Absent are writers (the store clients of deltalake have threads) and protobuf, of which
# users bring a version of their own with their generated code (`--py-files`).
READING = (
    "encodings.idna",
    "pyspark.worker",
    "pyarrow.compute",
    "numba",
    "pyspark_wm_source.task.scan",
    "pyspark_wm_source.task.items",
    "pyspark_wm_source.driver.planner",
)
OPERATORS = (
    "pandas",
    "keyedwm.spark.hosting.stage_one",
    "keyedwm.spark.hosting.bucket",
    "keyedwm.spark.hosting.bucket_batch",
    "keyedwm.spark.hosting.unpack",
)
# What Spark puts on the path of its Python processes, below its home.
_ARCHIVES = ("python/lib/pyspark.zip", "python/lib/py4j-*-src.zip", "jars/spark-core_*.jar")


def load_reading() -> Iterator[None]:
    """Load what tasks need that read."""
    yield from _load(READING)
    # Each worker would draw the same numbers, in functions of the user too.
    os.register_at_fork(after_in_child=import_module("numpy.random").seed)


def load_operators() -> Iterator[None]:
    """Load what tasks of operators need beside that."""
    yield from _load(OPERATORS)


def load() -> Iterator[None]:
    """Load what all tasks need."""
    yield from load_reading()
    yield from load_operators()


def _load(modules: tuple[str, ...]) -> Iterator[None]:
    """Load modules step by step, as something may be forked between two."""
    for _ in _steps(modules):
        forget_archives_of_spark()
        yield
    # What all workers share is never collected, so it stays shared.
    gc.collect()
    gc.freeze()


def _steps(modules: tuple[str, ...]) -> Iterator[None]:
    """Import modules, and load their functions that an earlier process has compiled."""
    for name in modules:
        import_module(name)
        yield
    yield from import_module("keyedwm.runtime.compiled").load_cached()
    yield


def forget_archives_of_spark() -> None:
    """Drop what Python keeps of Spark's own archives on its path, of which the largest has 6,000 files.

    The first task of each worker puts a directory on the path, so PySpark lets Python refresh all that it keeps: each
    worker read the lists of files in these archives again, which never change while Spark runs. Those of users do.
    """
    homes = _homes()
    for entry, finder in list(sys.path_importer_cache.items()):
        if isinstance(finder, zipimporter):
            archive = os.path.realpath(finder.archive)
            if any(fnmatchcase(archive, f"{home}/{name}") for home in homes for name in _ARCHIVES):
                del sys.path_importer_cache[entry]


@functools.cache
def _homes() -> list[str]:
    """Where Spark may be: the installation that started this process, and PySpark as a package."""
    package = find_spec("pyspark")
    places = [os.environ.get("SPARK_HOME"), *((package and package.submodule_search_locations) or ())]
    return [glob.escape(os.path.realpath(place)) for place in places if place]


def manage() -> None:
    """Fork workers as Spark asks for them, until it leaves."""
    daemon = import_module("pyspark.daemon")
    daemon.worker = quiet(daemon.worker)  # type: ignore[attr-defined]
    daemon.manager()


if __name__ == "__main__":
    match sys.argv[1:]:
        case [place, end]:
            early_host.serve(Path(place), int(end), load_reading, load_operators, manage)
        case _:
            serve(load, manage)
