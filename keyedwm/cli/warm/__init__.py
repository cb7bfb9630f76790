"""`keyedwm warm`: what a first query would make, made ahead of it, on this host and for this user.

It makes byte code, compiled functions and the CDS archive of the driver's JVM.

Rule: it only fills caches that any task would fill, so it may be run again, and beside running queries. Each round runs
a few records through the product's own code, with a task's types, so no list of signatures can be out of date.
"""

from __future__ import annotations

import argparse
import compileall
import importlib.util
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

HELP = "make ahead of time what the first query would make: compiled functions, a CDS archive"
EXAMPLE = "keyedwm warm"
PAGE = "docs/how-to/speed.md"
# The modules that other processes of a query import: planning, committing, the writers, and transformWithState's
# messages; and those that a task imports for values with a schema.
_PROCESSES = (
    "pyspark.daemon",
    "pyspark_wm_source.driver.planner",
    "pyspark_wm_source.task.decoding",
    "pyspark_wm_sink.delta.publish",
    "pyspark_wm_sink.kafka.writer",
    "pyspark_wm_sink.tables.writer",
    "keyedwm.spark",
    "pyspark.sql.streaming.proto.StateMessage_pb2",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """--worker. NUMBA_CACHE_DIR is the directory of compiled code, as for queries."""
    parser.add_argument(
        "--worker", action="store_true", help="this host only runs tasks: write no CDS archive of the driver's JVM"
    )


def run(args: argparse.Namespace) -> int:
    """Fill the caches and report it; 1 if there is no directory for compiled code, or Java wrote no archive."""
    from keyedwm.runtime.compiled import cache_directory, kept_signatures, left_to_compile

    print(f"for {sys.prefix} (Python {sys.version.split()[0]})", flush=True)
    import_all()
    compiled_count, there = compile_all()
    print(f"byte code: {compiled_count} modules compiled, {there} were", flush=True)
    directory = cache_directory()
    if directory is None:
        print("FAIL: no directory that compiled code may be kept in, see the warning: each process compiles again")
        return 1
    parts = rounds()  # imports the modules whose functions are counted
    before = kept_signatures()
    for name, play in parts.items():
        print(f"compiling: {name}", flush=True)
        play()
    after = kept_signatures()
    print(f"compiled functions: {after - before} made, {before} were, in {directory}")
    if left := left_to_compile():
        print(f"left to the first task that needs them: {', '.join(left)}")
    return 0 if args.worker else make_archive()


def make_archive() -> int:
    """Write the CDS archive and report it; 1 if Java wrote none."""
    from keyedwm.cli.warm.cds_archive import write_archive

    outcome = write_archive()
    print(f"{'FAIL: ' if outcome.failed else ''}CDS archive of the driver's JVM: {outcome.text}")
    return 1 if outcome.failed else 0


def rounds() -> dict[str, Callable[[], None]]:
    """Return the parts of a query that compile."""
    from keyedwm.cli.warm import reading, windowing

    return {
        "reading: record batches, event times, watermarks, partials": reading.read_records_once,
        "reading: values with a schema": reading.read_values_once,
        "writing: record batches, partitions, the check of what was published": reading.write_records_once,
        "writing: values with a schema": reading.write_values_once,
        "windows: tumbling, sliding and session, with every aggregate": windowing.close_windows_once,
        "many keys with watermarks of their own": windowing.find_many_keys_once,
        "duplicates": windowing.leave_duplicates_out_once,
        "joins, and the latest change": windowing.join_rows_once,
    }


def import_all() -> None:
    """Import what a query's processes import; the byte code is left to `compile_all`, which counts it."""
    from keyedwm import daemon

    before, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        for name in (*daemon.READING, *daemon.OPERATORS, *_PROCESSES):
            import_module(name)
    finally:
        sys.dont_write_bytecode = before


def compile_all() -> tuple[int, int]:
    """Compile every imported module without byte code of its present text; return the numbers of new and existing ones.

    A module in a directory that this user may not write to is skipped, as Python itself does.
    """
    compiled_count = there = 0
    for source in sorted(_sources()):
        cached = Path(importlib.util.cache_from_source(source))
        stamp = cached.stat().st_mtime_ns if cached.exists() else None
        compileall.compile_file(source, quiet=2)
        if cached.exists():
            same = cached.stat().st_mtime_ns == stamp
            compiled_count, there = compiled_count + (not same), there + same
    return compiled_count, there


def _sources() -> set[str]:
    files = (getattr(module, "__file__", None) for module in list(sys.modules.values()))
    return {file for file in files if file and file.endswith(".py") and Path(file).is_file()}
