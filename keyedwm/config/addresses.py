"""File systems behind addresses such as s3a://bucket/path, as pyarrow opens them, and how a file is replaced there."""

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


def appears_early(files: FileSystem) -> bool:
    """Whether readers see a file before it is closed: in HDFS a part of it, in Azure's store an empty file."""
    return is_hdfs(files) or files.type_name == "abfs"


def is_hdfs(files: FileSystem) -> bool:
    """Whether a file system is Hadoop's: it does not rename over a file."""
    return bool(files.type_name == "hdfs")


def replace_file(files: FileSystem, complete: str, path: str) -> None:
    """Put a complete file in the place of another. In HDFS there is no file at `path` for a moment."""
    if is_hdfs(files):
        delete_file(files, path)
        files.move(complete, path)
    else:
        files.copy_file(complete, path)  # a flat store of Azure has no rename, and copies at once
        delete_file(files, complete)


def delete_file(files: FileSystem, path: str) -> None:
    """Delete a file if it is there. HDFS reports a missing file as an I/O error, so a lookup decides."""
    try:
        files.delete_file(path)
    except OSError:
        if exists(files, path):
            raise


def exists(files: FileSystem, path: str) -> bool:
    """Whether there is a file or a directory."""
    from pyarrow.fs import FileType

    return bool(files.get_file_info(path).type != FileType.NotFound)
