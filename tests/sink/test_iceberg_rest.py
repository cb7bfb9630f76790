"""An Iceberg table in a catalog that is reached by REST: the protocol's requirements fence, and its errors are told."""

from __future__ import annotations

import traceback
from collections.abc import Iterator

import pytest

from keyedwm.core.errors import InputError, KeyedwmError, UnavailableError
from pyspark_wm_sink.iceberg.catalog import CatalogAccessError
from pyspark_wm_sink.tables.publish import publish
from tests.sink.iceberg_sink import catalog_of, foreign_append, how, numbers, stage_rows
from tests.support.iceberg_rest import RestCatalog, rest_catalog

TOKEN = "a-token-of-the-tests"  # noqa: S105 - no secret


@pytest.fixture
def server(tmp_path) -> Iterator[RestCatalog]:
    with rest_catalog(catalog_of(tmp_path), TOKEN) as running:
        yield running


def by_rest(server: RestCatalog, place, token: str = TOKEN):
    return how(place, **{"catalog.type": "rest", "catalog.uri": server.uri, "catalog.token": token})


def test_a_table_is_created_and_each_batch_is_published_once(server, tmp_path):
    to = by_rest(server, tmp_path)
    message = stage_rows(to, [1, 2])
    publish(to, [message], batch=0)
    publish(to, [message], batch=0)
    publish(to, [stage_rows(to, [1, 2])], batch=0)
    publish(to, [stage_rows(to, [3], 1)], batch=1)
    assert numbers(tmp_path) == [1, 2, 3]


def test_a_twin_whose_commit_came_first_is_found_and_nothing_is_doubled(server, tmp_path, monkeypatch):
    from pyspark_wm_sink.iceberg import table as iceberg

    to = by_rest(server, tmp_path)
    publish(to, [stage_rows(to, [1])], batch=0)
    real, calls = iceberg.append, []

    def after_a_twin(*args, **options):
        if not calls:
            calls.append(True)
            publish(to, [stage_rows(to, [2], 1)], batch=1)
            foreign_append(tmp_path, 50)
        real(*args, **options)

    monkeypatch.setattr(iceberg, "append", after_a_twin)
    publish(to, [stage_rows(to, [2], 1)], batch=1)
    assert numbers(tmp_path) == [1, 2, 50]


def test_a_commit_whose_answer_is_lost_is_not_repeated_and_one_that_was_refused_can_come_again(server, tmp_path):
    to = by_rest(server, tmp_path)
    publish(to, [stage_rows(to, [1])], batch=0)
    server.outcomes = ["lost"]
    publish(to, [stage_rows(to, [2], 1)], batch=1)
    server.outcomes = ["away"]
    message = stage_rows(to, [3], 2)
    with pytest.raises(UnavailableError, match=r"batch 2 could not be published to the table db\.t"):
        publish(to, [message], batch=2)
    publish(to, [message], batch=2)
    assert numbers(tmp_path) == [1, 2, 3]


def test_a_token_that_the_catalog_repeats_shows_in_no_error_of_a_commit(server, tmp_path):
    to = by_rest(server, tmp_path)
    server.outcomes = ["repeats"]
    with pytest.raises(InputError, match=r"db\.t does not take it: .* token \*\*\* may not write") as error:
        publish(to, [stage_rows(to, [1])], batch=0)
    assert TOKEN not in "".join(traceback.format_exception(error.value))


def test_a_login_that_a_commit_is_refused_for_is_told_as_one(server, tmp_path):
    to = by_rest(server, tmp_path)
    server.outcomes = ["forbidden"]
    with pytest.raises(CatalogAccessError, match=r"got no login .*token \*\*\* may not write.*fix your options"):
        publish(to, [stage_rows(to, [1])], batch=0)


def test_a_wrong_login_is_told_as_one(server, tmp_path):
    with pytest.raises(KeyedwmError, match=r"got no login that it accepts") as error:
        by_rest(server, tmp_path, token="wrong-token-9")  # noqa: S106 - of this test
    assert "wrong-token-9" not in str(error.value)
