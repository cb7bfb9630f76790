"""The process of `object_store`: moto's S3 with one bucket, on one port, writes one at a time.

Run: python -I object_store_server.py PACKAGES HOST PORT BUCKET   (PACKAGES: the directory that moto is installed in)

Rule: it imports nothing of keyedwm. Moto looks whether an object is there and then writes it, in two steps; a store
whose conditional writes two writers can both win would break every Delta table, so no two writes overlap.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from threading import Lock
from typing import Any

_READS = ("GET", "HEAD")


class OneWriter:
    """A WSGI application whose requests wait for each other, but for those that only read."""

    def __init__(self, application: Callable) -> None:
        self._application = application
        self._lock = Lock()

    def __call__(self, environment: dict[str, Any], start_response: Callable) -> Iterable[bytes]:
        """Answer one request."""
        if environment["REQUEST_METHOD"] in _READS:
            return self._application(environment, start_response)
        with self._lock:
            return self._application(environment, start_response)


def main(packages: str, host: str, port: str, bucket: str) -> None:
    """Serve until the process is ended."""
    sys.path.insert(0, packages)
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
    from werkzeug.serving import run_simple
    from werkzeug.test import Client

    class Handler(MotoRequestHandler):
        """Says once that a client may go on: Werkzeug says it, and Python's own server would say it before that.

        Amazon's asynchronous client, which S3A uploads files with, takes a second `100 Continue` for the answer.
        """

        def handle_expect_100(self) -> bool:
            return True

    application = OneWriter(DomainDispatcherApplication(create_backend_app))
    Client(application).put(f"/{bucket}", base_url=f"http://127.0.0.1:{port}").close()
    run_simple(host, int(port), application, threaded=True, request_handler=Handler)


if __name__ == "__main__":
    main(*sys.argv[1:])
