"""The version, the changelog and CI's workflow speak of one thing."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from keyedwm import __version__

ROOT = Path(__file__).parents[3]
CHANGELOG = (ROOT / "CHANGELOG.md").read_text()
MAKEFILE = (ROOT / "Makefile").read_text()
WORKFLOW = (ROOT / ".github" / "workflows" / "ci.yml").read_text()
PROJECT = (ROOT / "pyproject.toml").read_text()
RELEASE = re.compile(r"^## (\S+)(?: (\(in development\)))?$", re.MULTILINE)
KINDS = ["What to change", "Added", "Changed behaviour", "Moved modules", "Fixed", "Packaging", "Documentation"]


def releases() -> dict[str, str]:
    """What the changelog says of each version, the newest first."""
    _, *parts = re.split(r"^## ", CHANGELOG, flags=re.MULTILINE)
    return {part.split(maxsplit=1)[0]: part for part in parts}


def test_the_changelog_begins_with_the_version_of_the_package():
    named, in_development = RELEASE.findall(CHANGELOG)[0]
    assert __version__ == (f"{named}.dev0" if in_development else named)


@pytest.mark.parametrize("version", releases())
def test_each_entry_of_the_changelog_stands_under_its_kind(version):
    before, *kinds = re.split(r"^### ", releases()[version], flags=re.MULTILINE)
    assert re.findall(r"^- .*", before, flags=re.MULTILINE) == []
    assert {kind.splitlines()[0] for kind in kinds} <= set(KINDS)


def test_no_kind_stands_twice_in_a_version():
    for version, text in releases().items():
        kinds = re.findall(r"^### (.+)$", text, flags=re.MULTILINE)
        assert len(kinds) == len(set(kinds)), version


def test_the_workflow_runs_targets_that_there_are():
    targets = re.findall(r"run: make ([\w-]+)", WORKFLOW)
    assert {"check", "test"} <= set(targets)
    assert [target for target in targets if not re.search(rf"^{target}:", MAKEFILE, re.MULTILINE)] == []


def test_the_workflow_tries_the_lowest_python_that_is_promised():
    (lowest,) = re.findall(r'requires-python = ">=([\d.]+)"', PROJECT)
    assert lowest in re.findall(r'python: "([\d.]+)"', WORKFLOW)
