"""A schema registry in this process, with as much of Confluent's API as the client asks for, and faults to order.

Rule: tests/registry/test_contract.py runs on this one and on a real one, so that neither differs from what it claims.
"""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

PATH = "/apis/ccompat/v7"
Reply = tuple[int, str, bytes, Mapping[str, str]]


def reply(status: int, value: Any, media: str = "application/json", **headers: str) -> Reply:
    """An answer; value: JSON, or the bytes themselves."""
    return status, media, value if isinstance(value, bytes) else json.dumps(value).encode(), headers


class FakeRegistry:
    """Schemas by id and subject; `rule` answers in place of them, if it returns anything for a method and a path."""

    def __init__(self) -> None:
        self.schemas: list[dict[str, Any]] = []
        self.subjects: dict[str, list[int]] = {}
        self.guids: dict[str, int] = {}
        self.requests: list[str] = []
        self.logins: list[str | None] = []
        self.rule: Callable[[str, str], Reply | None] = lambda _method, _path: None
        self.level = "NONE"
        self.url = ""

    def add(self, subject: str, text: str, kind: str = "AVRO", references: Any = ()) -> int:
        """Register a schema without a question."""
        body = {"schema": text, "schemaType": kind, "references": list(references)}
        return self._register(subject, body)[1]["id"]

    def answer(self, method: str, target: str, body: Any) -> Reply:
        """Answer one question."""
        parts = urlsplit(target)
        self.requests.append(f"{method} {parts.path.removeprefix(PATH)}")
        ordered = self.rule(method, parts.path)
        if ordered is not None:
            return ordered
        if not parts.path.startswith(PATH):
            return reply(404, b"<html>no such page</html>", "text/html")
        status, value = self._answer(method, [unquote(p) for p in parts.path[len(PATH) :].split("/")[1:]], body)
        return reply(status, value)

    def _answer(self, method: str, path: list[str], body: Any) -> tuple[int, Any]:
        match method, path:
            case "GET", ["subjects"]:
                answer: Any = 200, list(self.subjects)
            case "GET", ["schemas", "types"]:
                answer = 200, ["AVRO", "PROTOBUF", "JSON"]
            case "GET", ["schemas", "ids", text, *rest]:
                answer = self._by_id(int(text), rest)
            case "GET", ["schemas", "guids", guid]:
                answer = self._by_id(self.guids.get(guid, 0), [])
            case "GET", ["subjects", subject, "versions", version]:
                answer = self._version(subject, version)
            case "POST", ["subjects", subject, "versions"]:
                answer = self._register(subject, body)
            case "POST", ["subjects", subject]:
                answer = self._lookup(subject, body)
            case "POST", ["compatibility", "subjects", subject, "versions", "latest"]:
                answer = 200, {"is_compatible": subject not in self.subjects or self._follows(subject, body)}
            case "GET", ["config", _]:
                answer = 200, {"compatibilityLevel": self.level}
            case _:
                answer = 404, {"error_code": 404, "message": "HTTP 404 Not Found"}
        return answer

    def _by_id(self, schema_id: int, rest: list[str]) -> tuple[int, Any]:
        if not 0 < schema_id <= len(self.schemas):
            return 404, {"error_code": 40403, "message": f"Schema {schema_id} not found."}
        if rest == ["subjects"]:
            return 200, [subject for subject, ids in self.subjects.items() if schema_id in ids]
        return 200, self.schemas[schema_id - 1]

    def _version(self, subject: str, version: str) -> tuple[int, Any]:
        ids = self.subjects.get(subject)
        if ids is None:
            return 404, {"error_code": 40401, "message": f"Subject '{subject}' not found."}
        at = len(ids) if version == "latest" else int(version)
        if not 0 < at <= len(ids):
            return 404, {"error_code": 40402, "message": f"Version {version} not found."}
        return 200, {"subject": subject, "version": at, "id": ids[at - 1], **self.schemas[ids[at - 1] - 1]}

    def _register(self, subject: str, body: Any) -> tuple[int, Any]:
        kind = body.get("schemaType", "AVRO")
        if kind == "AVRO" and not body["schema"].startswith(("{", '"')):
            return 422, {"error_code": 42201, "message": "Invalid schema"}
        schema = {"schema": body["schema"], **({} if kind == "AVRO" else {"schemaType": kind})}
        if body.get("references"):
            schema["references"] = body["references"]
        if schema not in self.schemas:
            self.schemas.append(schema)
        schema_id = self.schemas.index(schema) + 1
        ids = self.subjects.setdefault(subject, [])
        if schema_id not in ids:
            ids.append(schema_id)
        return 200, {"id": schema_id}

    def _lookup(self, subject: str, body: Any) -> tuple[int, Any]:
        if subject not in self.subjects:
            return 404, {"error_code": 40401, "message": f"Subject '{subject}' not found."}
        for version, schema_id in enumerate(self.subjects[subject], 1):
            if self.schemas[schema_id - 1]["schema"] == body["schema"]:
                return 200, {"subject": subject, "version": version, "id": schema_id}
        return 404, {"error_code": 40403, "message": "Schema not found"}

    def _follows(self, subject: str, body: Any) -> bool:
        latest = self.schemas[self.subjects[subject][-1] - 1]["schema"]
        return latest[:1] == body["schema"][:1] == "{"


class _Handler(BaseHTTPRequestHandler):
    registry: FakeRegistry

    def _serve(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length)) if length else None
        self.registry.logins.append(self.headers.get("Authorization"))
        status, media, content, headers = self.registry.answer(self.command, self.path, body)
        self.send_response(status)
        for name, value in {"Content-Type": media, "Content-Length": str(len(content)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST = _serve  # noqa: N815 (the library's names)

    def log_message(self, *_: Any) -> None:
        pass


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: Any) -> None:
        pass  # a client that gave up


@contextmanager
def fake_registry(context: ssl.SSLContext | None = None) -> Iterator[FakeRegistry]:
    """Run one; context: of TLS."""
    registry = FakeRegistry()
    server = _Server(("127.0.0.1", 0), type("Handler", (_Handler,), {"registry": registry}))
    if context is not None:
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    registry.url = f"{'https' if context else 'http'}://127.0.0.1:{server.server_address[1]}{PATH}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield registry
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
