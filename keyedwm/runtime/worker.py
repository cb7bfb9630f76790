"""Python workers: their garbage collection and end, the number of their task, and the check of their version.

Rule: Spark gives a Python worker one task after another, and after every task the worker runs a full garbage
collection. Modules and compiled code stay for the worker's whole life, so they are frozen once. A collection then does
not visit them, which took a quarter of a small task's time.
"""

from __future__ import annotations

import functools
import gc
import os
import socket
import sys
from collections.abc import Callable
from types import TracebackType
from typing import Any, TypeVar

from keyedwm import __version__
from keyedwm.core.error_codes import code_of
from keyedwm.core.errors import KeyedwmError

_Kind = TypeVar("_Kind")


class VersionError(KeyedwmError):
    """A worker has another version of this package than the driver."""

    advice = "install the same version on driver and workers, or ship the driver's environment"


# Python's own is 700.
_PLANNER_THRESHOLD = 100_000


@functools.cache
def freeze_gc() -> None:
    """Freeze the objects of this process, once; call it at the end of a task. Later collections do not visit them."""
    gc.collect()
    gc.freeze()


@functools.cache
def freeze_planner_gc() -> None:
    """Freeze the objects of a planner once its modules are loaded, and make later collections rarer.

    The plan of a batch has 100,000s of objects over thousands of channels. They live until the next plan and form no
    cycles, so a collection frees nothing; at Python's own threshold collections took half of the time.
    """
    freeze_gc()
    gc.set_threshold(_PLANNER_THRESHOLD)


def task_number() -> int:
    """The number of the Spark task that this process works on, 0 outside of one."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return 0 if context is None else context.partitionId()


def quiet(worker: Callable[..., int]) -> Callable[..., int]:
    """Wrap PySpark's worker function: the worker exits without a traceback when Spark has closed the connection.

    Spark also closes workers that were idle for a minute; each would fail to answer, with a traceback.
    """

    @functools.wraps(worker)
    def work(sock: socket.socket, authenticated: bool) -> int:
        try:
            return worker(sock, authenticated)
        except (BrokenPipeError, ConnectionResetError):
            os._exit(1)

    return work


_CHATTY = "pyspark.sql.streaming.transform_with_state_driver_worker"


@functools.cache
def leave_quietly() -> None:
    """Make this process of Spark end without a traceback as with `quiet`, even if no daemon of ours has started it.

    PySpark's own daemon forks workers; other processes run a module of PySpark, and fail to answer a query that ended.
    """
    main = sys.modules.get("__main__")
    spec = getattr(main, "__spec__", None)
    if main is None or spec is None or not spec.name.startswith("pyspark."):
        return
    if spec.name == "pyspark.daemon":
        main.worker = quiet(main.worker)  # type: ignore[attr-defined]
        return
    sys.excepthook = _unless_spark_left(sys.excepthook)


def hush() -> None:
    """Stop the prints of the process that Spark starts once a query to ask an operator for its state variables."""
    main = sys.modules.get("__main__")
    if getattr(getattr(main, "__spec__", None), "name", None) == _CHATTY:
        main.print = _say_nothing  # type: ignore[union-attr]


def _unless_spark_left(report: Callable[..., None]) -> Callable[..., None]:
    """Return a hook for errors that end the process; it reports all of them but those of a closed connection."""

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if issubclass(kind, (BrokenPipeError, ConnectionResetError)):
            os._exit(1)
        report(kind, error, trace)

    return hook


def _say_nothing(*_texts: object) -> None:
    """Print nothing."""


# The worker runs this before it imports `arrived`, which an older version of this package on the worker may lack.
_GATE = f"""
import importlib.util, socket, sys
at = "on host %s" % socket.gethostname()
if not importlib.util.find_spec("keyedwm"):
    raise ModuleNotFoundError("No module named 'keyedwm' %s (in %s)" % (at, sys.prefix))
from keyedwm.runtime import worker
if not hasattr(worker, "arrived"):
    raise ImportError("keyedwm.runtime.worker: the worker %s has an older keyedwm (in %s) than the driver, "
                      "which has {__version__} ({code_of(VersionError)}) [{VersionError.advice}]" % (at, sys.prefix))
arrived = worker.arrived
"""


class VersionChecked:
    """Base of the classes that Spark pickles for its executors.

    An executor without keyedwm, or with another version of it, raises an error that names the host.
    """

    __slots__ = ()

    def __reduce__(self) -> tuple[Any, ...]:
        # The version check comes first: its error comes before that of a name which the other version lacks.
        state = getattr(self, "__getstate__", lambda: self.__dict__)()  # Python 3.10 has no default
        return _Gate(), (_SentBy(__version__), type(self), state)


class _Gate:
    """Stands for `arrived` in a pickle: a worker without the package could not import `arrived`."""

    def __reduce__(self) -> tuple[Any, ...]:
        return eval, ("exec(gate, names) or names['arrived']", {"gate": _GATE, "names": {}})

    def __call__(self, sent_by: str, kind: type[_Kind], state: Any) -> _Kind:
        """Copy an object within this process, as `copy.copy` asks for; `arrived` does so."""
        return arrived(sent_by, kind, state)


class _SentBy:
    """The sender's version; unpickling it checks it."""

    def __init__(self, version: str) -> None:
        self._version = version

    def __reduce__(self) -> tuple[Any, ...]:
        return require_version, (self._version,)


def require_version(sent_by: str) -> str:
    """Raise VersionError, which names this host, if this process has another version than the sender of its work."""
    if sent_by != __version__:
        raise VersionError(
            f"the worker on host {socket.gethostname()} has keyedwm {__version__} (in {sys.prefix}), "
            f"and the driver {sent_by}"
        )
    return sent_by


def arrived(_sent_by: str, kind: type[_Kind], state: Any) -> _Kind:
    """Build the sent object on the worker. `_GATE` imports this function by its name."""
    leave_quietly()
    hush()
    value = kind.__new__(kind)
    if hasattr(value, "__setstate__"):
        value.__setstate__(state)
    else:
        value.__dict__.update(state or {})
    return value
