"""While a person waits for a broker or for Spark, the console says already what is happening."""

from __future__ import annotations

import io
from types import SimpleNamespace

import pytest
from rich.console import Console

from examples.demo import show
from keyedwm.cli.main import main


class ReachedError(Exception):
    """The wait begins."""


def waits(*_: object, **__: object) -> None:
    raise ReachedError


def waits_not(*_: object) -> None:
    """Leave the signals of this process alone."""


def test_the_broker_command_says_that_it_starts_one_before_it_waits_for_it(capsys, monkeypatch):
    monkeypatch.setattr("keyedwm.cli.broker.broker", waits)
    monkeypatch.setattr(
        "keyedwm.cli.broker.signal", SimpleNamespace(signal=waits_not, SIGTERM=0, default_int_handler=0)
    )
    with pytest.raises(ReachedError):
        main(["broker", "--way", "local"])
    said = capsys.readouterr()
    assert "starting a Kafka broker; the first start on a machine also fetches it" in said.err
    assert said.out == ""  # the address alone, for scripts


def test_the_demo_says_that_it_starts_kafka_and_spark_before_it_waits_for_them(monkeypatch):
    monkeypatch.setattr(show, "native_connector", lambda _, **_how: [])
    monkeypatch.setattr(show, "broker", waits)
    out = io.StringIO()
    with pytest.raises(ReachedError):
        show._run([], SimpleNamespace(), Console(file=out, width=200), is_avro=False)
    assert "starting Kafka and Spark: half a minute, the first time longer" in out.getvalue()
