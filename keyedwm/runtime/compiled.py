"""Decorators for compiled functions: cached on disk in a private directory, else compiled in every process.

Rule: cached functions are code, so they are read only from a directory of this user alone (`private_dirs`). numba does
not check bounds, so decorated functions must. They run without the interpreter lock. The first call loads the compiler:
processes that plan or commit import the same modules, call no compiled function, and start without the compiler.
"""

from __future__ import annotations

import functools
import logging
import os
import threading
from collections.abc import Callable, Container, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar, cast

from keyedwm.runtime import private_dirs

_log = logging.getLogger(__name__)
_Function = TypeVar("_Function", bound=Callable)
_lock = threading.RLock()
_all: list[_Later] = []


class _Later:
    """Stands for a function until a compiled function of its module is called for the first time."""

    def __init__(self, function: Callable, how: Callable[[Callable], Callable]) -> None:
        functools.update_wrapper(self, function)
        self._function, self._how = function, how
        self._dispatcher: Callable | None = None
        self._ready = False
        _all.append(self)

    def __call__(self, *arguments: Any) -> Any:
        return self.dispatcher()(*arguments)

    def dispatcher(self) -> Callable:
        """Return the compiled function; its module's names then lead to compiled functions, too, which it can call."""
        if not self._ready:
            with _lock:
                if self._dispatcher is None:
                    self._dispatcher = self._how(self._function)
                    names = self._function.__globals__
                    for name, value in list(names.items()):
                        if isinstance(value, _Later):
                            names[name] = value.dispatcher()
                    self._ready = True
        return cast("Callable", self._dispatcher)


def compiled(function: _Function) -> _Function:
    """Compile on first use; without a private cache directory every process compiles again (some seconds)."""
    return cast("_Function", _Later(function, _compiled))


def bare(function: _Function) -> _Function:
    """Compile code that creates no arrays: numba then counts no references to arguments, and a call costs a quarter."""
    return cast("_Function", _Later(function, functools.partial(_compiled, _nrt=False)))


def inlined(function: _Function) -> _Function:
    """Compile into each caller, in the same file: a call that returns two numbers costs more than reading one."""
    return cast("_Function", _Later(function, _inlined))


def _compiled(function: Callable, **how: bool) -> Callable:
    import numba

    from keyedwm.runtime.numba_cache import KeptCode

    result = numba.njit(nogil=True, **how)(function)
    directory = cache_directory()
    if directory is not None:
        before = numba.config.CACHE_DIR
        numba.config.CACHE_DIR = str(directory)
        try:
            cache = KeptCode(function)
            # numba makes a directory in ours with the permissions of the umask
            if private_dirs.unsafe(Path(cache.cache_path)) is None:
                result._cache = cache  # noqa: SLF001 (numba takes its own class only)
            else:
                _warn_once()
        except RuntimeError as error:
            # numba raises this while decorating, if it finds no directory for its cache
            if "cannot cache function" not in str(error):
                raise
            _warn_once()
        finally:
            numba.config.CACHE_DIR = before
    return cast("Callable", result)


@functools.cache
def say_if_first() -> None:
    """Warn once in a process, if no compiled code is on disk yet, that the first batch waits for the compiler."""
    directory = cache_directory()
    if directory is not None and next(directory.glob("*/*.nbi"), None) is None:
        _log.warning(
            "compiling, once per machine and user: about a minute in the first batch; keyedwm warm does it ahead"
        )


def load_cached(modules: Container[str]) -> Iterator[None]:
    """Load the code on disk of the functions of some modules, in all signatures; yield after each function.

    A process that forks others calls this, so that they have the code at once. No new signature is compiled.
    """
    for later in [one for one in _all if one.__module__ in modules]:
        dispatcher = later.dispatcher()
        for signature in _signatures(dispatcher):
            dispatcher.compile(signature)  # type: ignore[attr-defined]
        yield


def kept_signatures() -> int:
    """Count the signatures on disk of all functions of the imported modules."""
    return sum(len(_signatures(later.dispatcher())) for later in _all)


def left_to_compile() -> list[str]:
    """Return the names of the imported modules' functions without code on disk; inlined functions need none."""
    return [
        f"{later.__module__}.{later.__qualname__}"  # type: ignore[attr-defined]  # as functools.update_wrapper sets them
        for later in _all
        if later._how is not _inlined and not _signatures(later.dispatcher())  # noqa: SLF001  our own class
    ]


def _signatures(dispatcher: Callable) -> list[Any]:
    """Return the signatures that a function has on disk."""
    cache_file = getattr(getattr(dispatcher, "_cache", None), "_cache_file", None)
    return [] if cache_file is None else [signature for signature, *_ in cache_file._load_index()]  # noqa: SLF001 (no public way)


@functools.cache
def cache_directory() -> Path | None:
    """Return the directory of compiled code: NUMBA_CACHE_DIR, else a private one; None, with a warning, if unsafe."""
    directory = os.environ.get("NUMBA_CACHE_DIR")
    for place in places(os.environ):
        why = private_dirs.unsafe(place)
        if why is None:
            return place
        if directory:
            _log.warning(
                "NUMBA_CACHE_DIR: %s %s, so code in it could be another user's; it is not used, and every process "
                "compiles again (some seconds): give a directory of this user with mode 0700", place, why
            )  # fmt: skip
            return None
    _warn_once()
    return None


def places(variables: Mapping[str, str]) -> list[Path]:
    """Return the directories to try for compiled code, in order: NUMBA_CACHE_DIR alone, if it is set."""
    if directory := variables.get("NUMBA_CACHE_DIR"):
        return [private_dirs.without_links(Path(directory))]
    return private_dirs.places(variables, "compiled")


def _inlined(function: Callable) -> Callable:
    import numba

    return cast("Callable", numba.njit(inline="always", nogil=True)(function))


@functools.cache
def _warn_once() -> None:
    _log.warning(
        "no private directory for compiled code is writable, so every process compiles again (some seconds): "
        "set NUMBA_CACHE_DIR to a directory of this user with mode 0700"
    )
