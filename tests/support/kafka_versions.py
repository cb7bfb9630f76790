"""Other versions of Kafka than the usual one, for the contract tests: KEYEDWM_KAFKA_VERSION names it.

Rule: a jar has the SHA-256 that stands in kafka_jars.txt. Kafka before 3.3 runs with a ZooKeeper of its own, which is
among its jars: without ZooKeeper such a broker has no producer ids, so nothing could be written.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from keyedwm.testing.ivy import read_hashes
from keyedwm.testing.java import find_java
from keyedwm.testing.local import LocalBroker, Release, free_ports, local_broker, log_to_console
from keyedwm.testing.process import ServerProcess

VARIABLE = "KEYEDWM_KAFKA_VERSION"
_JARS = Path(__file__).parent / "kafka_jars.txt"
_KRAFT = (3, 3)
_WITHOUT_KRAFT = {"process.roles": "", "controller.quorum.voters": "", "controller.listener.names": ""}
_SERVES = "PrepRequestProcessor (sid:0) started"


def since(version: str, feature: str) -> pytest.MarkDecorator:
    """Skip a test of something that Kafka offers since this version where KEYEDWM_KAFKA_VERSION names an older one."""
    version_under_test = os.environ.get(VARIABLE)
    older = version_under_test is not None and _parsed(version_under_test) < _parsed(version)
    return pytest.mark.skipif(older, reason=f"{feature}: since Kafka {version}, this is {version_under_test}")


def release(version: str) -> Release:
    """A version of Kafka whose jars are known."""
    hashes = read_hashes(_JARS)
    if f"kafka_2.13-{version}.jar" not in hashes:
        raise ValueError(f"{VARIABLE}={version}: the jars of this version are not in {_JARS.name}")
    return Release(version, hashes)


@contextmanager
def broker_of(version: str) -> Iterator[LocalBroker]:
    """A running broker of this version."""
    broker_release = release(version)
    if _parsed(version) >= _KRAFT:
        with local_broker(release=broker_release) as broker:
            yield broker
        return
    (port,) = free_ports(1)
    with _zookeeper(broker_release) as address:
        extra = {**_WITHOUT_KRAFT, "listeners": f"PLAINTEXT://127.0.0.1:{port}", "zookeeper.connect": address}
        with local_broker(port=port, extra=extra, release=broker_release) as broker:
            yield broker


@contextmanager
def _zookeeper(release: Release) -> Iterator[str]:
    """The address of a ZooKeeper of this release."""
    (port,) = free_ports(1)
    with tempfile.TemporaryDirectory(prefix="keyedwm-zookeeper-") as directory:
        home = Path(directory)
        config = home / "zoo.cfg"
        config.write_text(
            f"dataDir={home / 'data'}\nclientPort={port}\nclientPortAddress=127.0.0.1\nadmin.enableServer=false\n"
        )
        command = [find_java(), "-Xmx128m", log_to_console(home), "-cp", f"{release.jars()}/*",
                   "org.apache.zookeeper.server.quorum.QuorumPeerMain", config]  # fmt: skip
        server = ServerProcess(home, f"ZooKeeper at 127.0.0.1:{port}", command)
        try:
            server.start(lambda logged: _SERVES in logged)
            yield f"127.0.0.1:{port}"
        finally:
            server.kill()


def _parsed(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))
