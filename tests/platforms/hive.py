"""The sink's Iceberg tables in a real Hive metastore over Derby: replays, twins, killed drivers, a killed metastore."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from pyiceberg.catalog import load_catalog

from keyedwm.core.errors import UnavailableError
from keyedwm.testing.ivy import fetch_archive, fetch_jars
from keyedwm.testing.java import find_java
from keyedwm.testing.local import free_ports
from tests.platforms.parts import NotServedError, pip_folder
from tests.support.foreign_server import ForeignServer, listens
from tests.support.standalone import spark_home
from tests.support.table_trial import Trial, iceberg_readers

HIVE = "3.1.3"
_COLLECTIONS = "commons-collections:commons-collections:3.2.2"
_HASHES = {
    f"hive-standalone-metastore-{HIVE}-bin.tar.gz": "83ddf76717eeb789091d845c069a631c25cad561c3d31ec0843a1ddf21f29409",
    "commons-collections-3.2.2.jar": "eeeae917917144a68a741d4c0dff66aa5c5c5fd85593ff217bced3fc8ca783b8",
}
THRIFT = ["thrift==0.25.0 --hash=sha256:b968801fcf0974e3702130e372fd63c1cb96b67948d2dc4237cdee3d157face0"]
# Hadoop and the log's libraries: the archive has none of the first, and older ones of the second.
_OF_SPARK = (
    "hadoop-client-api", "hadoop-client-runtime", "slf4j-api", "jcl-over-slf4j", "log4j-slf4j2-impl", "log4j-core",
    "log4j-api", "log4j-1.2-api", "commons-cli", "commons-io",
)  # fmt: skip
_PACKAGE = "org.apache.hadoop.hive.metastore"
_SETTINGS = {
    "javax.jdo.option.ConnectionURL": "jdbc:derby:;databaseName=metastore;create=true",
    "javax.jdo.option.ConnectionDriverName": "org.apache.derby.jdbc.EmbeddedDriver",
    "metastore.expression.proxy": f"{_PACKAGE}.DefaultPartitionExpressionProxy",
    "metastore.task.threads.always": f"{_PACKAGE}.events.EventCleanerTask,{_PACKAGE}.txn.AcidHouseKeeperService",
    # A killed writer leaves its lock of the table until this time is up: here seconds instead of five minutes.
    "metastore.txn.timeout": "5s",
    "metastore.timedout.txn.reaper.start": "1s",
    "metastore.timedout.txn.reaper.interval": "1s",
}
# PyIceberg waits 2, 4 and 8 seconds for a lock, then gives up.
_LOCK = {"lock-check-max-wait-time": "0.1", "lock-check-retries": "200"}


def run(folder: Path) -> str:
    """Play the trial; returns what it proved."""
    packages = pip_folder("thrift", THRIFT)
    home = folder / "metastore"
    home.mkdir()
    hive, path = _parts(home)
    variables = {"METASTORE_HOME": str(hive)}
    command = [find_java(), "-XX:TieredStopAtLevel=1", "-cp", path]
    tool = [*command, "-Dderby.system.durability=test", f"{_PACKAGE}.tools.MetastoreSchemaTool"]
    with (home / "schema.log").open("w") as log:
        subprocess.run(
            [*tool, "-dbType", "derby", "-initSchema"], cwd=home, env=os.environ | variables, stdout=log, stderr=log,
            check=True,
        )  # fmt: skip
    (port,) = free_ports(1)
    serve = [*command, f"{_PACKAGE}.HiveMetaStore", "-p", str(port)]
    with ForeignServer("metastore", serve, home, lambda: listens(port), variables) as server:
        return _played(folder, server, f"thrift://127.0.0.1:{port}", str(packages))


def _parts(home: Path) -> tuple[Path, str]:
    """Write the settings; returns the unpacked metastore, and the class path with the settings in front."""
    try:
        archive = fetch_archive(
            "hive-metastore", f"org.apache.hive:hive-standalone-metastore:{HIVE}:bin:tar.gz", hashes=_HASHES
        )
        collections = fetch_jars("collections", [_COLLECTIONS], transitive=False, hashes=_HASHES)
    except UnavailableError as error:
        raise NotServedError(f"Hive's standalone metastore {HIVE}: {error.message}") from error
    hive = archive / f"apache-hive-metastore-{HIVE}-bin"
    properties = "".join(
        f"<property><name>{name}</name><value>{value}</value></property>" for name, value in _SETTINGS.items()
    )
    (home / "metastore-site.xml").write_text(f"<configuration>{properties}</configuration>")
    of_hive = [jar for jar in sorted((hive / "lib").glob("*.jar")) if not jar.name.startswith("log4j")]
    of_spark = [jar for name in _OF_SPARK for jar in (spark_home() / "jars").glob(f"{name}-[0-9]*.jar")]
    return hive, os.pathsep.join(map(str, [home, *of_hive, *of_spark, *collections]))


def _played(folder: Path, server: ForeignServer, uri: str, packages: str) -> str:
    sys.path.append(packages)  # PyIceberg imports thrift
    catalog = {"type": "hive", "uri": uri, "warehouse": str(folder / "warehouse"), **_LOCK}
    load_catalog("default", **catalog).create_namespace("db")
    options = {f"catalog.{name}": value for name, value in catalog.items()}
    trial = Trial(
        {"table": "db.t", "createTable": "true", "partitionBy": "bucket(2, n)", **options}, folder, [packages]
    )
    trial.lone_writer()
    trial.twins()
    trial.neighbours()
    trial.kills(6, seed=1)
    trial.outage(server.kill_and_start)
    _leave_lock(catalog)
    trial.lone_writer("after a lock that stayed")
    table = load_catalog("default", **catalog).load_table("db.t")
    line = trial.check(iceberg_readers(table))
    return (
        f"Hive metastore {HIVE} over Derby, 6 kills of a writer, 2 of the metastore, a lock that stayed removed by the "
        f"metastore: {line}"
    )


def _leave_lock(catalog: dict[str, str]) -> None:
    """Lock the table and never unlock it, as a writer does that is killed while it commits."""
    connected: Any = load_catalog("default", **catalog)
    with connected._client as client:
        client.lock(connected._create_lock_request("db", "t"))
