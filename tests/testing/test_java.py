"""A missing or wrong Java is one sentence that says what to install."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from keyedwm.testing import java
from keyedwm.testing.java import JavaError, complaint, find_java, java_version

ADVICE = "install a Java 17, 21 or 25 runtime"


def java_that_says(home: Path, version_line: str) -> Path:
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho '{version_line}' >&2\n")
    program.chmod(0o755)
    return program


def run_check(environment: dict[str, str]) -> tuple[int, str]:
    clean = {name: value for name, value in os.environ.items() if name not in ("JAVA_HOME", "PATH")}
    run = subprocess.run(
        [sys.executable, "-m", "keyedwm.testing.java"],
        env=clean | environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert run.stdout == ""
    return run.returncode, run.stderr


def test_the_java_of_this_machine_is_found_in_silence():
    assert java_version(find_java()) in (17, 21, 25)
    assert run_check({"PATH": os.environ["PATH"]} | {k: v for k, v in os.environ.items() if k == "JAVA_HOME"}) == (
        0,
        "",
    )


def test_no_java_at_all_is_one_sentence(tmp_path):
    code, message = run_check({"PATH": str(tmp_path)})
    assert code == 1
    assert message.startswith("found no java on PATH and JAVA_HOME is not set")
    assert ADVICE in message
    assert message.count("\n") == 1


@pytest.mark.parametrize(
    ("line", "version"),
    [
        ('openjdk version "11.0.2" 2019-01-15', 11),
        ('java version "1.8.0_372"', 8),
        ('openjdk version "24" 2025-03-18', 24),
    ],
)
def test_a_wrong_version_is_named_with_its_place(tmp_path, line, version):
    program = java_that_says(tmp_path, line)
    code, message = run_check({"JAVA_HOME": str(tmp_path), "PATH": os.environ["PATH"]})
    assert code == 1
    assert message.startswith(f"found Java {version} at {program}: {ADVICE}")


def test_java_home_wins_over_path_even_when_it_is_wrong(monkeypatch, tmp_path):
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(JavaError, match="holds no bin/java"):
        find_java()
    program = java_that_says(tmp_path, 'openjdk version "21.0.4" 2024-07-16 LTS')
    assert find_java() == program


def test_a_newer_java_is_found_beside_the_one_of_spark(monkeypatch, tmp_path):
    monkeypatch.setenv("JAVA_HOME", str(java_that_says(tmp_path / "own", 'openjdk version "17.0.1"').parents[1]))
    monkeypatch.setenv("PATH", str(tmp_path))
    folders = [str(tmp_path / "jvm")]
    with pytest.raises(JavaError, match=r"found no Java of version 21 or newer .* which the registry needs: install"):
        java.find_newer_java(21, "the registry", folders)
    newer = java_that_says(tmp_path / "jvm" / "temurin-25", 'openjdk version "25" 2025-09-16')
    assert java.find_newer_java(21, "the registry", folders) == newer


def test_something_that_is_not_java_has_no_version(monkeypatch, tmp_path):
    java_that_says(tmp_path, "hello")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(JavaError, match="found Java of an unknown version"):
        find_java()


def test_a_complaint_is_the_first_exception_or_the_last_line():
    assert complaint("start\njava.io.IOException: no\n  at x\nCaused by: java.lang.Exception: deeper\n") == (
        "java.io.IOException: no"
    )
    assert complaint("one\ntwo\n\n") == "two"
    assert complaint("") == "it said nothing"


QUARKUS = "2026-11+00-29 17:39:15 {} [io.quarkus.runtime.ApplicationLifecycleManager] (main) {}\n"


def test_a_complaint_of_quarkus_is_its_first_error_and_never_the_missing_container_that_follows_from_it():
    in_use = QUARKUS.format("ERROR", "Port 28397 seems to be in use by another process.")
    hint = QUARKUS.format("WARN", "Use 'ss -anop | grep 28397' to identify the process occupying the port.")
    container = "java.lang.IllegalStateException: No CDI container is available\n"
    for output in (in_use + hint, container + in_use + hint, in_use + container):
        assert complaint(output) == "Port 28397 seems to be in use by another process."
    schemas = "org.h2.message.DbException: Error while creating file\n"
    assert complaint(container + schemas + in_use) == schemas.strip()
