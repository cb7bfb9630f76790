"""Jars come once, whole, and with a clear word when they cannot."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import zipfile

import pytest

from examples.demo import spark_jars
from examples.demo.spark_jars import spark_kafka_connector_jars
from keyedwm.core.errors import OptionError, UnavailableError
from keyedwm.testing import ivy
from keyedwm.testing.ivy import cache_dir, fetch_jars
from keyedwm.testing.local import ARTIFACTS, KAFKA_VERSION

pytestmark = pytest.mark.starts

SMALL = ("org.apache.commons:commons-pool2:2.12.0",)
OF_SMALL = {name: spark_jars.HASHES[name] for name in ("commons-pool2-2.12.0.jar",)}


@pytest.fixture
def empty_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("KEYEDWM_CACHE", str(tmp_path))
    return tmp_path


def test_two_processes_at_once_share_one_whole_set_of_jars(empty_cache):
    fetch = f"fetch_jars('small', {SMALL!r}, transitive=False, hashes={OF_SMALL!r})"
    program = f"from keyedwm.testing.ivy import fetch_jars; print(*{fetch})"
    both = [subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) for _ in range(2)]
    outputs = {process.communicate(timeout=600)[0].strip() for process in both}
    (jar,) = fetch_jars("small", SMALL, transitive=False, hashes=OF_SMALL)
    assert outputs == {str(jar)}
    assert zipfile.is_zipfile(jar)
    assert sorted(path.suffix for path in (empty_cache / "jars").iterdir()) == ["", ".lock"]


def test_a_registry_out_of_reach_is_one_clear_error_and_leaves_nothing(empty_cache, monkeypatch):
    nowhere = "-Dhttps.proxyHost=127.0.0.1 -Dhttps.proxyPort=9 -Dhttp.proxyHost=127.0.0.1 -Dhttp.proxyPort=9"
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", nowhere)
    with pytest.raises(UnavailableError, match=r"could not fetch the jars of small: the Maven registry did not answer"):
        fetch_jars("small", SMALL)
    assert [path.suffix for path in (empty_cache / "jars").iterdir()] == [".lock"]


def test_a_jar_that_does_not_exist_is_an_error(empty_cache):
    with pytest.raises(UnavailableError, match="lacks one"):
        fetch_jars("absent", ["org.apache.commons:commons-pool2:0.0.1"])


def test_a_jar_with_another_hash_is_refused_and_leaves_nothing(empty_cache):
    with pytest.raises(UnavailableError, match=r"commons-pool2-2\.12\.0\.jar from the Maven registry has the SHA-256"):
        fetch_jars("small", SMALL, transitive=False, hashes={"commons-pool2-2.12.0.jar": "0" * 64})
    assert [path.suffix for path in (empty_cache / "jars").iterdir()] == [".lock"]


def test_every_jar_that_is_kept_has_a_hash():
    jars = [*spark_kafka_connector_jars(), *fetch_jars(f"kafka-{KAFKA_VERSION}", ARTIFACTS)]
    hashes = {**spark_jars.HASHES, **ivy.HASHES}
    assert [jar.name for jar in jars if hashlib.sha256(jar.read_bytes()).hexdigest() != hashes.get(jar.name)] == []


def test_a_wrong_coordinate_is_named(empty_cache):
    with pytest.raises(OptionError, match="coordinate 'commons-pool2' is not group:artifact:version"):
        fetch_jars("wrong", ["commons-pool2"])


def test_a_cache_that_cannot_be_written_is_named(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("KEYEDWM_CACHE", str(tmp_path / "file"))
    with pytest.raises(OptionError, match=r"cannot write the cache .*file/jars.*: set KEYEDWM_CACHE"):
        fetch_jars("small", SMALL)


def test_the_cache_follows_the_environment(monkeypatch, tmp_path):
    monkeypatch.delenv("KEYEDWM_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_dir() == tmp_path / "keyedwm"
    monkeypatch.setenv("KEYEDWM_CACHE", str(tmp_path / "own"))
    assert cache_dir() == tmp_path / "own"


def test_sparks_own_connector_is_exactly_four_jars():
    assert [jar.name for jar in spark_kafka_connector_jars()] == [
        "commons-pool2-2.12.0.jar",
        "kafka-clients-3.9.1.jar",
        "spark-sql-kafka-0-10_2.13-4.2.0.jar",
        "spark-token-provider-kafka-0-10_2.13-4.1.0-preview1.jar",
    ]
