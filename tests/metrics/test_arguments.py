"""`metrics`: wrong arguments are refused in one sentence; sessions that export to one place share it."""

from __future__ import annotations

import socket
import sys
import urllib.error
import urllib.request
import uuid
from types import SimpleNamespace
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider

from keyedwm.core.errors import OptionError
from keyedwm.spark import metrics
from keyedwm.spark.metrics import otel, prometheus
from keyedwm.spark.metrics.exporter import MetricsListener
from tests.metrics.told import Told
from tests.source.plans import Simulation

ANY_PORT = "127.0.0.1:0"
PROVIDER = MeterProvider()


class Streams:
    """The listeners of a session, which has no query."""

    active = ()

    def __init__(self) -> None:
        self.listeners: list[MetricsListener] = []

    def addListener(self, listener: MetricsListener) -> None:
        self.listeners.append(listener)

    def removeListener(self, listener: MetricsListener) -> None:
        self.listeners.remove(listener)


class Session:
    """What `metrics` asks of a session."""

    def __init__(self) -> None:
        self.streams = Streams()
        self.conf: dict[str, str] = {"spark.app.name": "app"}

    def readStream(self) -> None:
        """What a session is known by."""


@pytest.fixture
def session() -> Session:
    return Session()


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"exporter": "promtheus"}, ("metrics: exporter='promtheus': one of prometheus, pushgateway, textfile, "
         "opentelemetry is expected; did you mean prometheus?")),
        ({"exporter": None}, ("metrics: exporter=None: one of prometheus, pushgateway, textfile, opentelemetry is "
         "expected")),
        ({"exporter": []}, ("metrics: exporter=a list: one of prometheus, pushgateway, textfile, opentelemetry is "
         "expected")),
        ({"path": "k.prom"}, "metrics: exporter='prometheus' takes no path: leave it out"),
        ({"exporter": "textfile", "address": ANY_PORT}, "metrics: exporter='textfile' takes no address: leave it out"),
        ({"partitions": -1}, "metrics: partitions is -1: a whole number of at least 0 is expected"),
        ({"partitions": "all"}, "metrics: partitions is 'all': a whole number is expected"),
        ({"address": "9464"}, "metrics: address='9464': host:port is expected, such as 0.0.0.0:9464"),
        ({"address": ""}, "metrics: address='': host:port is expected, such as 0.0.0.0:9464"),
        ({"address": 9464}, "metrics: address=9464: host:port is expected, such as 0.0.0.0:9464"),
        ({"address": "localhost:70000"}, ("metrics: address='localhost:70000': host:port is expected, such as "
         "0.0.0.0:9464")),
        ({"address": "..:80"}, "metrics: address='..:80': host:port is expected, such as 0.0.0.0:9464"),
        ({"address": "192.0.2.1:80"}, ("metrics: address=192.0.2.1:80 cannot be listened at ([Errno 99] Cannot assign "
         "requested address): give an address of this host, such as address='0.0.0.0:80'")),
        ({"exporter": "textfile", "path": "/tmp/\0.prom"}, "metrics: path='/tmp/\\x00.prom' cannot be written: "),  # noqa: S108
        ({"exporter": "pushgateway"}, "metrics: address=None: host:port of a push gateway is expected"),
        ({"exporter": "textfile"}, "metrics: path=None: a file *.prom that a node exporter reads is expected"),
        ({"exporter": "textfile", "path": "/tmp/keyedwm.txt"}, ("metrics: path='/tmp/keyedwm.txt': a file *.prom is "  # noqa: S108
         "expected, others are not read by a node exporter")),
        ({"exporter": "textfile", "path": "/no/such/place/k.prom"}, ("metrics: path='/no/such/place/k.prom' cannot be "
         "written: ")),
        ({"exporter": "opentelemetry"}, ("metrics: no MeterProvider of OpenTelemetry is set: pass meter_provider=, or "
         "call opentelemetry.metrics.set_meter_provider before")),
        ({"exporter": "opentelemetry", "meter_provider": 7}, ("metrics: meter_provider=7: a MeterProvider of "
         "OpenTelemetry is expected")),
    ],
)  # fmt: skip
def test_a_wrong_argument_is_refused_in_one_sentence(session, given: dict[str, Any], sentence: str):
    with pytest.raises(OptionError) as refused:
        metrics(session, **given)
    assert str(refused.value).startswith(sentence)
    assert str(refused.value).endswith("[fix your options]")
    assert "\n" not in str(refused.value)
    assert session.streams.listeners == []


def test_a_login_in_the_address_is_refused_and_not_repeated(session):
    with pytest.raises(OptionError, match="the address holds a login") as refused:
        metrics(session, "pushgateway", address="http://me:secret@gateway:9091")
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("exporter", "module", "sentence"),
    [
        ("prometheus", "prometheus_client", ("needs prometheus-client, which is not installed: pip install "
         "'keyedwm[prometheus]'")),
        ("opentelemetry", "opentelemetry.metrics", ("needs opentelemetry-sdk, which is not installed: pip install "
         "'keyedwm[otel]'")),
    ],
)  # fmt: skip
def test_a_library_that_is_missing_is_named_with_its_extra(session, monkeypatch, exporter, module, sentence):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(OptionError, match=f"metrics: exporter='{exporter}' {sentence}".replace("[", r"\[")):
        metrics(session, exporter)


def test_a_port_that_is_taken_is_refused_in_one_sentence(session):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(OptionError) as refused:
            metrics(session, address=f"127.0.0.1:{port}")
    assert str(refused.value) == (
        f"metrics: address=127.0.0.1:{port} cannot be listened at ([Errno 98] Address already in use): give another "
        f"port, such as address='127.0.0.1:{port + 1}', or port 0 for any that is free (KWM-1001) [fix your options]"
    )


def test_the_highest_port_that_is_taken_is_not_told_to_go_up(session):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 65_535))
        taken.listen()
        with pytest.raises(OptionError, match=r"such as address='127\.0\.0\.1:65534'"):
            metrics(session, address="127.0.0.1:65535")


def test_an_address_of_ipv6_is_listened_at(session):
    running = metrics(session, address="[::1]:0")
    try:
        with urllib.request.urlopen(f"http://{running.place}/metrics") as answer:
            assert answer.status == 200
    finally:
        running.stop()


def test_the_listener_is_removed_and_the_port_given_back_at_the_end(session):
    running = metrics(session, address=ANY_PORT)
    assert len(session.streams.listeners) == 1
    running.stop()
    running.stop()
    assert session.streams.listeners == []
    with socket.socket() as free:
        free.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        free.bind(("127.0.0.1", int(running.place.rpartition(":")[2])))


def test_a_session_that_ended_without_a_stop_gives_the_port_back_at_the_next_call(session, tmp_path):
    session._sc = SimpleNamespace(_jsc=object())  # what a session of PySpark has, None once it was stopped
    left = metrics(session, address=ANY_PORT)
    port = int(left.place.rpartition(":")[2])
    session._sc._jsc = None
    after = metrics(Session(), "textfile", path=str(tmp_path / "k.prom"))
    with socket.socket() as free:
        free.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        free.bind(("127.0.0.1", port))
    after.stop()
    left.stop()  # has nothing left to do


def test_a_session_that_ended_keeps_no_place_of_another(session):
    session._sc = SimpleNamespace(_jsc=object())
    left = metrics(session, address=ANY_PORT)
    other = metrics(Session(), address=ANY_PORT)
    session._sc._jsc = None
    other.stop()
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(f"http://{left.place}/metrics", timeout=1)


def test_a_call_again_for_the_same_session_takes_the_place_of_the_one_before(session):
    first = metrics(session, address=ANY_PORT)
    again = metrics(session, address=ANY_PORT)
    try:
        assert len(session.streams.listeners) == 1
        assert again.place == first.place
        first.stop()  # has been stopped
        assert len(session.streams.listeners) == 1
    finally:
        again.stop()


@pytest.mark.parametrize(
    ("first", "again"),
    [
        ({}, {"address": "0.0.0.0:9464"}),
        ({"exporter": "textfile", "path": "k.prom"}, {"exporter": "textfile", "path": "./k.prom"}),
        ({"exporter": "opentelemetry"}, {"exporter": "opentelemetry", "meter_provider": PROVIDER}),
    ],
)
def test_a_place_that_is_written_otherwise_is_the_same_place(session, monkeypatch, tmp_path, first, again):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(otel, "get_meter_provider", lambda: PROVIDER)
    server = prometheus._Server  # at any port: the default one may be taken on this machine
    monkeypatch.setattr(prometheus, "_Server", lambda host, _port, figures: server(host, 0, figures))
    running = metrics(session, **first)
    try:
        running = metrics(session, **again)
        assert len(session.streams.listeners) == 1
    finally:
        running.stop()


def test_two_sessions_share_a_place_and_the_last_one_gives_it_back(session):
    other = Session()
    first, second = metrics(session, address=ANY_PORT), metrics(other, address=ANY_PORT)
    for one, name in ((session, "orders"), (other, "visits")):
        progress = Told(Simulation({0: [1_000]}), name=name, id=str(uuid.uuid4())).progress()
        one.streams.listeners[0].onQueryProgress(SimpleNamespace(progress=progress))
    first.stop()
    with urllib.request.urlopen(f"http://{second.place}/metrics") as answer:
        text = answer.read().decode()
    second.stop()
    for name in ("orders", "visits"):
        assert f'keyedwm_batches_total{{query="{name}"}} 1.0' in text
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(f"http://{second.place}/metrics")
