"""The byte code of every module that a task or a planning imports: installers may leave it to the first import."""

from __future__ import annotations

import compileall
import importlib.util
import sys
from importlib import import_module
from pathlib import Path

from keyedwm import daemon

# What other processes of a query import: planning, committing, the writers, and transformWithState's messages.
_PROCESSES = (
    "pyspark.daemon",
    "pyspark_wm_source.driver.planner",
    "pyspark_wm_sink.delta.writer",
    "pyspark_wm_sink.kafka.writer",
    "pyspark_wm_sink.tables.writer",
    "keyedwm.spark",
    "pyspark.sql.streaming.proto.StateMessage_pb2",
)


def import_all() -> None:
    """Import what a query's processes import; the byte code is left to `compile_all`, which counts it."""
    before, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        for name in (*daemon.READING, *daemon.OPERATORS, *_PROCESSES):
            import_module(name)
    finally:
        sys.dont_write_bytecode = before


def compile_all() -> tuple[int, int]:
    """Compile every imported module that has no byte code of its newest text; how many were made, how many were there.

    A module in a directory that this user may not write to is passed over, as Python itself does.
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
