"""Compiled code on disk: numba's cache of a function, with checks. A cache failure never fails a task.

Rule: the cache only saves time. Code that cannot be written (a full disk) or is damaged (a host lost power) is compiled
again, with one warning. Each file has a checksum, since it contains machine code. Each file names its signature, so
that no process runs code of another signature that was compiled at the same time. A function is also compiled again if
a constant of its module, or a compiled function that the module imports, has changed: numba checks only the function's
own file.
"""

from __future__ import annotations

import functools
import hashlib
import logging
import pickle
import sys
from collections.abc import Callable
from enum import EnumMeta
from pathlib import Path
from typing import Any

import numpy as np
from llvmlite.binding import add_symbol
from numba.core.caching import FunctionCache, IndexDataCacheFile
from numba.core.runtime._nrt_python import c_helpers

_log = logging.getLogger(__name__)
_DIGEST_BYTES = hashlib.sha256().digest_size
_NUMBER_DIGITS = 12


class KeptCode(FunctionCache):
    """The cache of one function; raises RuntimeError, as numba's own cache does, if it can use no directory."""

    def __init__(self, function: Callable) -> None:
        super().__init__(function)
        # Not numba's file names: a process of an earlier version, which may still run, could not read these files.
        base, locator = f"{self._impl.filename_base}.kept", self._impl.locator
        stamp = (locator.get_source_stamp(), _imported(function.__module__))
        self._cache_file = _Files(self._cache_path, base, stamp)

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return the code of a signature, None if there is none that can be used.

        numba's own method first loads what only its compiler needs: a second compiler for its memory, and declarations.
        """
        _add_symbols()
        with self._guard_against_spurious_io_errors():
            return self._load_overload(sig, target_context)

    def save_overload(self, sig: Any, data: Any) -> None:
        """Write compiled code; a failure is only a warning."""
        try:
            super().save_overload(sig, data)
        except OSError as error:
            _warn_of(self._cache_path, error.strerror or str(error))


@functools.cache
def _add_symbols() -> None:
    """Give compiled code the functions of numba's memory, by the names under which numba's compiler gives them."""
    for name, address in c_helpers.items():
        add_symbol(name if name.startswith("_") else f"NRT_{name}", address)


class _Files(IndexDataCacheFile):
    """The files of one function: an index, and a file for each signature. Each file begins with a digest."""

    def save(self, key: Any, data: Any) -> None:
        """Write the code, then the index that names it. Entries are lost if two processes write it at once."""
        signature, target, _ = key  # without the function's own code, so that its new code overwrites its old file
        number = int(hashlib.sha256(repr((signature, target)).encode()).hexdigest()[:_NUMBER_DIGITS], 16)
        name = self._data_name(number)
        self._write(self._data_path(name), self._dump((self._source_stamp, key, data)))
        self._save_index({**self._load_index(), key: name})

    def load(self, key: Any) -> Any:
        """Return the compiled code of a signature, None if there is none that can be used."""
        name = self._load_index().get(key)
        content = None if name is None else _content(self._data_path(name))
        if content is None:
            return None
        stamp, of, data = pickle.loads(content)  # noqa: S301  of this user alone (`private`), and as it was written
        return data if (stamp, of) == (self._source_stamp, key) else None

    def _load_index(self) -> dict[Any, str]:
        content = _content(self._index_path)
        if content is None:
            return {}
        version, rest = pickle.loads(content)  # noqa: S301
        if version != self._version:
            return {}
        stamp, overloads = pickle.loads(rest)  # noqa: S301
        return overloads if stamp == self._source_stamp else {}

    def _save_index(self, overloads: dict[Any, str]) -> None:
        # In two parts: another version of numba need not be able to read the second.
        self._write(self._index_path, pickle.dumps((self._version, self._dump((self._source_stamp, overloads)))))

    def _write(self, path: str, content: bytes) -> None:
        with self._open_for_write(path) as file:
            file.write(hashlib.sha256(content).digest() + content)


@functools.cache
def _imported(module: str) -> str:
    """Return a digest of the constants of a module, and of the compiled functions that it imports."""
    digest = hashlib.sha256()
    for name, value in sorted(vars(sys.modules[module]).items()):
        # before its first call a `_Later` of `compiled`, and after it numba's own function
        function = value.__wrapped__ if hasattr(value, "dispatcher") else getattr(value, "py_func", None)
        if function is not None and function.__module__ != module:
            digest.update(f"{name} {_imported(function.__module__)} ".encode())
            digest.update(Path(function.__code__.co_filename).read_bytes())
        elif not name.startswith("__"):
            digest.update(f"{name}={_constant(value)};".encode())
    return digest.hexdigest()


def _constant(value: Any) -> str:
    """Return a text that identifies a constant: a number, a text, an enum, an array, or a tuple. Else empty."""
    if isinstance(value, EnumMeta):
        return f"{value.__members__.items()}"
    if isinstance(value, tuple):
        return "".join(f"{_constant(one)}," for one in value)
    if isinstance(value, np.ndarray):
        return f"{value.dtype}{value.shape}{hashlib.sha256(value.tobytes()).hexdigest()}"
    return repr(value) if isinstance(value, bool | int | float | str | bytes | np.generic) else ""


def _content(path: str) -> bytes | None:
    """Return the content of a file behind its digest; None if the file is missing, cannot be read or is damaged."""
    try:
        octets = Path(path).read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        _warn_of(path, error.strerror or str(error))
        return None
    digest, content = octets[:_DIGEST_BYTES], octets[_DIGEST_BYTES:]
    if hashlib.sha256(content).digest() != digest:
        _warn_of_damage(str(Path(path).parent))
        return None
    return content


@functools.cache
def _warn_of(path: str, why: str) -> None:
    _log.warning(
        "compiled code cannot be kept in %s (%s), so every process compiles again (some seconds): make room there, or "
        "set NUMBA_CACHE_DIR to another directory of this user with mode 0700", path, why,
    )  # fmt: skip


@functools.cache
def _warn_of_damage(directory: str) -> None:
    _log.warning("compiled code in %s is damaged: it is compiled again", directory)
