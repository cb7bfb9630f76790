"""Rejects the creation of a Delta table in a directory that holds somebody else's Parquet files.

Rule: a directory with a log contains only that table, so its readers would silently lose the other files. A
file that our tasks staged before the table's first commit is ours: it has our name and our writer's mark, or is an
unfinished write.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from keyedwm.core.errors import OptionError, UnavailableError
from pyspark_wm_sink.delta.storage import files_of
from pyspark_wm_sink.places.paths import local_directory
from pyspark_wm_sink.tables.library_errors import one_line, shown_cause

_STAGED_NAME = re.compile(r"part-\d{5}-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}-c000\.zstd\.parquet")
_OUR_WRITER = "parquet-cpp"  # as Arrow signs; Spark, whose names are like ours, signs parquet-mr


def check_no_foreign_files(path: str, storage: Mapping[str, str]) -> None:
    """Raise OptionError that names a file if a path without a table holds Parquet files; reads little, changes nothing.

    It examines the directory, and the first of its partition directories.
    """
    local = local_directory(path)
    if local is not None and not local.is_dir():
        return
    files = files_of(path, storage)
    try:
        foreign = next((one.path for one in _parquet(files, "") if not _is_staged(files, one)), None)
    except OSError as error:
        raise UnavailableError(f"{path} could not be listed: {one_line(error)}") from shown_cause(error)
    if foreign is not None:
        raise OptionError(
            f"option path: {path} holds Parquet files that belong to no Delta table, {foreign} is one, and a table "
            f"made there would hide them from its readers: name another directory, or convert this one first "
            f"(deltalake.convert_to_deltalake)"
        )


def _parquet(files: pafs.FileSystem, directory: str) -> Iterator[pafs.FileInfo]:
    there = sorted(files.get_file_info(pafs.FileSelector(directory, allow_not_found=True)), key=lambda one: one.path)
    yield from (one for one in there if one.type is pafs.FileType.File and one.path.endswith(".parquet"))
    partition = next((one for one in there if one.type is pafs.FileType.Directory and "=" in one.base_name), None)
    if partition is not None:
        yield from _parquet(files, partition.path)


def _is_staged(files: pafs.FileSystem, info: pafs.FileInfo) -> bool:
    if not _STAGED_NAME.fullmatch(info.base_name):
        return False
    try:
        with files.open_input_file(info.path) as file:
            return pq.ParquetFile(file).metadata.created_by.startswith(_OUR_WRITER)
    except pa.ArrowInvalid:
        return True  # the task was killed while it wrote
