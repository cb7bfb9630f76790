"""The parent process of Spark's Python workers: it loads our modules and compiled code once, before it forks workers.

Rule: a session names this module in `spark.python.daemon.module` (`keyedwm.spark.session_conf()`). If a local session
names none, the source starts this module as its host (`early_host`). Otherwise each worker loads our modules itself.
This module adds to PySpark's own daemon the loading, and workers that end without a traceback after Spark's end. The
loaded modules start no thread that a worker would miss, only pools that are created again after a fork. A JVM has
several such parents; only the first loads (`forked`).
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

# READING: the modules of planners and of tasks that read (`encodings.idna` is the codec of host names). OPERATORS: the
# further modules of operators' tasks. Neither has writers (the store clients of deltalake have threads) or protobuf:
# users bring their own version of protobuf with their generated code (`--py-files`).
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
# Modules of compiled functions that each query calls, and each operator. A worker loads another function when it first
# calls it, in 4 ms: a query calls few of the 150 functions that all kinds of queries call together.
READING_CODE = ("keyedwm.kafka.records.batches", "keyedwm.kafka.records.decode")
OPERATORS_CODE = ("keyedwm.operators.kernels",)
# Archives below Spark's home that Spark puts on the path of its Python processes.
_ARCHIVES = ("python/lib/pyspark.zip", "python/lib/py4j-*-src.zip", "jars/spark-core_*.jar")


def load_reading() -> Iterator[None]:
    """Load the modules of tasks that read, one in each step."""
    yield from _load(READING, READING_CODE)
    # With one seed all workers would draw the same random numbers, in users' functions too.
    os.register_at_fork(after_in_child=import_module("numpy.random").seed)


def load_operators() -> Iterator[None]:
    """Load the further modules of operators' tasks, one in each step."""
    yield from _load(OPERATORS, OPERATORS_CODE)


def load() -> Iterator[None]:
    """Load the modules of all tasks, one in each step."""
    yield from load_reading()
    yield from load_operators()


def _load(modules: tuple[str, ...], code: tuple[str, ...]) -> Iterator[None]:
    """Load modules step by step: the host may fork a process between two steps."""
    for _ in _steps(modules, code):
        forget_archives_of_spark()
        yield
    # A collection does not visit frozen objects, so workers continue to share their memory.
    gc.collect()
    gc.freeze()


def _steps(modules: tuple[str, ...], code: tuple[str, ...]) -> Iterator[None]:
    """Import modules, then load what an earlier process has compiled of the functions of some modules."""
    for name in modules:
        import_module(name)
        yield
    yield from import_module("keyedwm.runtime.compiled").load_cached(code)
    yield


def forget_archives_of_spark() -> None:
    """Drop Python's cached file lists of Spark's own archives on its path; the largest archive has 6,000 files.

    The first task of each worker adds a directory to the path, so PySpark makes Python refresh all cached lists. Each
    worker would read the lists of these archives again, though the archives never change while Spark runs. The lists
    of users' archives stay: these archives can change.
    """
    homes = _homes()
    for entry, finder in list(sys.path_importer_cache.items()):
        if isinstance(finder, zipimporter):
            archive = os.path.realpath(finder.archive)
            if any(fnmatchcase(archive, f"{home}/{name}") for home in homes for name in _ARCHIVES):
                del sys.path_importer_cache[entry]


@functools.cache
def _homes() -> list[str]:
    """Return the homes that Spark may have: SPARK_HOME, and PySpark's package."""
    package = find_spec("pyspark")
    places = [os.environ.get("SPARK_HOME"), *((package and package.submodule_search_locations) or ())]
    return [glob.escape(os.path.realpath(place)) for place in places if place]


def manage() -> None:
    """Fork workers as Spark asks for them, until Spark ends."""
    daemon = import_module("pyspark.daemon")
    daemon.worker = quiet(daemon.worker)  # type: ignore[attr-defined]
    daemon.manager()


if __name__ == "__main__":
    match sys.argv[1:]:
        case [place, end]:
            early_host.serve(Path(place), int(end), load_reading, load_operators, manage)
        case _:
            serve(load, manage)
