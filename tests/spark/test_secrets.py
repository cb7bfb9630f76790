"""A password planted in an option appears in no log, plan, error, offset, progress, ledger or table."""

from __future__ import annotations

import base64
import json
import os
import secrets
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.secured import KEY_PASSWORD, PASSWORD, Secured, login
from tests.support.fake_registry import fake_registry, reply
from tests.tokens import BEGINNING

pytestmark = pytest.mark.starts

ROOT = Path(__file__).parents[2]
# Every Python process of the program tells everything; py4j alone would repeat the program's own calls word for word.
LOUD = """
import logging, sys
logging.basicConfig(level=logging.DEBUG, stream=sys.stderr)
logging.getLogger("py4j").setLevel(logging.INFO)
"""


class Planted:
    """Values to look for, by name."""

    def __init__(self) -> None:
        self.values = {"password": PASSWORD, "key password": KEY_PASSWORD, "token": BEGINNING}

    def __call__(self, name: str) -> str:
        return self.values.setdefault(name, f"planted-{secrets.token_hex(8)}")

    def found_in(self, said: bytes) -> set[str]:
        return {name for name, value in self.values.items() if value.encode() in said}


@pytest.fixture
def topics(secured: Secured, new_topic: Callable[[], str]) -> Iterator[tuple[str, str, str, str]]:
    """A sound topic, one with a damaged batch between two sound ones, one to write to, and one of Avro."""
    from keyedwm.kafka.client.config import ClientConfig
    from keyedwm.kafka.requests.cluster import Cluster
    from keyedwm.kafka.requests.produce import send
    from keyedwm.testing.admin import create_topic

    sound, damaged, out, avro = (new_topic() for _ in range(4))
    cluster = Cluster.connect(ClientConfig.from_options(secured.options()))
    for name in (sound, damaged, out, avro):
        create_topic(cluster, name)
    send(cluster, avro, {0: pa.table({"key": [b"k"], "value": [b"\0\0\0\0\1\2n"]})})
    for number in range(3):
        for name in (sound, damaged):
            send(cluster, name, {0: pa.table({"key": ["k"], "value": [f"value-{number}"]})})
    secured.broker.stop()
    (segment,) = Path(secured.broker._home, "data", f"{damaged}-0").glob("*.log")
    segment.write_bytes(segment.read_bytes().replace(b"value-1", b"value-I"))
    secured.broker.start()
    yield sound, damaged, out, avro
    cluster.close()


def wrong_options(planted: Planted, home: Path) -> dict[str, list[tuple[str, str]]]:
    """Names and values that must be refused, most of them secret, by where they are given."""
    kafka = [
        ("kafka.sasl.jaas.config", f'Module required username="boss" password={planted("unclosed")}"'),
        ("kafka.ssl.key.password", planted("wrong key password")),
        ("kafka.ssl.keystore.key", planted("key in place")),
    ]
    unknown = [
        ("sasl.jaas.config", login("plain.Plain", username="boss", password=planted("unprefixed"))),
        ("saslpasword", planted("misspelt")),
    ]
    others = [
        ("kafka.sasl.jaas.config", login("plain.Plain", user="boss", password=planted("no username"))),
        ("kafka.ssl.keystore.location", str(home / "cert.pem")),
        ("kafka.security.protocol", "SASL_TSL"),
        ("columns", "vlaue"),
    ]
    return {"source": [*kafka, *unknown, *others], "sink": [*kafka, *unknown], "table": unknown}


def registries(secured: Secured, planted: Planted, url: str) -> dict[str, dict[str, str]]:
    """Options of a schema registry by what comes of them. url: of one that rejects every login."""
    reached = {
        "login": {"url": url, "user": "boss", "password": planted("registry password")},
        "bearer": {"url": url, "token": planted("registry token")},
        "away": {
            "url": "https://127.0.0.1:1", "timeout": "100 milliseconds", "token": planted("registry token too"),
            "ssl.keystore.type": "PEM", "ssl.keystore.location": str(secured.home / "locked.pem"),
            "ssl.key.password": KEY_PASSWORD,
        },
        "userinfo": {"url": f"https://boss:{planted('password in the address')}@127.0.0.1:1"},
        "misspelt": {"url": url, "pasword": planted("misspelt registry password")},
        "words": {"url": url, "token": f"two {planted('token of two words')}"},
        "key": {
            "url": "https://127.0.0.1:1", "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(secured.home / "locked.pem"), "ssl.key.password": planted("registry key"),
        },
    }  # fmt: skip
    return {
        name: {"value.format": "avro-confluent", "columns": "avro:$.n"}
        | {f"schemaRegistry.{option}": value for option, value in ({"cache": "none"} | given).items()}
        for name, given in reached.items()
    }


def settings(secured: Secured, planted: Planted, topics: tuple[str, str, str, str], home: Path) -> dict[str, Any]:
    """What the program is given: options of source and sinks with passwords wherever Kafka takes one."""
    from keyedwm.kafka.client.properties import OAUTH_PROVIDER

    kafka = secured.options(ssl_keystore_type="PEM", ssl_keystore_location=str(secured.home / "locked.pem")) | {
        "ssl.key.password": KEY_PASSWORD,
        "ssl.keystore.password": planted("key store"),
        "ssl.truststore.password": planted("trust store"),
        "sasl.oauthbearer.client.credentials.client.secret": planted("client"),
        "sasl.password": planted("property that Kafka does not know"),
    }
    prefixed = {f"kafka.{name}": value for name, value in kafka.items()}
    return {
        "home": str(home), "topic": topics[0], "damaged": topics[1], "avro": topics[3], "source": prefixed,
        "sink": prefixed | {"topic": topics[2], "snapshot": "batch", "sharedTopic": "true"},
        "table": {"path": str(home / "table"), "storage.aws_secret_access_key": planted("storage")},
        "tokens": [(f"kafka.{OAUTH_PROVIDER}", f"tests.tokens:{name}") for name in ("good", "failing", "empty")],
        "wrong": {
            "login": login("plain.Plain", username="boss", password=planted("wrong password")),
            "options": wrong_options(planted, secured.home),
        },
    }  # fmt: skip


def test_nothing_secret_is_ever_printed(secured: Secured, topics: tuple[str, str, str, str], tmp_path: Path) -> None:
    planted = Planted()
    home, loud = tmp_path / "home", tmp_path / "loud"
    home.mkdir()
    loud.mkdir()
    (loud / "sitecustomize.py").write_text(LOUD)
    config = tmp_path / "config.json"
    paths = os.pathsep.join([str(loud), str(ROOT)])
    with fake_registry() as registry:
        registry.rule = lambda _method, _path: reply(401, {"error_code": 401, "message": "Unauthorized"})
        given = settings(secured, planted, topics, home) | {"registries": registries(secured, planted, registry.url)}
        config.write_text(json.dumps(given))
        done = subprocess.run(
            [sys.executable, "-m", "tests.spark.planted", str(config)],
            cwd=home, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
            env=os.environ | {"PYTHONPATH": paths, "PLANTED_TOKEN": planted("words of a token provider")},
        )  # fmt: skip
        logins = {login for login in registry.logins if login is not None}
    basic = base64.b64encode(f"boss:{planted('registry password')}".encode()).decode()
    assert logins == {f"Bearer {planted('registry token')}", f"Basic {basic}"}
    planted.values["basic login"] = basic
    (tmp_path / "said").write_bytes(done.stdout)
    said = done.stdout.decode(errors="replace")
    assert done.returncode == 0, f"see {tmp_path / 'said'}"
    for line in EXPECTED:
        assert line in said, f"{line!r} was not said, see {tmp_path / 'said'}"
    written = [path for path in home.rglob("*") if path.is_file()]
    assert {"offsets", "commits", "_delta_log", "keyedwm"} <= {part for path in written for part in path.parts}
    assert planted.found_in(done.stdout) == set()
    assert {str(path): found for path in written if (found := planted.found_in(path.read_bytes()))} == {}


# Each run reached what it is there for, and both languages logged.
EXPECTED = (
    "== sound ended", "== sound-table ended", "== damaged-accepted ended", "== write ended", "== read ended",
    "rejected the login with PLAIN", "no Kafka broker answered at 127.0.0.1:1", "has a wrong checksum",
    "is unknown to the keyedwm source", "is unknown to the keyedwm sink", "is not closed by a quote",
    "has no username", "opened by kafka.ssl.key.password if it is encrypted", "cannot be given in place",
    "== token-0 ended", "tests.tokens:failing raised ConnectionError", "tests.tokens:empty gave no token",
    "properties unknown to Kafka's clients have no effect: kafka.sasl.password",
    "the schema registry rejected the login (401)", "gave no answer about",
    "an address holds an @", "did you mean schemaRegistry.password?", "a bearer token is expected",
    "DEBUG:kafka", "DEBUG:keyedwm.source", "INFO MicroBatchExecution", "== Analyzed Logical Plan ==",
)  # fmt: skip
