"""Manners of a Python worker, which Spark keeps and hands one task after another.

Rule: after every task Spark's worker walks all objects of the process for garbage. The modules and compiled code that
stay for its life are set aside once, so that the walk costs nothing (it was a quarter of a small task's time).
"""

from __future__ import annotations

import functools
import gc

# Python's own is 700.
_PLANNER_THRESHOLD = 100_000


@functools.cache
def settle_worker() -> None:
    """Call at the end of a task: what the process holds by then is never walked again."""
    gc.collect()
    gc.freeze()


@functools.cache
def settle_planner() -> None:
    """Call in a process that plans, once its modules are there: as above, and garbage is looked for more rarely.

    A planning makes 100,000s of objects over thousands of channels. They live until the next one and form no cycles,
    so walking them frees nothing; at Python's own threshold it was half of the time.
    """
    settle_worker()
    gc.set_threshold(_PLANNER_THRESHOLD)


def task_number() -> int:
    """The number of the Spark task that this process works on, 0 outside of one."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return 0 if context is None else context.partitionId()
