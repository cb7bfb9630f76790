"""One decorator for compiled functions: cached on disk where a cache directory is writable, else compiled per process.

Rule: what it decorates checks its own bounds, as numba does not, and runs without the interpreter lock.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import TypeVar

import numba

_log = logging.getLogger(__name__)
_Function = TypeVar("_Function", bound=Callable)


def compiled(function: _Function) -> _Function:
    """Compile on first use; without a writable cache directory every process compiles anew (some seconds)."""
    try:
        return numba.njit(cache=True, nogil=True)(function)
    except RuntimeError as error:
        # numba raises this while decorating, when no place for its cache is writable
        if "cannot cache function" not in str(error):
            raise
        _warn_once()
        return numba.njit(nogil=True)(function)


def inlined(function: _Function) -> _Function:
    """Compile into each caller: a call that returns two numbers costs more than reading one. Same file only (cache)."""
    return numba.njit(inline="always", nogil=True)(function)


@functools.cache
def _warn_once() -> None:
    _log.warning(
        "no directory for compiled code is writable, so every process compiles anew (some seconds): "
        "set NUMBA_CACHE_DIR to a writable one"
    )
