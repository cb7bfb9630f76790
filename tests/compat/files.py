"""Directories of a query, saved and restored: Spark and deltalake write down where they lie, so that is exchanged."""

from __future__ import annotations

import shutil
from pathlib import Path

HOME = "/recorded-here"  # stands in a fixture for the directory of the scenario


def save_files(directory: Path, target: Path) -> None:
    """Copy a scenario's directory; checksum files of Hadoop are left out, as they would not fit."""
    shutil.copytree(directory, target, ignore=shutil.ignore_patterns(".*.crc"))
    _exchange(target, str(directory), HOME)


def restore_files(target: Path, directory: Path) -> None:
    """The opposite of `save_files`."""
    shutil.copytree(target, directory)
    _exchange(directory, HOME, str(directory))


def _exchange(tree: Path, before: str, after: str) -> None:
    for path in tree.rglob("*"):
        if path.is_file() and before.encode() in (content := path.read_bytes()):
            path.write_text(content.decode().replace(before, after))
