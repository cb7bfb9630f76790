"""A mistyped `kafka.*` name is refused, as one of our own options is: without effect, it would read something else."""

from __future__ import annotations

import pytest

from keyedwm.core.errors import OptionError
from keyedwm.kafka.client.config import ClientConfig
from keyedwm.kafka.client.properties import KNOWN
from pyspark_wm_source.options.source_options import SourceOptions

HERE = {"bootstrap.servers": "a:9092"}


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("isolaton.level", "isolation.level"),
        ("Isolation.Levels", "isolation.level"),
        ("security.protocoll", "security.protocol"),
        ("sasl.mechanisms", "sasl.mechanism"),
        ("ack", "acks"),
        ("group.ids", "group.id"),
    ],
)
def test_a_name_close_to_a_known_one_is_refused_with_it(name, meant):
    with pytest.raises(OptionError, match=rf"option kafka\.{name.lower()} is unknown .*did you mean kafka\.{meant}\?"):
        ClientConfig.from_options({**HERE, name: "read_committed"})


def test_load_refuses_it_too():
    options = {"kafka.bootstrap.servers": "a:9092", "subscribe": "t", "kafka.isolaton.level": "read_committed"}
    with pytest.raises(OptionError, match=r"did you mean kafka\.isolation\.level\?"):
        SourceOptions.parse(options)


def test_a_name_that_is_close_to_none_is_told_and_taken(caplog):
    ClientConfig.from_options({**HERE, "my.interceptor.region": "eu", "sasl.password": "x"})
    assert "kafka.my.interceptor.region, kafka.sasl.password" in caplog.text


@pytest.mark.parametrize("name", sorted(KNOWN - {"bootstrap.servers"}))
def test_no_known_name_is_taken_for_a_mistake(name):
    told = ""
    try:
        ClientConfig.from_options({**HERE, name: "1"})
    except OptionError as error:  # the value may be wrong
        told = error.message
    assert "did you mean kafka" not in told
