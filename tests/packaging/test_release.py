"""What `make release-check` makes of what its tools say, and how a version is written; its tools run there."""

from __future__ import annotations

import json
import subprocess

import pytest

from keyedwm import __version__
from tests.packaging.conda import recipe
from tests.packaging.licences import by_licence, is_allowed, not_allowed
from tests.packaging.release import audited
from tests.packaging.version import CHANGELOG, PLACES, RECIPE, ROOT, written
from tests.uv import python


def test_a_package_with_a_known_vulnerability_is_wrong_and_named_with_the_cure():
    fault = {"id": "PYSEC-1", "fix_versions": ["2.1", "3.0"]}
    told = {
        "dependencies": [{"name": "a", "version": "1", "vulns": [fault]}, {"name": "b", "version": "2", "vulns": []}]
    }
    found = audited(json.dumps(told), "")
    assert (found.passed, found.lines) == (False, ("a 1: PYSEC-1, fixed in 2.1, 3.0", "2 packages"))


def test_without_an_answer_of_the_index_nothing_was_audited_and_nothing_is_wrong():
    found = audited("", "ERROR: long\nConnectionError: no route to host")
    assert found.passed is None
    assert found.lines[0].endswith("got no answer of the package index: ConnectionError: no route to host")


def test_packages_stand_under_their_licence():
    components = [
        {"name": "b", "licenses": [{"license": {"id": "MIT"}}]},
        {"name": "a", "licenses": [{"license": {"id": "MIT"}}]},
        {"name": "c", "licenses": [{"expression": "Apache-2.0 OR BSD-3-Clause"}]},
        {"name": "d"},
    ]
    assert by_licence(components) == ["Apache-2.0 OR BSD-3-Clause: c", "MIT: a, b", "none is said: d"]


@pytest.mark.parametrize(
    ("expression", "allowed"),
    [
        ("MIT", True), ("GPL-3.0-only", False), ("none is said", False), ("GPL-2.0-only OR MIT", True),
        ("GPL-2.0-only AND MIT", False), ("(MIT AND (GPL-2.0-only OR ISC))", True), ("(MIT) AND (GPL-2.0-only)", False),
        ("Apache-2.0 WITH LLVM-exception", True),
    ],
)  # fmt: skip
def test_a_licence_is_allowed_if_one_side_of_an_or_and_both_of_an_and_are(expression, allowed):
    assert is_allowed(expression) is allowed


def test_a_package_under_a_licence_that_is_not_allowed_is_named():
    packages = [
        {"name": "a", "licenses": [{"license": {"id": "MIT"}}, {"license": {"id": "AGPL-3.0-only"}}]},
        {"name": "b", "licenses": [{"license": {"id": "MIT"}}]},
    ]
    assert not_allowed(packages) == ["a: AGPL-3.0-only and MIT is not allowed"]


@pytest.mark.parametrize("name", [*PLACES, RECIPE])
def test_a_new_version_is_written_into_each_file_that_names_it_and_nothing_else_is_changed(name):
    text = (ROOT / name).read_text()
    new = written(name, text, "12.34.56.dev0")
    assert "12.34.56" in new
    assert written(name, new, __version__) == text


def test_a_release_ends_its_development_in_the_changelog_and_the_next_version_begins_a_heading():
    before = "# Changelog\n\n## 1.2.0 (in development)\n\n- a\n\n## 1.1.0\n"
    released = written(CHANGELOG, before, "1.2.0")
    assert released == before.replace(" (in development)", "")
    assert written(CHANGELOG, released, "1.3.0.dev0") == before.replace(
        "## 1.2.0 (in", "## 1.3.0 (in development)\n\n## 1.2.0 (in"
    ).replace("## 1.2.0 (in development)", "## 1.2.0")


def test_a_python_of_pyenv_is_used_although_its_program_on_the_path_runs_another_release(monkeypatch, tmp_path):
    monkeypatch.setattr("tests.uv.uv", lambda: tmp_path / "uv")
    monkeypatch.setattr("tests.uv.run", lambda *command: subprocess.CompletedProcess(command, 2, "", "not found"))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    program = tmp_path / "versions" / "3.12.1" / "bin" / "python3.12"
    program.parent.mkdir(parents=True)
    program.touch()
    assert (python("3.12"), python("3.13")) == (program, None)


def test_the_recipe_of_conda_has_the_version_that_is_in_development():
    assert recipe()["package"]["version"] == __version__.removesuffix(".dev0")
