"""docs/design/formats.md lists the versions that the code writes."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROW = re.compile(r"^\| ([\w ]+) \| (\d+) \| .* \| `([\w/]+)\.py` \|$", re.MULTILINE)
LISTED = ROW.findall((ROOT / "docs" / "design" / "formats.md").read_text())
NAMES = ("OFFSET_VERSION", "NOTE_VERSION", "ROW_FORMAT_VERSION", "VERSION")


def test_the_formats_are_listed():
    assert len(LISTED) >= 9


@pytest.mark.parametrize(("name", "version", "module"), LISTED, ids=[name for name, _, _ in LISTED])
def test_the_version_of_a_format_is_the_one_that_is_written(name, version, module):
    code = import_module(module.replace("/", "."))
    version_in_code = next(getattr(code, constant) for constant in NAMES if hasattr(code, constant))
    assert int(version_in_code) == int(version), f"{name} has version {version_in_code}"
