"""Manners of a Python worker, which Spark keeps and hands one task after another.

Rule: after every task Spark's worker walks all objects of the process for garbage. The modules and compiled code that
stay for its life are set aside once, so that the walk costs nothing (it was a quarter of a small task's time).
"""

from __future__ import annotations

import functools
import gc


@functools.cache
def settle_worker() -> None:
    """Call at the end of a task: what the process holds by then is never walked again."""
    gc.collect()
    gc.freeze()


def task_number() -> int:
    """The number of the Spark task that this process works on, 0 outside of one."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return 0 if context is None else context.partitionId()
