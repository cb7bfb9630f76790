"""Lets Spark's Python processes take PySpark from site-packages, where it has byte-code, and not from `pyspark.zip`.

Rule: Spark puts `pyspark.zip` of its own installation first on the path of every process that it starts, and Python
keeps no byte-code for a zip: each process compiles PySpark for itself, a quarter of a second of processor time at each
start (docs/design/decisions.md). Where the same installation is on the path as a package too (`pip install
pyspark`), the zip goes behind it: the very same files. No other entry moves. Processes that Spark starts by
name for each query are forked instead where a session has `keyedwm.daemon` (`keyedwm/runtime/forked.py`).
Python runs this at its start, from `keyedwm_path_order.pth`; so it imports nothing that is not loaded then. That file
forgets the package again: what a program imports may be another copy, which comes earlier on its path (`--py-files`).
"""

import os.path
import sys

_INSIDE = "/pyspark/python/lib/"
# The program that finds data sources comes before all others.
_FINDS = ("pyspark.daemon", "pyspark.sql.worker.lookup_data_sources")
# Those of a query: they make its source, plan its reads, cut its batches, name its state, and set up and commit its
# writes.
_FORKED = (
    ("pyspark.daemon", "pyspark.sql.worker.create_data_source"),
    ("pyspark.sql.streaming.python_streaming_source_runner",),
    ("pyspark.daemon", "pyspark.sql.worker.plan_data_source_read"),
    ("pyspark.sql.streaming.transform_with_state_driver_worker",),
    ("pyspark.daemon", "pyspark.sql.worker.write_into_data_source"),
    ("pyspark.daemon", "pyspark.sql.worker.python_streaming_sink_runner"),
    ("pyspark.daemon", "pyspark.sql.worker.commit_data_source_write"),
)


def zips_behind_packages(path: list[str]) -> list[str]:
    """Return the path with the zips of PySpark installations that are on it as packages at its end.

    An environment may be reached by another path than Spark's, through a link.
    """
    behind, packages = [], {os.path.realpath(entry) for entry in path}
    for entry in path:
        home, inside, name = entry.rpartition(_INSIDE)
        if inside and name.endswith(".zip") and os.path.realpath(home) in packages:
            behind.append(entry)
    return [entry for entry in path if entry not in behind] + behind


def _forked(program: list[str]) -> None:
    """Let what such a process is for be done by one that is forked, where there is one to fork from."""
    target = tuple(program[2:]) if program[1:2] == ["-m"] else ()
    before = set(sys.modules)
    if target == _FINDS:  # imported here, not by each Python that starts
        from keyedwm.runtime import early_host

        early_host.start()
    elif target in _FORKED:
        from keyedwm.runtime.forked import run_where_loaded

        run_where_loaded(*target)
    for name in set(sys.modules) - before:
        if name.partition(".")[0] == "keyedwm":
            del sys.modules[name]


# Python reads the file twice where `lib64` is a link to `lib`, as in virtual environments.
_ONCE = "_keyedwm_path_order"
if any(_INSIDE in entry for entry in sys.path) and not hasattr(sys, _ONCE):
    setattr(sys, _ONCE, True)
    sys.path[:] = zips_behind_packages(sys.path)
    _forked(sys.orig_argv)
