"""A ledger at an address: the same decisions in a store without rename and lock, and what cannot work is refused.

Object store and HDFS are played by pyarrow's own local file system behind an address.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from itertools import product
from pathlib import Path

import pyarrow as pa
import pyarrow.fs
import pytest

from keyedwm.config.addresses import open_address
from keyedwm.core.errors import InputError, OptionError, UnavailableError
from keyedwm.kafka.client.errors import AccessError
from keyedwm.kafka.requests.transactions import Transaction
from keyedwm.runtime import private_dirs
from pyspark_wm_sink.kafka.ledger import MOST_ENTRIES, Ledger, RunHistory
from pyspark_wm_sink.kafka.marker import Marker
from pyspark_wm_sink.kafka.writer import _check_checkpoint
from pyspark_wm_sink.options.kafka_target import KafkaTarget
from pyspark_wm_sink.places.ledger_files import RemoteFiles
from pyspark_wm_sink.places.notes import Claim
from tests.sink.test_decided import brokers, how, markers, publish  # noqa: F401 (fixtures)
from tests.sink.test_ledger import entry
from tests.support.early_files import Azure, Crash, Hdfs

ADDRESS = "s3://bucket/checkpoint/keyedwm"


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the files of the address lie."""
    place = tmp_path / "store"
    files = pyarrow.fs.LocalFileSystem()
    monkeypatch.setattr(RemoteFiles, "_opened", lambda self: (files, str(place / self.address.partition("://")[2])))
    return place / "bucket" / "checkpoint" / "keyedwm"


def test_decisions_runs_and_epochs_are_read_back_as_they_were_written(store: Path) -> None:
    ledger = Ledger(ADDRESS)
    with ledger.locked():
        assert ledger.newest() is None
        assert ledger.run_history() is None
        ledger.decide(entry(4))
        assert ledger.newest() == entry(4)
        ledger.mark_published(entry(4))
        assert ledger.newest() == replace(entry(4), published=True)
        runs = RunHistory(query="q", runs=("one",), fence=Transaction("q-fence", 1, 2))
        ledger.write_run_history(runs)
        assert ledger.run_history() == runs
        assert ledger.take_epoch("a") == Claim(owner="a", epoch=1, is_new=True)
        assert ledger.epoch() == 1
    assert sorted(path.name for path in store.iterdir()) == ["000000000004.published.json", "epoch.json", "run.json"]


def test_an_entry_whose_renaming_was_broken_off_is_published(store: Path) -> None:
    ledger = Ledger(ADDRESS)
    ledger.decide(entry(4))
    shutil.copy(store / "000000000004.decided.json", store / "000000000004.published.json")
    newest = ledger.newest()
    assert newest is not None
    assert newest.published


@pytest.fixture(params=[Hdfs, Azure])
def hdfs(request, store: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    def ends_after(steps: int) -> None:
        files = request.param(steps)
        monkeypatch.setattr(RemoteFiles, "_opened", lambda _self: (files, str(store)))

    return ends_after


def test_a_file_that_is_replaced_is_the_old_or_the_new_one_whenever_the_driver_dies(hdfs) -> None:
    """Twice in a row: the second replacing finds what the first one left."""
    ledger = Ledger("hdfs://n/ledger")
    old, new, newer = (RunHistory(query="q", runs=(run,), fence=Transaction("f", 1, 2)) for run in ("a", "b", "c"))
    contents = set()
    for first, second in product(range(12), repeat=2):
        hdfs(99)
        ledger.write_run_history(old)
        known = [old]
        for runs, last in ((new, first), (newer, second)):
            hdfs(last)
            with suppress(Crash):
                ledger.write_run_history(runs)
                known = []
            known.append(runs)
            hdfs(99)
            assert ledger.run_history() in known
            known = [ledger.run_history()]
            assert "run.json" in ledger.files.names()
        contents.add(known[0])
    assert contents == {old, new, newer}


def test_a_decision_is_there_or_not_whenever_the_driver_dies(hdfs, store: Path) -> None:
    ledger = Ledger("hdfs://n/ledger")
    for last in range(12):
        hdfs(last)
        with suppress(Crash):
            ledger.decide(entry(4))
            ledger.mark_published(entry(4))
        hdfs(99)
        newest_entry = ledger.newest()
        assert newest_entry is None or replace(newest_entry, published=False) == entry(4)
        ledger.decide(entry(4))
        assert ledger.mark_published(entry(4)) == ledger.newest()
        assert [path.name for path in store.iterdir()] == ["000000000004.published.json"]
        ledger.files.delete("000000000004.published.json")
        assert ledger.files.names() == []


def test_old_entries_are_deleted(store: Path) -> None:
    ledger = Ledger(ADDRESS)
    for batch in range(MOST_ENTRIES + 3):
        ledger.decide(entry(batch))
        ledger.mark_published(entry(batch))
    assert len(list(store.iterdir())) == MOST_ENTRIES


def test_a_query_publishes_and_recovers_with_its_ledger_at_an_address(store: Path, how) -> None:  # noqa: F811
    there = replace(how, ledger=ADDRESS)
    publish(there, 0, "x")
    publish(there, 1, "y", run="run-1")
    assert [one.batch for one in Ledger(ADDRESS).entries(9) if one.published] == [0, 1]
    assert markers() == {"x": 0, "y": 1}
    shutil.rmtree(store)
    with pytest.raises(InputError, match=rf"the ledger {ADDRESS} is empty, but query q has decided batch 1"):
        publish(there, 2, "x", run="run-2")


@pytest.mark.usefixtures("store")
def test_no_other_user_can_take_the_place_of_the_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shared, home = tmp_path / "shared", tmp_path / "home"
    shared.mkdir()
    monkeypatch.setattr(private_dirs.tempfile, "gettempdir", lambda: str(shared))
    monkeypatch.setenv("XDG_CACHE_HOME", str(home))
    digest = hashlib.sha256(ADDRESS.encode()).hexdigest()[:24]
    (shared / f"keyedwm-{os.geteuid()}-{digest}.lock").mkdir()  # in the way, as another user's file would be
    with Ledger(ADDRESS).locked():
        (lock,) = (home / "keyedwm" / "locks").iterdir()
    assert stat.S_IMODE(lock.parent.stat().st_mode) == 0o700
    assert lock.name == f"{digest}.lock"
    for place in (home, shared):
        place.chmod(0o777)
    with pytest.raises(InputError, match=r"has no place of this user alone .*lies under .*home.*lies under .*shared"):
        Ledger(ADDRESS).locked().__enter__()


@pytest.mark.parametrize("kind", [OSError, pa.ArrowException], ids=["of the system", "of Arrow"])
def test_a_store_that_does_not_answer_decides_nothing(
    store: Path, monkeypatch: pytest.MonkeyPatch, kind: type[Exception]
) -> None:
    Ledger(ADDRESS).decide(entry(3))

    def broken(*_args: object, **_kwargs: object) -> None:
        raise kind("AWS Error SLOW_DOWN\nduring PutObject")

    with monkeypatch.context() as failing:
        failing.setattr(
            RemoteFiles, "_opened", lambda _self: (type("Files", (), {"create_dir": broken, "type_name": "s3"})(), "x")
        )
        with pytest.raises(UnavailableError, match=r"s3://.* cannot be written: AWS Error SLOW_DOWN during PutObject"):
            Ledger(ADDRESS).decide(entry(4))
    newest = Ledger(ADDRESS).newest()
    assert newest is not None
    assert newest.batch == 3


@pytest.mark.parametrize(
    ("address", "expected_address"),
    [
        ("gs://b/x", "gs://b/x?retry_limit_seconds=60"),
        ("gs://b/x?project_id=p", "gs://b/x?project_id=p&retry_limit_seconds=60"),
        ("gs://b/x?retry_limit_seconds=5", "gs://b/x?retry_limit_seconds=5"),
        ("s3a://b/x", "s3://b/x"),
    ],
)
def test_a_store_of_google_is_given_up_after_a_minute_or_what_its_address_says(
    address: str, expected_address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Stores:
        from_uri = staticmethod(lambda uri: (uri, "b/x/"))

    monkeypatch.setattr(pyarrow.fs, "FileSystem", Stores)
    assert open_address(address, "it") == (expected_address, "b/x")


@pytest.mark.parametrize("address", ["hdfs://namenode:1/x", "viewfs://cluster/x"])
def test_hdfs_without_hadoops_library_is_answered_with_its_variables(address: str, monkeypatch) -> None:
    monkeypatch.setenv("ARROW_LIBHDFS_DIR", "/no/such/directory")
    with pytest.raises(InputError, match=r"JAVA_HOME, ARROW_LIBHDFS_DIR .the directory of libhdfs.so. and CLASSPATH"):
        open_address(address, "the ledger")


def test_without_the_marker_a_ledger_at_an_address_is_refused(store: Path) -> None:
    class Denied:
        def fetch_offsets(self, *_args: object) -> None:
            raise AccessError("not allowed to read the committed offsets")

    marker = Marker.of("q", Ledger(ADDRESS))
    with pytest.raises(InputError, match="a ledger at an address has no lock besides it: grant Read"):
        marker.read(Denied(), None)  # type: ignore[arg-type]
    assert Marker.of("q", Ledger(Path("/data/ledger"))).read(Denied(), None) is None  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"checkpointLocation": "s3a://bucket/cp/"}, "s3a://bucket/cp/keyedwm"),
        ({"checkpointLocation": "hdfs://namenode:8020/cp"}, "hdfs://namenode:8020/cp/keyedwm"),
        ({"checkpointLocation": "hdfs://user@namenode:8020/cp@2"}, "hdfs://user@namenode:8020/cp@2/keyedwm"),
        ({"checkpointLocation": "hdfs://namenode:8020/cp@2"}, "hdfs://namenode:8020/cp@2/keyedwm"),
        ({"ledger": "abfss://container@account/l"}, "abfss://container@account/l"),
        ({"ledger": "s3://b/l?endpoint_override=http://minio:9000"}, "s3://b/l?endpoint_override=http://minio:9000"),
        ({"checkpointLocation": "/data/cp"}, Path("/data/cp/keyedwm")),
        ({"checkpointLocation": "file:///data/cp"}, Path("/data/cp/keyedwm")),
        ({"checkpointLocation": "dbfs:/cp"}, None),
        ({"checkpointLocation": "s3://bucket/cp", "ledger": "/data/ledger"}, Path("/data/ledger")),
        ({"ledger": "gs://bucket/ledger"}, "gs://bucket/ledger"),
        ({}, None),
    ],
)
def test_the_ledger_lies_with_the_checkpoint_or_where_the_option_says(options: dict, expected: object) -> None:
    assert KafkaTarget.parse({"kafka.bootstrap.servers": "x:1", "topic": "t", **options}).ledger == expected


def test_an_address_that_no_library_reaches_is_refused() -> None:
    with pytest.raises(OptionError, match=r"ledger.*dbfs:/ledger.*an address of s3, s3a, gs, abfs"):
        KafkaTarget.parse({"kafka.bootstrap.servers": "x:1", "topic": "t", "ledger": "dbfs:/ledger"})


def test_a_checkpoint_without_scheme_that_is_not_on_this_machine_is_refused(tmp_path: Path) -> None:
    def target(place: Path, **more: str) -> KafkaTarget:
        all_options = {"kafka.bootstrap.servers": "x:1", "topic": "t", "checkpointLocation": str(place), **more}
        return KafkaTarget.parse(all_options)

    _check_checkpoint(target(tmp_path))
    _check_checkpoint(target(tmp_path / "gone", ledger="/data/ledger"))
    with pytest.raises(OptionError, match=r"gone is no directory of this machine, so Spark keeps it on its default"):
        _check_checkpoint(target(tmp_path / "gone"))
