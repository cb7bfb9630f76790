"""The README is short, and its first lines are true of this checkout."""

from __future__ import annotations

import re
from pathlib import Path

from keyedwm import __version__

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
FIRST_SCREEN = README.splitlines()[:40]


def test_the_readme_has_at_most_120_lines():
    assert len(README.splitlines()) <= 120


def test_the_first_screen_has_the_version_the_picture_the_two_commands_and_the_installation():
    first = "\n".join(FIRST_SCREEN)
    commands = ("    make demo ", "    make test ", "    pip install . ")
    for part in (f"Version {__version__} ", "docs/figures/demo-rows.png", *commands):
        assert part in first


def test_the_readme_names_the_versions_that_the_project_asks_for():
    project = (ROOT / "pyproject.toml").read_text()
    (lowest,) = re.findall(r'requires-python = ">=([\d.]+)"', project)
    assert f"Python {lowest} to " in README
    (first, behind) = re.findall(r'"pyspark>=([\d.]+),<([\d.]+)"', project)[0]
    major, minor = behind.split(".")
    assert f"Spark {first} and {major}.{int(minor) - 1}" in README


def test_the_comparison_has_at_most_eight_rows():
    (table,) = re.findall(r"## Comparison\n\n((?:\|.*\n)+)", README)
    assert len(table.splitlines()) - 2 <= 8
