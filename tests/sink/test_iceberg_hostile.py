"""A catalog's server, or the owner of a table, that wants the driver to run code, to send it the login, or to wait."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from requests import Session, Timeout

from keyedwm.core.errors import OptionError, UnavailableError
from pyspark_wm_sink.iceberg.catalog import open_table
from pyspark_wm_sink.iceberg.rest_catalog import limit
from tests.sink.iceberg_sink import NAME, catalog_of, how, stage_rows
from tests.support.hostile import silent_listener
from tests.support.iceberg_rest import RestCatalog, rest_catalog

TOKEN, SECRET = "a-token-of-the-tests", "client-secret-of-the-tests"
# Each makes a file where PyIceberg calls what it names.
OF_SERVER = {"auth": {"type": "custom", "impl": "builtins.open", "custom": {"file": "MARK", "mode": "w"}}}
OF_TABLE = {
    "py-io-impl": "logging.config.dictConfig", "version": 1,
    "handlers": {"one": {"class": "logging.FileHandler", "filename": "MARK"}},
}  # fmt: skip
LOCATION = "write.py-location-provider.impl"


@pytest.fixture
def server(tmp_path) -> Iterator[RestCatalog]:
    catalog_of(tmp_path).create_table(NAME, pa.schema([("n", pa.int64())]))
    with rest_catalog(catalog_of(tmp_path), TOKEN) as running:
        yield running


def by_rest(server: RestCatalog, **more: str) -> dict[str, str]:
    return {"type": "rest", "uri": server.uri, "token": TOKEN, **more}


def with_credential(server: RestCatalog) -> dict[str, str]:
    return by_rest(server, credential=f"id:{SECRET}", **{"oauth2-server-uri": f"{server.uri}/oauth/tokens"})


def marked(properties: dict, mark: str) -> dict:
    """The same properties, with a path in place of MARK."""
    return {
        name: marked(value, mark) if isinstance(value, dict) else mark if value == "MARK" else value
        for name, value in properties.items()
    }


@pytest.mark.parametrize(
    ("overrides", "of_tables", "sentence"),
    [
        (OF_SERVER, {}, "the server of the catalog default has the property auth, which names Python code to run"),
        ({}, OF_TABLE, "has the property py-io-impl, which names Python code to run"),
        (OF_TABLE, {}, "the server of the catalog default has the property py-io-impl, which names Python code"),
    ],
)
def test_a_server_runs_no_code_in_the_driver(server, overrides, of_tables, sentence, tmp_path):
    mark = tmp_path / "mark"
    server.overrides, server.of_tables = (marked(one, str(mark)) for one in (overrides, of_tables))
    with pytest.raises(OptionError, match=sentence):
        open_table(NAME, "default", by_rest(server))
    assert not mark.exists()


def test_the_owner_of_a_table_runs_no_code_where_it_is_written(tmp_path):
    table = catalog_of(tmp_path).create_table(NAME, pa.schema([("n", pa.int64())]))
    metadata = Path(table.metadata_location.removeprefix("file://"))
    content = json.loads(metadata.read_text())
    metadata.write_text(json.dumps({**content, "properties": {LOCATION: "shutil.rmtree"}}))
    with pytest.raises(OptionError, match=f"has the property {LOCATION}, which names Python code to run: remove the"):
        stage_rows(how(tmp_path), [1])
    assert (tmp_path / "db" / "t").exists()


def test_code_that_an_option_names_is_the_users(tmp_path):
    layout = "pyiceberg.table.locations.SimpleLocationProvider"
    catalog_of(tmp_path).create_table(NAME, pa.schema([("n", pa.int64())]), properties={LOCATION: layout})
    stage_rows(how(tmp_path, **{f"catalog.{LOCATION}": layout}), [1])


def test_a_server_does_not_choose_who_gets_the_credential(server, tmp_path):
    with rest_catalog(catalog_of(tmp_path), TOKEN) as thief:
        server.overrides = {"oauth2-server-uri": f"{thief.uri}/oauth/tokens"}
        with pytest.raises(OptionError, match="names another oauth2-server-uri than option") as error:
            open_table(NAME, "default", with_credential(server))
    assert server.logins
    assert thief.logins == []
    assert SECRET not in str(error.value)


def test_a_redirect_to_another_host_gets_no_login(server, tmp_path):
    with rest_catalog(catalog_of(tmp_path), TOKEN) as thief:
        server.elsewhere = thief.uri
        with pytest.raises(
            UnavailableError, match="redirects to another host, port or protocol, which would get the login"
        ):
            open_table(NAME, "default", with_credential(server))
    assert thief.logins == []


def test_a_server_that_never_answers_is_given_up():
    with silent_listener() as port, Session() as session:
        limit(session, (60.0, 0.2))
        with pytest.raises(Timeout):
            session.get(f"http://127.0.0.1:{port}/v1/config")


def test_settings_of_another_user_in_the_working_directory_are_refused(tmp_path, monkeypatch):
    how(tmp_path)
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".pyiceberg.yaml").write_text("catalog:\n  default:\n    py-io-impl: antigravity.geohash\n")
    monkeypatch.setattr(os, "geteuid", lambda: tmp_path.stat().st_uid + 1)
    if tmp_path.stat().st_uid == 0:  # root's files are trusted
        os.chown(tmp_path / ".pyiceberg.yaml", 1_000, -1)
    with pytest.raises(OptionError, match=r"\.pyiceberg\.yaml, which belongs to the user with the id "):
        open_table(NAME, "default", {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db"})
