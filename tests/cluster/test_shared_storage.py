"""A query whose checkpoint, with its state, is on storage that all hosts share: executors and drivers come and go.

Each of the three drivers has a host of its own, and nothing of the one before but that storage: the first loses an
executor, the second dies in the middle of a batch. The state is RocksDB's, kept as changelogs.
"""

from __future__ import annotations

import shutil
import signal
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyarrow.fs import FileSelector, S3FileSystem

from tests.cluster.conftest import EVENTS, Feed
from tests.cluster.outputs import copied, counted, counted_in_order, events_of
from tests.support.object_store import VARIABLE, ObjectStore, object_store
from tests.support.s3a import s3a_conf, s3a_jars

pytestmark = [pytest.mark.starts, pytest.mark.cluster, pytest.mark.timeout(2_700)]

BITE = 300  # seven batches
LAST_OF_FIRST = 3


def on_three_hosts(run: Callable[..., Path], place: Path, **fields: Any) -> Path:
    """Run the job to its end by three drivers; returns the directory that all share."""
    run(home="first", kill="windows", stop_after=LAST_OF_FIRST, bite=BITE, **fields)
    assert events_of(place, "ExecutorRemoved")
    (place / "struck").unlink()
    shutil.rmtree(place / "first")
    run(home="second", kill="driver", code=-signal.SIGKILL, bite=BITE, **fields)
    assert (place / "killed").exists()
    shutil.rmtree(place / "second")
    return run(home="third", kill="driver", bite=BITE, **fields)


@pytest.fixture(scope="module")
def store() -> Iterator[ObjectStore]:
    """Never one that was given: its keys would stand in the list of processes."""
    with pytest.MonkeyPatch.context() as patched:
        patched.delenv(VARIABLE, raising=False)
        with object_store() as running:
            yield running


@pytest.mark.parametrize("target", ["delta", "windows"])
def test_windows_are_exact_on_three_hosts_in_turn_from_a_shared_directory(run, kafka, feed: Feed, tmp_path, target):
    directory = on_three_hosts(run, tmp_path, target=target)
    state = [path.name for path in (directory / "checkpoint" / "state").rglob("*.*") if path.suffix != ".crc"]
    assert any(name.endswith(".changelog") for name in state)
    found = counted(directory) if target == "delta" else counted_in_order(copied(kafka.bootstrap, f"{feed.topic}-out"))
    assert found == feed.seconds
    assert sum(found.values()) == EVENTS


@pytest.mark.parametrize("target", ["delta", "windows"])
def test_windows_are_exact_on_three_hosts_in_turn_from_an_object_store(
    run, kafka, feed: Feed, tmp_path, store: ObjectStore, target
):
    place = f"{store.bucket}/{uuid.uuid4().hex}"
    conf = {**store.spark_conf, **s3a_conf(s3a_jars())}
    reach = {"store": f"s3a://{place}", "conf": conf, "storage": dict(store.storage_options)}
    on_three_hosts(run, tmp_path, target=target, variables=store.variables, **reach)
    assert not (tmp_path / "checkpoint").exists()
    names = objects(store, f"{place}/checkpoint")
    assert any("/state/" in name and name.endswith(".changelog") for name in names)
    assert any("/keyedwm/" in name for name in names) == (target == "windows")
    if target == "delta":
        found = counted(f"s3a://{place}", store.storage_options)
    else:
        found = counted_in_order(copied(kafka.bootstrap, f"{feed.topic}-out"))
    assert found == feed.seconds


def objects(store: ObjectStore, place: str) -> list[str]:
    files = S3FileSystem(
        access_key=store.access_key, secret_key=store.secret_key, region="eu-west-1", endpoint_override=store.endpoint
    )
    return [one.path for one in files.get_file_info(FileSelector(place, recursive=True))]
