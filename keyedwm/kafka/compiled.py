"""One decorator for compiled functions: cached on disk where a cache directory is writable, else compiled per process.

Rule: whatever it decorates releases the interpreter lock, checks its own bounds and allocates nothing that grows.
"""

from __future__ import annotations

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
        if "cache" not in str(error):
            raise
        _log.warning(
            "no writable directory for compiled code, every process compiles anew; set NUMBA_CACHE_DIR to change that"
        )
        return numba.njit(nogil=True)(function)
