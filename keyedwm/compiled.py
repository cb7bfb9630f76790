"""One decorator for compiled functions: cached on disk where a cache directory is writable, else compiled per process.

Rule: what it decorates checks its own bounds, as numba does not, and runs without the interpreter lock. The compiler is
loaded with the first call: planning and committing import the same modules, call none of these, and start without it.
"""

from __future__ import annotations

import functools
import logging
import threading
from collections.abc import Callable
from typing import Any, TypeVar, cast

_log = logging.getLogger(__name__)
_Function = TypeVar("_Function", bound=Callable)
_lock = threading.RLock()


class _Later:
    """Stands for a function until something compiled of its module is called for the first time."""

    def __init__(self, function: Callable, how: Callable[[Callable], Callable]) -> None:
        functools.update_wrapper(self, function)
        self._function, self._how = function, how
        self._made: Callable | None = None
        self._ready = False

    def __call__(self, *arguments: Any) -> Any:
        return self.made()(*arguments)

    def made(self) -> Callable:
        """Return the compiled function, which finds compiled functions wherever its module names them."""
        if not self._ready:
            with _lock:
                if self._made is None:
                    self._made = self._how(self._function)
                    names = self._function.__globals__
                    for name, value in list(names.items()):
                        if isinstance(value, _Later):
                            names[name] = value.made()
                    self._ready = True
        return cast("Callable", self._made)


def compiled(function: _Function) -> _Function:
    """Compile on first use; without a writable cache directory every process compiles anew (some seconds)."""
    return cast("_Function", _Later(function, _compiled))


def bare(function: _Function) -> _Function:
    """Compile code that makes no arrays, so that those it is given are not counted: a call costs a quarter."""
    return cast("_Function", _Later(function, functools.partial(_compiled, _nrt=False)))


def inlined(function: _Function) -> _Function:
    """Compile into each caller: a call that returns two numbers costs more than reading one. Same file only (cache)."""
    return cast("_Function", _Later(function, _inlined))


def _compiled(function: Callable, **how: bool) -> Callable:
    import numba

    try:
        return cast("Callable", numba.njit(cache=True, nogil=True, **how)(function))
    except RuntimeError as error:
        # numba raises this while decorating, when no place for its cache is writable
        if "cannot cache function" not in str(error):
            raise
        _warn_once()
        return cast("Callable", numba.njit(nogil=True, **how)(function))


def _inlined(function: Callable) -> Callable:
    import numba

    return cast("Callable", numba.njit(inline="always", nogil=True)(function))


@functools.cache
def _warn_once() -> None:
    _log.warning(
        "no directory for compiled code is writable, so every process compiles anew (some seconds): "
        "set NUMBA_CACHE_DIR to a writable one"
    )
