"""Iceberg's REST protocol over a catalog of SQLite, so far as a writer of tables asks it; PyIceberg does the work.

Never a proof of what a real server does: it shows that requests, requirements and errors travel as the protocol says.
`outcomes` steers the answers to commits: `lost` commits and breaks the connection, `away` answers 503,
`repeats` answers 400 with the token.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import MappingProxyType
from typing import Any
from urllib.parse import urlsplit

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError
from pyiceberg.schema import Schema
from pyiceberg.table import CommitTableRequest, Table


@dataclass
class RestCatalog:
    """A running server; token: what a login is compared with, None for none.

    overrides: properties that it gives all its clients; of_tables: those that come with each table; elsewhere: an
    address that logins are redirected to. logins: bodies of questions for a token.
    """

    catalog: Catalog
    token: str | None = None
    uri: str = ""
    overrides: dict[str, Any] = field(default_factory=dict)
    of_tables: dict[str, Any] = field(default_factory=dict)
    elsewhere: str = ""
    logins: list[bytes] = field(default_factory=list)
    outcomes: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)


@contextmanager
def rest_catalog(catalog: Catalog, token: str | None = None) -> Iterator[RestCatalog]:
    at = RestCatalog(catalog, token)

    class Handler(_Handler):
        served = at

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    at.uri = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield at
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    served: RestCatalog

    def log_message(self, *_: object) -> None:
        """Nothing is logged."""

    def do_GET(self) -> None:
        self._answer(None)

    def do_POST(self) -> None:
        self._answer(self.rfile.read(int(self.headers["Content-Length"])))

    def _answer(self, body: bytes | None) -> None:
        if body is not None and self.path.endswith("/oauth/tokens"):
            self._log_in(body)
            return
        if self.served.token is not None and self.headers["Authorization"] != f"Bearer {self.served.token}":
            self._send(401, _error("NotAuthorizedException", "who are you?"))
            return
        try:
            with self.served.lock:
                status, answer = self._routed(urlsplit(self.path).path.strip("/").split("/"), body)
        except NoSuchTableError as error:
            status, answer = 404, _error("NoSuchTableException", str(error))
        except CommitFailedException as error:
            status, answer = 409, _error("CommitFailedException", str(error))
        self._send(status, answer)

    def _log_in(self, body: bytes) -> None:
        self.served.logins.append(body)
        if self.served.elsewhere:
            self.send_response(307)
            self.send_header("Location", f"{self.served.elsewhere}{self.path}")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        self._send(200, json.dumps({"access_token": self.served.token, "token_type": "bearer"}))

    def _routed(self, parts: list[str], body: bytes | None) -> tuple[int, str]:
        if parts == ["v1", "config"]:
            return 200, json.dumps({"defaults": {}, "overrides": self.served.overrides})
        catalog, name = self.served.catalog, ".".join([parts[2], *parts[4:]])
        if body is None:
            return 200, _loaded(catalog.load_table(name), self.served.of_tables)
        return self._stage_table(name, json.loads(body)) if len(parts) == 4 else self._committed(name, body)

    def _stage_table(self, namespace: str, request: dict) -> tuple[int, str]:
        assert request["stage-create"], "the sink creates tables in a transaction"
        schema, properties = Schema.model_validate(request["schema"]), request.get("properties", {})
        name = f"{namespace}.{request['name']}"
        return 200, _loaded(self.served.catalog._create_staged_table(name, schema, properties=properties))

    def _committed(self, name: str, body: bytes) -> tuple[int, str]:
        catalog, request = self.served.catalog, CommitTableRequest.model_validate_json(body)
        outcome = self.served.outcomes.pop(0) if self.served.outcomes else ""
        if outcome == "away":
            return 503, _error("ServiceUnavailableException", "later")
        if outcome == "repeats":
            return 400, _error("BadRequestException", f"token {self.served.token} may not write")
        if outcome == "forbidden":
            return 403, _error("ForbiddenException", f"token {self.served.token} may not write")
        is_new = any(type(one).__name__ == "AssertCreate" for one in request.requirements)
        table = catalog._create_staged_table(name, Schema()) if is_new else catalog.load_table(name)
        answer = catalog.commit_table(table, request.requirements, request.updates)
        if outcome == "lost":
            return 500, _error("Exception", "the answer was lost")
        return 200, answer.model_dump_json(by_alias=True)

    def _send(self, status: int, body: str) -> None:
        data = body.encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def _loaded(table: Table, config: Mapping[str, Any] = MappingProxyType({})) -> str:
    place, metadata = json.dumps(table.metadata_location or None), table.metadata.model_dump_json(by_alias=True)
    return f'{{"metadata-location": {place}, "metadata": {metadata}, "config": {json.dumps(dict(config))}}}'


def _error(kind: str, message: str) -> str:
    return json.dumps({"error": {"message": message, "type": kind, "code": 0}})
