"""The sink's Iceberg tables in Glue and S3 of moto's server: replays, twins, killed drivers, lost answers."""

from __future__ import annotations

import sys
from importlib.metadata import version
from pathlib import Path

from pyiceberg.catalog import load_catalog

from keyedwm.core.errors import UnavailableError
from keyedwm.testing.local import free_ports
from tests.platforms.parts import NotServedError
from tests.support.foreign_server import ForeignServer, listens
from tests.support.object_store import BUCKET, REGION, moto_packages
from tests.support.table_trial import Trial, readers_in_s3

LOGIN = {"access-key-id": "keyedwm", "secret-access-key": "any-key-is-accepted", "region": REGION}


def run(folder: Path) -> str:
    """Play the trial; returns what it proved."""
    try:
        packages = moto_packages()
    except UnavailableError as error:
        raise NotServedError(error.message) from error
    sys.path.append(str(packages))  # PyIceberg imports boto3
    (port,) = free_ports(1)
    endpoint = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "tests.support.glue_server", packages, "127.0.0.1", str(port), BUCKET]
    catalog = {
        "type": "glue", "glue.endpoint": endpoint, "s3.endpoint": endpoint, "warehouse": f"s3://{BUCKET}/lake",
        **{f"{part}.{name}": value for part in ("glue", "s3") for name, value in LOGIN.items()},
    }  # fmt: skip
    with ForeignServer("glue", command, Path.cwd(), lambda: listens(port), log=folder / "glue.log"):
        load_catalog("default", **catalog).create_namespace("db")
        options = {f"catalog.{name}": value for name, value in catalog.items()}
        trial = Trial(
            {"table": "db.t", "createTable": "true", "partitionBy": "bucket(2, n)", **options}, folder, [str(packages)]
        )
        trial.lone_writer()
        trial.twins()
        trial.neighbours()
        trial.kills(6, seed=1)
        line = trial.check(readers_in_s3(load_catalog("default", **catalog).load_table("db.t")))
    return f"Glue and S3 of moto {version('moto')}, 6 kills of a writer, every fourth answer lost: {line}"
