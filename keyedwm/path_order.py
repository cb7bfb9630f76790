"""Makes Spark's Python processes import PySpark from site-packages, which has byte-code, and not from `pyspark.zip`.

Rule: Spark puts the `pyspark.zip` of its installation first on the path of every process that it starts. Python keeps
no byte-code for a zip, so each process would compile PySpark again: a quarter of a second of processor time
(docs/design/decisions.md). If the same installation is also on the path as a package (`pip install pyspark`), its zip
moves to the end of the path. No other entry moves. If the JVM has a host (`keyedwm/runtime/early_host.py`), the
programs that Spark starts for each query run in processes forked from the host (`keyedwm/runtime/forked.py`). Python
runs this module at its start, from `keyedwm_path_order.pth`, so it imports only loaded modules. The .pth file removes
keyedwm from `sys.modules` again: a program may import another copy, which is earlier on its path (`--py-files`).
"""

import os.path
import sys

_INSIDE = "/pyspark/python/lib/"
# Spark starts this program first; it lists the data sources.
_FINDS = ("pyspark.daemon", "pyspark.sql.worker.lookup_data_sources")
# Programs of a query: they fork its workers, create its source, plan its batches and reads, name its state variables,
# and create and commit its writes.
_FORKED = (
    ("pyspark.daemon", "pyspark.worker"),
    ("pyspark.daemon", "pyspark.sql.worker.create_data_source"),
    ("pyspark.sql.streaming.python_streaming_source_runner",),
    ("pyspark.daemon", "pyspark.sql.worker.plan_data_source_read"),
    ("pyspark.sql.streaming.transform_with_state_driver_worker",),
    ("pyspark.daemon", "pyspark.sql.worker.write_into_data_source"),
    ("pyspark.daemon", "pyspark.sql.worker.python_streaming_sink_runner"),
    ("pyspark.daemon", "pyspark.sql.worker.commit_data_source_write"),
)


def zips_behind_packages(path: list[str]) -> list[str]:
    """Return the path with these zips at its end: those of PySpark installations whose package is on the path, too.

    Entries are compared with their links resolved: Spark's path and the environment's may differ by a link.
    """
    behind, packages = [], {os.path.realpath(entry) for entry in path}
    for entry in path:
        home, inside, name = entry.rpartition(_INSIDE)
        if inside and name.endswith(".zip") and os.path.realpath(home) in packages:
            behind.append(entry)
    return [entry for entry in path if entry not in behind] + behind


def _forked(program: list[str]) -> None:
    """Start the JVM's host beside the first program; run a query's program in a fork of the host, if there is one."""
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


# Python runs the .pth file twice if `lib64` is a link to `lib`, as in virtual environments.
_ONCE = "_keyedwm_path_order"
if any(_INSIDE in entry for entry in sys.path) and not hasattr(sys, _ONCE):
    setattr(sys, _ONCE, True)
    sys.path[:] = zips_behind_packages(sys.path)
    _forked(sys.orig_argv)
