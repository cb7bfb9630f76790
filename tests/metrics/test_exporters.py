"""Prometheus and OpenTelemetry get the figures, and a place that does not answer disturbs nobody."""

from __future__ import annotations

import logging
import socket
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from socketserver import BaseRequestHandler, TCPServer

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from prometheus_client.parser import text_string_to_metric_families

from keyedwm.spark.metrics.catalogue import METRICS, Kind
from keyedwm.spark.metrics.figures import Figures
from keyedwm.spark.metrics.otel import OtelExporter
from keyedwm.spark.metrics.prometheus import MOST_CONNECTIONS, HttpExporter, file_exporter, push_exporter
from tests.metrics.told import Told
from tests.source.plans import Simulation
from tests.tools import wait_until


@pytest.fixture
def figures() -> Figures:
    found = Figures(lambda: 1_000.0, partitions=5)
    told = Told(Simulation({0: [500_000], 1: [600_000]}))
    found.progressed(told.progress())
    told.simulation.logs[0].append(510_000)
    row = {"late_rows": 2, "frames": 5, "state_bytes": 70, "largest_bucket_bytes": 60}
    found.progressed(told.progress(observed={"visits": row}))
    return found


def test_a_prometheus_server_gets_every_sample_with_help_and_type(figures):
    exporter = HttpExporter(figures, "127.0.0.1", 0)
    try:
        with urllib.request.urlopen(f"http://{exporter.place}/metrics") as answer:
            families = list(text_string_to_metric_families(answer.read().decode()))
    finally:
        exporter.close()
    by_name = {metric.prometheus: metric for metric in METRICS}
    found = {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value for f in families for sample in f.samples
    }
    assert found == {
        (one.metric.prometheus, tuple(sorted(zip(one.metric.labels, one.labels, strict=True)))): one.value
        for one in figures.samples()
    }
    for family in families:
        metric = by_name[family.samples[0].name]
        assert (family.type, family.documentation) == (metric.kind.value, metric.help)


def test_the_port_is_given_back_at_the_end(figures):
    exporter = HttpExporter(figures, "127.0.0.1", 0)
    exporter.close()
    port = int(exporter.place.rpartition(":")[2])
    again = HttpExporter(figures, "127.0.0.1", port)
    assert again.place == exporter.place
    again.close()


def test_connections_that_send_nothing_take_no_more_than_some_files_of_the_driver(figures):
    exporter = HttpExporter(figures, "127.0.0.1", 0)
    host, _, port = exporter.place.rpartition(":")
    with ExitStack() as stack:
        silent = [stack.enter_context(socket.create_connection((host, int(port)), 60)) for _ in range(100)]
        with urllib.request.urlopen(f"http://{exporter.place}/metrics") as answer:
            assert answer.status == 200
        for one in silent[: 100 - MOST_CONNECTIONS]:
            assert one.recv(1) == b""  # closed by the exporter
    exporter.close()


def test_connections_that_have_ended_close_no_open_one(figures):
    exporter = HttpExporter(figures, "127.0.0.1", 0)
    host, _, port = exporter.place.rpartition(":")
    with socket.create_connection((host, int(port)), 60) as slow:
        slow.sendall(b"GET /metrics HTTP/1.0\r\n")
        for _ in range(MOST_CONNECTIONS + 8):
            with urllib.request.urlopen(f"http://{exporter.place}/metrics") as answer:
                answer.read()
        slow.sendall(b"\r\n")
        assert slow.recv(100).startswith(b"HTTP/1.0 200")
    exporter.close()


def test_a_text_file_is_written_when_figures_change_and_at_the_end(figures, tmp_path):
    path = tmp_path / "keyedwm.prom"
    exporter = file_exporter(figures, str(path))
    assert "keyedwm_late_events_total" in path.read_text()
    path.unlink()
    exporter.changed()
    wait_until(path.exists, "the file")
    path.unlink()
    exporter.close()
    assert 'keyedwm_operator_late_rows_total{operator="visits",query="orders"} 2.0' in path.read_text()


class Gateway(BaseHTTPRequestHandler):
    """Keeps what was pushed last, by path."""

    pushed: dict[str, str]

    def do_PUT(self) -> None:
        self.pushed[self.path] = self.rfile.read(int(self.headers["Content-Length"])).decode()
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


@pytest.fixture
def gateway(port: int) -> Iterator[type[Gateway]]:
    handler = type("_Gateway", (Gateway,), {"pushed": {}})
    server = HTTPServer(("127.0.0.1", port), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield handler
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_push_gateway_gets_the_figures_in_a_group_of_the_program(figures, gateway, port):
    exporter = push_exporter(figures, f"127.0.0.1:{port}", "orders")
    exporter.changed()
    wait_until(lambda: gateway.pushed, "a push")
    exporter.close()
    ((path, text),) = gateway.pushed.items()
    assert path == "/metrics/job/keyedwm/instance/orders"
    assert "keyedwm_watermark_delay_seconds" in text


def test_a_gateway_that_is_away_is_warned_of_once_and_not_waited_for(figures, port, caplog):
    with caplog.at_level(logging.WARNING, "keyedwm.metrics"):
        exporter = push_exporter(figures, f"127.0.0.1:{port}", "app")
        exporter.changed()
        wait_until(lambda: caplog.messages, "the warning")
        exporter.close()  # tries once more
    (warning,) = caplog.messages
    assert warning.startswith(f"metrics cannot be sent to 127.0.0.1:{port}, and are tried again: ")


class NoHttp(BaseRequestHandler):
    """A server of another protocol, as one whose port was mistaken for the gateway's."""

    def handle(self) -> None:
        self.request.settimeout(0.1)
        with suppress(TimeoutError):
            while self.request.recv(65_536):
                pass
        self.request.sendall(b"SSH-2.0-OpenSSH_9\r\n")


@pytest.fixture
def no_http() -> Iterator[str]:
    server = TCPServer(("127.0.0.1", 0), NoHttp)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    yield f"127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()
    thread.join()


def test_an_answer_that_is_no_http_is_warned_of_and_tried_again(figures, no_http, caplog):
    with caplog.at_level(logging.WARNING, "keyedwm.metrics"):
        exporter = push_exporter(figures, no_http, "app")
        exporter.changed()
        wait_until(lambda: caplog.messages, "the warning")
        exporter.close()
    (warning,) = caplog.messages
    assert warning.endswith("and are tried again: SSH-2.0-OpenSSH_9")


def test_a_gateway_whose_answer_never_ends_does_not_hold_up_the_end(figures):
    is_over = threading.Event()

    class Dripping(BaseRequestHandler):
        def handle(self) -> None:
            self.request.sendall(b"HTTP/1.1 200 OK\r\nX: ")
            while not is_over.wait(0.1):
                self.request.sendall(b"x")

    with TCPServer(("127.0.0.1", 0), Dripping) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        push_exporter(figures, f"127.0.0.1:{server.server_address[1]}", "app", last_s=0.2).close()
        is_over.set()
        thread.join()


def points(reader: InMemoryMetricReader) -> dict[str, object]:
    data = reader.get_metrics_data()
    if data is None:
        return {}
    return {one.name: one for of in data.resource_metrics for scope in of.scope_metrics for one in scope.metrics}


def test_a_reader_of_opentelemetry_gets_every_sample_with_its_unit(figures):
    reader = InMemoryMetricReader()
    exporter = OtelExporter(figures, MeterProvider([reader]))
    found = points(reader)
    by_name = {metric.opentelemetry: metric for metric in METRICS}
    told = {}
    for name, one in found.items():
        metric = by_name[name]
        assert (one.unit, one.description) == (metric.unit.value, metric.help)
        assert getattr(one.data, "is_monotonic", False) == (metric.kind is Kind.COUNTER)
        for point in one.data.data_points:
            told[name, tuple(sorted(point.attributes.items()))] = point.value
    assert told == {
        (one.metric.opentelemetry, tuple(sorted(zip(one.metric.labels, one.labels, strict=True)))): one.value
        for one in figures.samples()
    }
    exporter.close()
    assert points(reader) == {}


def test_a_second_export_to_one_provider_tells_each_figure_once(figures):
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader])
    OtelExporter(figures, provider).close()
    OtelExporter(figures, provider)
    assert len(points(reader)["keyedwm.watermark_delay"].data.data_points) == 1
