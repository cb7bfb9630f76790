from __future__ import annotations

import logging
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from keyedwm.cli.doctor import machine
from keyedwm.core.errors import InputError
from keyedwm.runtime import compiled, private_dirs
from pyspark_wm_sink.places.ledger_files import RemoteFiles

pytestmark = pytest.mark.starts


@pytest.mark.usefixtures("fresh")
def test_without_a_place_for_the_cache_functions_still_work_and_one_warning_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    # numba finds no directory for code that stands in no file
    made: dict[str, object] = {"compiled": compiled.compiled}
    source = "@compiled\ndef one(x):\n    return x + 1\n@compiled\ndef two(x):\n    return x + 2\n"
    with caplog.at_level(logging.WARNING):
        exec(compile(source, "<nowhere>", "exec"), made)  # noqa: S102 (the source is above)
    assert (made["one"](1), made["two"](1)) == (2, 3)  # type: ignore[operator]
    assert caplog.text.count("NUMBA_CACHE_DIR") == 1


def test_a_process_that_plans_or_commits_loads_neither_the_compiler_nor_pandas():
    sources = "keyedwm.spark.hosting.bucket, pyspark_wm_source.task.items"
    modules = f"{sources}, pyspark_wm_sink.kafka.writer, pyspark_wm_sink.writer"
    source = f"import sys, {modules}; print([heavy for heavy in ('numba', 'pandas') if heavy in sys.modules])"
    ran = subprocess.run([sys.executable, "-c", source], check=True, capture_output=True, text=True)
    assert ran.stdout.strip() == "[]"


def add_one(x):
    return x + 1


def test_a_process_that_checks_options_loads_no_kafka_client():
    checks = (
        "from pyspark_wm_source.reader import row_schema; from pyspark_wm_sink.options.sink_options import SinkOptions;"
        "row_schema({'kafka.bootstrap.servers': 'a:1', 'subscribe': 't'}); SinkOptions.parse({'path': '/t'});"
    )
    source = f"{checks} import sys; print([heavy for heavy in ('kafka', 'numba', 'pandas') if heavy in sys.modules])"
    ran = subprocess.run([sys.executable, "-c", source], check=True, capture_output=True, text=True)
    assert ran.stdout.strip() == "[]"


def test_a_process_that_writes_to_delta_loads_no_kafka_client():
    source = (
        "import sys; from pyspark.sql.types import LongType, StructType;"
        "from pyspark_wm_sink.writer import stream_writer;"
        "stream_writer({'path': '/tmp/no-table', 'snapshot': 'batch'}, StructType().add('n', LongType()), False);"
        "print([heavy for heavy in ('kafka', 'numba', 'pandas') if heavy in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", source], check=True, capture_output=True, text=True)
    assert ran.stdout.strip() == "[]"


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The directory is looked for again, and what these tests find is forgotten after them."""
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    compiled.cache_directory.cache_clear()
    compiled._warn_once.cache_clear()
    yield
    compiled.cache_directory.cache_clear()


@pytest.mark.usefixtures("fresh")
def test_compiled_code_is_kept_in_a_directory_for_this_user_alone(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    old = os.umask(0)
    try:
        found = compiled.cache_directory()
    finally:
        os.umask(old)
    assert found == tmp_path / "keyedwm" / "compiled"
    assert stat.S_IMODE(found.stat().st_mode) == 0o700


@pytest.mark.usefixtures("fresh")
@pytest.mark.parametrize("mode", [0o770, 0o777, 0o1777, 0o702])
def test_a_given_directory_that_others_may_write_to_is_not_used(mode, tmp_path, monkeypatch, caplog):
    tmp_path.chmod(mode)
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    assert compiled.cache_directory() is None
    assert f"may be written by others (mode {mode:04o})" in caplog.text
    assert compiled._compiled(add_one)(1) == 2
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("fresh")
def test_a_directory_of_another_user_or_a_link_is_not_used(tmp_path, monkeypatch):
    mine, link = tmp_path / "mine", tmp_path / "link"
    mine.mkdir(mode=0o700)
    link.symlink_to(mine)
    assert private_dirs.unsafe(mine) is None
    assert private_dirs.unsafe(link) == "is no directory, or a link"
    monkeypatch.setattr(private_dirs.os, "geteuid", lambda: 4711)
    assert "belongs to the user" in private_dirs.unsafe(mine)


@pytest.mark.usefixtures("fresh")
@pytest.mark.parametrize("mode", [0o777, 0o775, 0o702])
def test_a_directory_that_others_can_exchange_is_not_used_and_its_ancestor_is_named(
    mode, tmp_path, monkeypatch, caplog
):
    shared = tmp_path / "shared"
    (shared / "between").mkdir(parents=True, mode=0o700)
    shared.chmod(mode)
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(shared / "between" / "mine"))
    assert compiled.cache_directory() is None
    named = f"mine lies under {shared}, which may be written by others (mode {mode:04o}), so code in it could be"
    assert named in caplog.text


@pytest.mark.usefixtures("fresh")
@pytest.mark.parametrize("mode", [0o1777, 0o1775, 0o755, 0o700])
def test_a_directory_under_one_that_is_sticky_or_not_written_by_others_is_used(mode, tmp_path, monkeypatch):
    tmp_path.chmod(mode)
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "made" / "mine"))
    old = os.umask(0)
    try:
        assert compiled.cache_directory() == tmp_path / "made" / "mine"
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / "made").stat().st_mode) == 0o700


@pytest.mark.usefixtures("fresh")
def test_a_link_among_the_ancestors_is_followed_once_and_what_it_leads_to_is_judged(tmp_path, monkeypatch):
    real, link = tmp_path / "real", tmp_path / "link"
    real.mkdir(mode=0o700)
    link.symlink_to(real)
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(link / "mine"))
    assert compiled.places(os.environ) == [real / "mine"]
    assert private_dirs.unsafe(link / "mine") == f"lies under {link}, which is no directory, or a link"
    assert compiled.cache_directory() == real / "mine"
    real.chmod(0o777)
    assert "lies under" in private_dirs.unsafe(real / "mine")


def test_an_ancestor_of_another_user_is_named_and_one_of_root_is_none_of_theirs(tmp_path, monkeypatch):
    (tmp_path / "home" / "mine").mkdir(parents=True, mode=0o700)
    own = private_dirs.Path.lstat

    def of_user(user):
        def lstat(path):
            found = list(own(path))
            found[4] = user if path == tmp_path / "home" else os.geteuid()
            return os.stat_result(found)

        return lstat

    monkeypatch.setattr(private_dirs.Path, "lstat", of_user(0))
    assert private_dirs.unsafe(tmp_path / "home" / "mine") is None
    monkeypatch.setattr(private_dirs.Path, "lstat", of_user(4711))
    told = private_dirs.unsafe(tmp_path / "home" / "mine")
    assert told == f"lies under {tmp_path / 'home'}, which belongs to the user with the id 4711"


@pytest.mark.usefixtures("fresh")
def test_the_private_directory_of_another_user_is_passed_over(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(private_dirs.tempfile, "gettempdir", lambda: str(tmp_path))
    (tmp_path / "home" / "keyedwm" / "compiled").mkdir(parents=True)
    (tmp_path / "home" / "keyedwm" / "compiled").chmod(0o777)
    assert compiled.cache_directory() == tmp_path / f"keyedwm-compiled-{os.geteuid()}"


def of_nobody() -> str:
    raise FileNotFoundError


@pytest.mark.usefixtures("fresh")
def test_a_user_without_a_name_and_a_home_keeps_compiled_code_among_temporary_files(tmp_path, monkeypatch, caplog):
    for name in ("HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    mine = os.geteuid()
    monkeypatch.setattr(os, "getuid", lambda: 2**31 - 7)  # by whose name Python looks for the home
    monkeypatch.setattr(private_dirs.tempfile, "gettempdir", lambda: str(tmp_path))
    assert compiled.cache_directory() == tmp_path / f"keyedwm-compiled-{mine}"
    compiled.cache_directory.cache_clear()
    monkeypatch.setattr(private_dirs.tempfile, "gettempdir", of_nobody)
    assert compiled.cache_directory() is None
    assert "no private directory for compiled code is writable" in caplog.text
    assert private_dirs.NO_PLACE in str(machine.cache(os.environ))
    with pytest.raises(InputError, match=private_dirs.NO_PLACE), RemoteFiles("s3://bucket/ledger").locked():
        pass


@pytest.mark.usefixtures("fresh")
def test_a_directory_that_others_may_write_to_inside_a_given_one_is_not_used(tmp_path, monkeypatch, caplog):
    tmp_path.chmod(0o755)
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    old = os.umask(0)
    try:
        made = compiled._compiled(add_one)
    finally:
        os.umask(old)
    assert made(1) == 2
    assert "no private directory" in caplog.text
    assert not list(tmp_path.rglob("*.nbi"))


LOAD = (
    "from keyedwm.runtime import compiled; import keyedwm.kafka.records.partitioner;"
    "[*compiled.load_cached({'keyedwm.kafka.records.partitioner'})];"
)


def test_a_process_loads_what_another_has_compiled_and_compiles_nothing_else(tmp_path):
    use = "import pyarrow as pa; from keyedwm.kafka.records.partitioner import murmur2; murmur2(pa.array([b'k']));"
    tell = (
        "print(sum(len(one.dispatcher().signatures) for one in compiled._all if one._function.__name__ == '_hash_all'))"
    )

    def told(source: str) -> str:
        environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
        environment.pop("NUMBA_CACHE_DIR", None)
        return subprocess.run(
            [sys.executable, "-c", source], check=True, capture_output=True, text=True, env=environment
        ).stdout.strip()

    assert told(LOAD + tell) == "0"
    told(use)
    assert told(LOAD + tell) == "1"
    assert told(LOAD.replace("partitioner'", "batches'") + tell) == "0"


USE = "import pyarrow as pa; from keyedwm.kafka.records.partitioner import murmur2; print(murmur2(pa.array([b'k'])));"
FULL = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0));"


def used(cache: Path, source: str = USE) -> tuple[str, str]:
    """What a process printed that hashes a key, and what it logged."""
    ran = subprocess.run(
        [sys.executable, "-B", "-c", source], check=False, capture_output=True, text=True,
        env={**os.environ, "NUMBA_CACHE_DIR": str(cache)},
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.strip(), ran.stderr


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """A directory in which the code of one function is kept."""
    tmp_path.chmod(0o700)
    used(tmp_path)
    return tmp_path


def test_a_disk_that_takes_no_compiled_code_costs_time_and_one_sentence(tmp_path):
    tmp_path.chmod(0o700)
    hashed, said = used(tmp_path, FULL + USE)
    assert hashed.startswith("[")
    assert said.count("compiled code cannot be kept in") == 1
    assert not list(tmp_path.rglob("*.nb?"))


@pytest.mark.parametrize(("kind", "left"), [("nbi", lambda _: b""), ("nbc", lambda whole: whole[:-9] + bytes(9))])
def test_compiled_code_that_was_damaged_is_compiled_again_and_then_kept(cache, kind, left):
    hashed, said = used(cache)
    assert "damaged" not in said
    files = list(cache.rglob(f"*.{kind}"))
    assert len(files) == 2
    for file in files:
        file.write_bytes(left(file.read_bytes()))
    again, said = used(cache, LOAD + USE)
    assert (again, said.count("is damaged")) == (hashed, 1)
    assert used(cache) == (hashed, "")


DECLARED = "from numba.core.registry import cpu_target; print(len(cpu_target.target_context._registries) > 0)"


def test_code_on_disk_runs_without_the_declarations_of_the_compiler(tmp_path):
    tmp_path.chmod(0o700)
    hashed, _ = used(tmp_path)
    assert used(tmp_path, USE + DECLARED)[0] == f"{hashed}\nFalse"
    for file in tmp_path.rglob("*.nbc"):
        file.unlink()
    assert used(tmp_path, USE + DECLARED)[0] == f"{hashed}\nTrue"


def test_processes_that_compile_at_the_same_time_never_read_the_code_of_another_signature(tmp_path, monkeypatch):
    monkeypatch.setattr(compiled, "cache_directory", lambda: tmp_path)
    tmp_path.chmod(0o700)
    one, two = compiled._compiled(add_one), compiled._compiled(add_one)
    files, write = one._cache._cache_file, one._cache._cache_file._open_for_write
    opened = []

    def overtaken(path):  # another process has looked at the index before, and keeps its code before our second file
        opened.append(path)
        if len(opened) == 2:
            monkeypatch.setattr(two._cache._cache_file, "_load_index", dict)
            assert two(1.5) == 2.5
        return write(path)

    monkeypatch.setattr(files, "_open_for_write", overtaken)
    assert one(1) == 2
    assert len(opened) == 2
    later = compiled._compiled(add_one)
    assert (later(1), later(1.5)) == (2, 2.5)


LIMITS = "import enum\nclass Fault(enum.IntEnum):\n    CUT = {}\n"
KERNEL = """
from keyedwm.runtime.compiled import compiled, inlined
from limits_of_it import Fault
from other_kernels import double

@inlined
def fault():
    return Fault.CUT

@compiled
def kernel(number):
    return double(fault()) + number
"""
OTHER = "from keyedwm.runtime.compiled import compiled\n@compiled\ndef double(number):\n    return number * {}\n"


def test_code_that_another_module_changes_is_compiled_again(tmp_path):
    """A constant or a compiled function of another module is part of the code; the file of the code is as before."""
    tmp_path.chmod(0o700)
    modules = tmp_path / "modules"
    modules.mkdir()
    (modules / "kernels_of_it.py").write_text(KERNEL)
    run = f"import sys; sys.path.insert(0, {str(modules)!r}); from kernels_of_it import kernel; print(kernel(100))"
    results = []
    for cut, factor in ((3, 2), (4, 2), (4, 5), (4, 5)):
        (modules / "limits_of_it.py").write_text(LIMITS.format(cut))
        other = modules / "other_kernels.py"
        other.write_text(OTHER.format(factor))
        os.utime(other, (1_000_000_000 + factor, 1_000_000_000 + factor))
        results.append(used(tmp_path, run)[0])
    assert results == ["106", "108", "120", "120"]
