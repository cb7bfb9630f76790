"""File systems behind addresses such as s3a://bucket/path, as pyarrow opens them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from keyedwm.core.errors import InputError

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

_MOST_SHOWN = 400
_SAME_AS = {"s3a": "s3", "s3n": "s3"}


def open_address(address: str, who: str) -> tuple[FileSystem, str]:
    """Return the file system of an address, and the path in it without a slash at its end. who: names it in the error.

    Raises InputError if pyarrow cannot open it.
    """
    import pyarrow as pa
    from pyarrow.fs import FileSystem

    scheme, _, rest = address.partition(":")
    try:
        files, path = FileSystem.from_uri(f"{_SAME_AS.get(scheme.lower(), scheme.lower())}:{rest}")
    except (OSError, pa.ArrowException) as error:
        raise InputError(f"{who} cannot be reached: {one_line(error)}") from error
    return files, path.rstrip("/")


def one_line(error: BaseException) -> str:
    """What a file system says, without line ends; of pages, such as all places without a library, the beginning."""
    text = " ".join(str(error).split())
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]} ..."
