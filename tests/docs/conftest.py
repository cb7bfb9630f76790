"""What a page sets in Spark ends with the page."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from keyedwm.spark import recommended_conf, session_conf
from tests.support.fake_registry import fake_registry
from tests.support.postgres import Postgres, programs, running

# A running session takes note of these, does not follow them, and does not let go of them.
BUILDERS_ONLY = session_conf().keys() - recommended_conf().keys()


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """A real PostgreSQL; without its programs the tests say so and skip."""
    found = programs()
    if found is None:
        pytest.skip("no PostgreSQL: apt-get install postgresql")
    with running(found) as server:
        yield server


@pytest.fixture
def schema_registry() -> Iterator[str]:
    """The address of a registry without schemas."""
    with fake_registry() as running:
        yield running.url


@pytest.fixture(autouse=True)
def settings_end_with_the_page(request: pytest.FixtureRequest) -> Iterator[None]:
    if "spark" not in request.fixturenames:
        yield
        return
    conf = request.getfixturevalue("spark").conf
    before = dict(conf.getAll)
    yield
    for name, value in dict(conf.getAll).items():
        if name in BUILDERS_ONLY:
            continue
        if name not in before:
            conf.unset(name)
        elif value != before[name]:
            conf.set(name, before[name])
