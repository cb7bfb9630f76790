"""The figures in Prometheus' format: for a server that asks, for a push gateway, and in a text file.

Rule: the registry is our own, so it has no other metrics of the program. A gateway or disk that fails gets one warning,
and the next figures are tried again: monitoring never stops a query.
"""

from __future__ import annotations

import errno
import logging
import socket
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import groupby
from pathlib import Path
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import push_to_gateway, write_to_textfile
from prometheus_client.registry import Collector

from keyedwm.core.errors import OptionError
from keyedwm.core.text import words_of
from keyedwm.spark.metrics.catalogue import Kind
from keyedwm.spark.metrics.figures import Figures

LOG = logging.getLogger("keyedwm.metrics")
_AGAIN_S = 15.0  # delays also grow without an event
_LEAST_PAUSE_S = 1.0
_PUSH_TIMEOUT_S = 5.0
_LAST_S = 15.0
MOST_CONNECTIONS = 32
_JOB = "keyedwm"
_OF_THE_PORT = (errno.EADDRINUSE, errno.EACCES)
_MOST_PORT = 65_535


class QueryCollector(Collector):
    """Gives a registry the current figures at each scrape."""

    def __init__(self, figures: Figures) -> None:
        self._figures = figures

    def collect(self) -> Iterator[Any]:
        """Yield a family of samples for each metric that has any."""
        for metric, samples in groupby(self._figures.samples(), key=lambda sample: sample.metric):
            family = CounterMetricFamily if metric.kind is Kind.COUNTER else GaugeMetricFamily
            metric_family = family(metric.prometheus, metric.help, labels=metric.labels)
            for sample in samples:
                metric_family.add_metric(sample.labels, sample.value)
            yield metric_family


def registry_of(figures: Figures) -> CollectorRegistry:
    """Return a registry with only these figures."""
    registry = CollectorRegistry()
    registry.register(QueryCollector(figures))
    return registry


class _Server(ThreadingMixIn, WSGIServer):
    """Answers each connection on a thread; of too many connections the oldest is closed.

    Anybody who reaches the port may open connections and send nothing: they must not use up the files of the driver.
    """

    daemon_threads = True
    request_queue_size = MOST_CONNECTIONS

    def __init__(self, host: str, port: int, figures: Figures) -> None:
        self.address_family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        self._connections: deque[Any] = deque()
        super().__init__((host, port), _Handler)
        self.set_app(make_wsgi_app(registry_of(figures)))

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer on a thread of its own."""
        self._connections.append(request)
        if len(self._connections) > MOST_CONNECTIONS:
            with suppress(OSError):  # it has ended
                self._connections.popleft().shutdown(socket.SHUT_RDWR)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Close a connection that has ended; only open ones count."""
        with suppress(ValueError, IndexError):  # it was closed as the oldest; another thread removes one
            self._connections.remove(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of a connection that broke."""


class _Handler(WSGIRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - as the base class has it
        """Log no request."""


class HttpExporter:
    """Answers a Prometheus server. Raises OptionError if it cannot listen at host and port."""

    def __init__(self, figures: Figures, host: str, port: int) -> None:
        try:
            self._server = _Server(host.strip("[]"), port, figures)
        except OSError as error:
            right = f"give an address of this host, such as address='0.0.0.0:{port}'"
            if error.errno in _OF_THE_PORT:
                other = port + 1 if port < _MOST_PORT else port - 1
                right = f"give another port, such as address='{host}:{other}', or port 0 for any that is free"
            raise OptionError(
                f"metrics: address={host}:{port} cannot be listened at ({words_of(error)}): {right}"
            ) from error
        self.place = f"{host}:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, name="keyedwm metrics", daemon=True)
        self._thread.start()

    def changed(self) -> None:
        """Do nothing: the server scrapes by itself."""

    def close(self) -> None:
        """Close the port and end the thread."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _SentExporter:
    """Sends figures on a thread of its own when they change, at most once a second."""

    def __init__(self, place: str, send: Callable[[], None], last_s: float = _LAST_S) -> None:
        self.place = place
        self._last_s = last_s
        self._send = send
        self._changed = threading.Event()
        self._closing = threading.Event()
        self._is_out = False
        self._thread = threading.Thread(target=self._work, name="keyedwm metrics", daemon=True)
        self._thread.start()

    def changed(self) -> None:
        """Make the thread send."""
        self._changed.set()

    def close(self) -> None:
        """Send the last figures and end; a gateway whose answer never ends is left to its thread."""
        self._closing.set()
        self._changed.set()
        self._thread.join(self._last_s)

    def _work(self) -> None:
        while not self._closing.is_set():
            self._changed.wait(_AGAIN_S)
            self._changed.clear()
            if not self._closing.is_set():
                self._try()
            self._closing.wait(_LEAST_PAUSE_S)
        self._try()

    def _try(self) -> None:
        try:
            self._send()
        except Exception as error:  # noqa: BLE001 (whatever it is, the thread must send the next figures)
            if not self._is_out:
                LOG.warning("metrics cannot be sent to %s, and are tried again: %s", self.place, words_of(error))
            self._is_out = True
        else:
            if self._is_out:
                LOG.warning("metrics are sent to %s again", self.place)
            self._is_out = False


def push_exporter(figures: Figures, address: str, instance: str, last_s: float = _LAST_S) -> _SentExporter:
    """Return an exporter to a push gateway.

    instance: the label of this program's group there. last_s: how long `close` waits for the last figures.
    """
    registry = registry_of(figures)

    def push() -> None:
        push_to_gateway(
            address, job=_JOB, registry=registry, grouping_key={"instance": instance}, timeout=_PUSH_TIMEOUT_S
        )

    return _SentExporter(address, push, last_s)


def file_exporter(figures: Figures, path: str) -> _SentExporter:
    """Return an exporter to a file that a node exporter reads; raises OptionError if it cannot be written."""
    registry = registry_of(figures)
    if Path(path).suffix != ".prom":
        raise OptionError(f"metrics: path={path!r}: a file *.prom is expected, others are not read by a node exporter")
    try:
        write_to_textfile(path, registry)
    except (OSError, ValueError) as error:  # ValueError: no file can have this name
        raise OptionError(f"metrics: path={path!r} cannot be written: {words_of(error)}") from error
    return _SentExporter(path, lambda: write_to_textfile(path, registry))
