"""What a page sets in Spark ends with the page."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

from keyedwm.spark import recommended_conf, session_conf
from tests.support.fake_registry import fake_registry
from tests.support.postgres import Postgres, programs, running

# A running session takes note of these, does not follow them, and does not let go of them.
BUILDERS_ONLY = session_conf().keys() - recommended_conf().keys()


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """A real PostgreSQL; without its programs the tests say so and skip."""
    bin_directory = programs()
    if bin_directory is None:
        pytest.skip("no PostgreSQL: apt-get install postgresql")
    with running(bin_directory) as server:
        yield server


class _StoreOfKeys(BaseHTTPRequestHandler):
    """Answers as ClickHouse and Elasticsearch do when they have written everything."""

    def do_POST(self) -> None:
        """Accept statements and documents."""
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        results = [{"index": {"status": 201}} for line in body.splitlines() if '"_id"' in line]
        answer = json.dumps({"items": results}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@pytest.fixture
def store_of_keys() -> Iterator[str]:
    """The address of a server that accepts the requests to ClickHouse and Elasticsearch."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _StoreOfKeys) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture
def schema_registry(request: pytest.FixtureRequest) -> Iterator[str]:
    """The address of a real registry where there can be one, else of ours."""
    try:
        url = request.getfixturevalue("real_registry")
    except pytest.skip.Exception:
        url = None
    if url is not None:
        yield url
        return
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
