"""The CDS archive of the driver's JVM: `keyedwm warm` writes it once, and sessions of `session_conf` map it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from keyedwm.cli.main import main
from keyedwm.cli.warm.cds_archive import _UNSET, _reason, _remove_leftovers, write_archive
from keyedwm.runtime import private_dirs
from keyedwm.spark import session_conf
from keyedwm.spark.setup.cds_archive import (
    PURPOSE,
    SETTING,
    archive_name,
    archive_setting,
    other_archives,
    usable_places,
)
from tests.installed import PATIENCE_S
from tests.tools import wait_until

SESSION = """
import keyedwm.spark
from pyspark.sql import SparkSession

builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
spark = builder.config(map=keyedwm.spark.session_conf(cores=1)).getOrCreate()
assert spark.range(10).count() == 10
spark.stop()
"""
WRITE = "from keyedwm.cli.warm import make_archive; raise SystemExit(make_archive())"


@pytest.fixture
def host(tmp_path: Path) -> dict[str, str]:
    """The variables of a host with a Java, a Spark and an empty cache."""
    java, jars = tmp_path / "java", tmp_path / "spark" / "jars"
    for directory in (java / "bin", java / "lib", jars):
        directory.mkdir(parents=True)
    program = java / "bin" / "java"
    program.write_text("#!/bin/sh\necho 'openjdk version \"17.0.2\"' >&2\nexit 3\n")
    program.chmod(0o755)
    (java / "lib" / "modules").write_bytes(b"17")
    (jars / "spark-core.jar").write_bytes(b"4.3")
    cache = tmp_path / "cache"
    return {
        "JAVA_HOME": str(java), "SPARK_HOME": str(jars.parent), "XDG_CACHE_HOME": str(cache), "PATH": "/bin",
        "SPARK_SUBMIT_OPTS": "",
    }  # fmt: skip


def planted(host: dict[str, str]) -> Path:
    """An archive for this host."""
    place = private_dirs.places(host, PURPOSE)[0]
    assert private_dirs.unsafe(place) is None
    name = archive_name(host)
    assert name is not None
    file = place / f"{name}-7.jsa"
    file.write_bytes(b"classes")
    return file


def test_a_session_names_the_archive_if_there_is_one(host, monkeypatch):
    for name, value in host.items():
        monkeypatch.setenv(name, value)
    assert SETTING not in session_conf()
    file = planted(host)
    assert session_conf()[SETTING].endswith(f'-XX:SharedArchiveFile="{file}"')


@pytest.mark.parametrize("changed", ["java/lib/modules", "spark/jars/spark-core.jar", "spark/jars/new.jar"])
def test_an_archive_of_another_java_or_spark_is_not_named(host, tmp_path, changed):
    planted(host)
    (tmp_path / changed).write_bytes(b"of the next version")
    assert archive_setting(host) == {}


@pytest.mark.parametrize("name", ["JAVA_HOME", "SPARK_HOME", "SPARK_CONF_DIR"])
def test_an_archive_of_other_paths_is_not_named(host, tmp_path, name):
    planted(host)
    assert archive_setting({**host, name: str(tmp_path / "other")}) == {}


def test_an_archive_that_others_may_write_is_not_named(host):
    planted(host).parent.chmod(0o777)
    assert archive_setting(host) == {}


def test_an_archive_that_was_cut_is_not_named(host):
    planted(host).write_bytes(b"class")
    assert archive_setting(host) == {}


def test_no_archive_is_named_while_spark_reads_configuration_files_which_may_have_the_same_setting(host, tmp_path):
    planted(host)
    (tmp_path / "spark" / "conf").mkdir()
    (tmp_path / "spark" / "conf" / "spark-defaults.conf").write_text(f"{SETTING} -Dof=the.user\n")
    assert archive_setting(host) == {}


def test_an_archive_that_another_command_removes_meanwhile_is_not_named(host):
    file = planted(host)
    file.unlink()
    file.symlink_to("nothing")
    assert archive_setting(host) == {}


def test_a_jar_that_is_a_broken_link_prevents_nothing(host, tmp_path):
    (tmp_path / "spark" / "jars" / "gone.jar").symlink_to("nothing")
    planted(host)
    assert SETTING in archive_setting(host)


@pytest.mark.parametrize("lost", ["spark/jars/loop.jar", "cache", "java/bin/java"])
def test_links_in_a_circle_leave_a_session_without_an_archive_and_stop_nobody(host, tmp_path, lost):
    planted(host)
    if (tmp_path / lost).exists():
        (tmp_path / lost).rename(tmp_path / "moved")
    (tmp_path / lost).symlink_to(tmp_path / lost)
    assert archive_setting(host) == {}


def test_a_java_that_is_a_script_has_no_archive_since_it_may_start_another_java_tomorrow(host, tmp_path, monkeypatch):
    (tmp_path / "java" / "lib" / "modules").unlink()
    assert archive_name(host) is None
    outcome = outcome_on(host, monkeypatch)
    reason = f"none, {tmp_path}/java/bin/java is a script: set JAVA_HOME to the Java that it starts"
    assert (outcome.failed, outcome.text) == (False, reason)
    monkeypatch.setattr("shutil.which", lambda *_, **__: "/java")
    assert archive_setting(host) == {}


@pytest.mark.parametrize(
    "option", ["-Xshare:off", "-XX:AOTMode=auto", "-XX:ArchiveClassesAtExit=/a", "-XX:+AutoCreateSharedArchive"]
)
def test_a_users_own_option_for_archives_comes_before_ours(host, monkeypatch, option):
    planted(host)
    for name in ("JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS", "SPARK_SUBMIT_OPTS"):
        assert archive_setting({**host, name: f"-Dmine {option}"}) == {}
    assert SETTING in archive_setting({**host, "JAVA_TOOL_OPTIONS": "-Xlog:cds -XX:+UseZGC"})
    outcome = outcome_on({**host, "JDK_JAVA_OPTIONS": option}, monkeypatch)
    assert not outcome.failed
    assert outcome.text.startswith(f"none, JDK_JAVA_OPTIONS={option} is set")


def test_a_path_that_java_takes_for_two_archives_is_not_used(host, tmp_path):
    assert usable_places({**host, "XDG_CACHE_HOME": f"{tmp_path}/a:b"}) == usable_places(host)[1:]


def test_of_two_commands_at_once_the_last_ones_archive_stays(host):
    first = planted(host)
    last = first.with_name(first.name.replace("-7.", "-8."))
    last.write_bytes(b"classes.")
    os.utime(first, (1, 1))
    assert other_archives(first) == []
    assert other_archives(last) == [first]


def test_a_command_that_is_ended_leaves_neither_a_session_nor_a_file(host, tmp_path):
    submit, begun = tmp_path / "spark" / "bin" / "spark-submit", tmp_path / "begun"
    submit.parent.mkdir()
    submit.write_text(f"#!/bin/sh\necho $$ > {begun}\nexec sleep 600\n")
    submit.chmod(0o755)
    variables = {**os.environ, **host, "PATH": os.environ["PATH"]}
    for name in ("SPARK_CONF_DIR", *_UNSET):
        variables.pop(name, None)
    process = subprocess.Popen([sys.executable, "-c", WRITE], env=variables, stdout=subprocess.DEVNULL)
    place = private_dirs.places(host, PURPOSE)[0]
    wait_until(lambda: begun.exists() and begun.read_text().endswith("\n"), "a session")
    assert list(place.iterdir()) != []
    process.terminate()
    process.wait()
    wait_until(lambda: not Path("/proc", begun.read_text().strip()).exists(), "the end of the session")
    wait_until(lambda: list(place.iterdir()) == [], "the end of its files")


def test_no_directory_is_made_while_there_is_no_archive(host):
    assert archive_setting(host) == {}
    assert not Path(host["XDG_CACHE_HOME"]).exists()


def outcome_on(host: dict[str, str], monkeypatch: pytest.MonkeyPatch):
    for name, value in {**os.environ, **host, "PATH": os.environ["PATH"]}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("SPARK_CONF_DIR", raising=False)
    return write_archive()


def test_without_java_or_jars_or_with_configuration_files_there_is_none_and_the_reason_is_reported(
    host, tmp_path, monkeypatch
):
    (tmp_path / "spark" / "conf").mkdir()
    (tmp_path / "spark" / "conf" / "spark-defaults.conf").write_text("spark.ui.enabled false\n")
    outcome = outcome_on(host, monkeypatch)
    assert not outcome.failed
    assert outcome.text == (
        f"none, {tmp_path}/spark/conf has files, and Java archives no classes then: move the settings into the "
        "session's builder"
    )
    outcome = outcome_on({**host, "SPARK_HOME": str(tmp_path)}, monkeypatch)
    assert (outcome.failed, outcome.text) == (False, f"none, {tmp_path} has no jars: the JVM runs elsewhere")
    outcome = outcome_on({**host, "JAVA_HOME": str(tmp_path)}, monkeypatch)
    assert not outcome.failed
    assert outcome.text.startswith(f"none, JAVA_HOME={tmp_path} holds no bin/java")


def test_a_first_query_that_fails_leaves_no_file_and_ends_with_1(host, monkeypatch, capsys):
    for name, value in {**host, "PATH": os.environ["PATH"]}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("keyedwm.cli.warm.compile_all", lambda: (0, 0))
    monkeypatch.setattr("keyedwm.cli.warm.rounds", dict)
    assert main(["warm"]) == 1
    assert "FAIL: CDS archive of the driver's JVM: the first query failed: " in capsys.readouterr().out
    assert list(private_dirs.places(host, PURPOSE)[0].iterdir()) == []


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        (
            "[16.1s][error][cds] Error: non-empty directory '/c/'\nHint: enable\nin paths",
            "Error: non-empty directory '/c/'",
        ),
        (
            "Error occurred during initialization of VM\nDumping is unsupported.\n",
            "Dumping is unsupported.",
        ),
        (
            "An error has occurred while processing the shared archive file.\nUnable to write to shared archive.\nend",
            "Unable to write to shared archive.",
        ),
        ("Traceback\nValueError: no", "ValueError: no"),
    ],
)
def test_javas_own_reason_is_reported(output, reason):
    assert _reason(output) == reason


def test_what_a_killed_command_left_is_removed_and_what_a_running_one_writes_is_not(tmp_path):
    old, new = tmp_path / "new-old", tmp_path / "new-new"
    for directory in (old, new):
        directory.mkdir()
        (directory / "classes.jsa").touch()
    os.utime(old, (0, 0))
    _remove_leftovers(tmp_path)
    assert list(tmp_path.iterdir()) == [new]


@pytest.mark.starts
def test_a_session_after_warm_maps_sparks_classes(tmp_path):
    cache = tmp_path / 'a "cache"'
    variables = {**os.environ, "XDG_CACHE_HOME": str(cache)}
    variables.pop("SPARK_SUBMIT_OPTS", None)
    place = private_dirs.places(variables, PURPOSE)[0]
    assert private_dirs.unsafe(place) is None
    name = archive_name(variables)
    assert name is not None
    earlier, foreign = place / f"{name.rpartition('-')[0]}-0123456789ab-0.jsa", place / "spark-other-0123456789ab-0.jsa"
    for file in (earlier, foreign):
        file.touch()

    first = run(["-c", WRITE], variables)
    written = re.search(r"CDS archive of the driver's JVM: \d+ MB in (.*)\n", first)
    assert written, first
    file = Path(written[1])
    assert file.name == f"{name}-{file.stat().st_size}.jsa"
    assert sorted(place.iterdir()) == sorted([file, foreign])
    assert f"was in {file}" in run(["-c", WRITE], variables)

    loads = tmp_path / "loads"
    output = run(["-c", SESSION], {**variables, "SPARK_SUBMIT_OPTS": f"-Xlog:class+load:file={loads}"})
    text = loads.read_text()
    assert text.count("source: shared objects file (top)") > 5_000
    assert "[warning]" not in output


def run(arguments: list[str], variables: dict[str, str]) -> str:
    """What a Python with these variables prints, to both outputs."""
    ran = subprocess.run(
        [sys.executable, *arguments], env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        check=False, timeout=PATIENCE_S,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout[-3_000:]
    return ran.stdout
