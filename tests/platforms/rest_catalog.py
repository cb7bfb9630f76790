"""The sink's Iceberg tables in SeaweedFS's REST catalog, with a login for a token and a warehouse, and a killed server.

Not served by the registries here, so not tried: the runnable Nessie (`org.projectnessie.nessie:nessie-quarkus` 0.110.0
and 0.95.0), Apache Polaris (`polaris-server` 1.4.1 and 1.8.0; `polaris-runtime-service` 1.4.1 is served without a third
of the modules that it needs), Apache Gravitino (`iceberg-rest-server` 1.1.0 and 1.3.1) and Lakekeeper.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import RESTError

from pyspark_wm_sink.iceberg.catalog import CatalogAccessError
from tests.support.object_store import REGION
from tests.support.seaweedfs import TABLES, VERSION, SeaweedFS
from tests.support.table_trial import Trial, readers_in_s3
from tests.support.table_writer import publication
from tests.tools import wait_until

_LIFETIME = "ICEBERG_OAUTH_TOKEN_EXPIRY"  # in seconds
_WRONG = "a-wrong-secret-of-the-trial"


def run(folder: Path) -> str:
    """Play the trial; returns what it proved."""
    home = folder / "data"
    home.mkdir()
    with SeaweedFS(home, {_LIFETIME: "2"}) as server:
        store = server.store
        reach = {
            "type": "rest", "uri": server.catalog, "warehouse": f"s3://{TABLES}/", "s3.endpoint": store.endpoint,
            "s3.access-key-id": store.access_key, "s3.secret-access-key": store.secret_key, "s3.region": REGION,
        }  # fmt: skip
        by_login = {**reach, "credential": f"{store.access_key}:{store.secret_key}"}
        wait_until(lambda: _has_namespace(by_login), "the catalog's bucket")
        trial = Trial(_options(by_login), folder)
        trial.lone_writer()
        trial.twins()
        server.variables[_LIFETIME] = "3600"
        server.kill_and_start()
        trial.options = _options({**reach, "token": _token(server)})
        trial.neighbours()
        trial.kills(4, seed=1)
        trial.outage(server.kill_and_start)
        wrong_logins = ({"token": _WRONG}, {"credential": f"{store.access_key}:{_WRONG}"}, {})
        for wrong in wrong_logins:
            _check_rejected({**reach, **wrong})
        line = trial.check(readers_in_s3(load_catalog("default", **by_login).load_table("db.t")))
    return (
        f"REST catalog of SeaweedFS {VERSION} with a warehouse, by tokens of 2 s and one of 1 h, wrong logins "
        f"rejected, 4 kills of a writer, 2 of the server: {line}"
    )


def _has_namespace(catalog: Mapping[str, str]) -> bool:
    """Whether the namespace is there: the server creates its bucket only after it answers."""
    with suppress(RESTError):
        load_catalog("default", **catalog).create_namespace_if_not_exists("db")
        return True
    return False


def _options(catalog: Mapping[str, str]) -> dict[str, str]:
    return {"table": "db.t", "createTable": "true", **{f"catalog.{name}": value for name, value in catalog.items()}}


def _token(server: SeaweedFS) -> str:
    """Return a token that the catalog gives for the store's keys."""
    login = {"client_id": server.store.access_key, "client_secret": server.store.secret_key}
    body = urlencode({"grant_type": "client_credentials", "scope": "catalog", **login}).encode()
    with urlopen(f"{server.catalog}/v1/oauth/tokens", body, timeout=60) as answer:  # noqa: S310 - of this machine
        return json.load(answer)["access_token"]


def _check_rejected(catalog: Mapping[str, str]) -> None:
    with pytest.raises(CatalogAccessError) as rejected:
        publication(_options(catalog))
    assert _WRONG not in str(rejected.value), "a secret appears in a message"
