"""File systems behind addresses such as s3a://bucket/path, as pyarrow opens them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from keyedwm.core.errors import InputError
from keyedwm.core.text import words_of

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

# By default Arrow repeats a request to Google's store for a quarter of an hour, even on a machine without a login.
_GOOGLE, _LIMIT, _LIMIT_S = ("gs", "gcs"), "retry_limit_seconds", 60
_HADOOP = ("hdfs", "viewfs")
_HADOOP_NEEDS = (
    "JAVA_HOME, ARROW_LIBHDFS_DIR (the directory of libhdfs.so) and CLASSPATH (of hadoop classpath --glob) must be set"
)
_SAME_AS = {"s3a": "s3", "s3n": "s3"}


def store_errors(*more: type[Exception]) -> tuple[type[Exception], ...]:
    """Return the errors that file systems raise, and `more`: the system's, and Arrow's (Azure's for a wrong login)."""
    import pyarrow as pa

    return OSError, pa.ArrowException, *more


def open_address(address: str, who: str) -> tuple[FileSystem, str]:
    """Return the file system of an address, and the path in it without a slash at its end.

    Raises InputError if pyarrow cannot open the address. who: the subject of the error.
    """
    from pyarrow.fs import FileSystem

    scheme, _, rest = address.partition(":")
    if scheme.lower() in _GOOGLE and _LIMIT not in rest:
        rest += f"{'&' if '?' in rest else '?'}{_LIMIT}={_LIMIT_S}"
    try:
        files, path = FileSystem.from_uri(f"{_SAME_AS.get(scheme.lower(), scheme.lower())}:{rest}")
    except store_errors() as error:
        advice = f"; {_HADOOP_NEEDS}" if scheme.lower() in _HADOOP else ""
        raise InputError(f"{who} cannot be reached: {words_of(error)}{advice}") from error
    return files, path.rstrip("/")
