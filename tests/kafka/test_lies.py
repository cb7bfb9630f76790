"""Well-formed answers that are false: every call ends in a value or in an error for the user, within its budget."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from keyedwm.core.errors import InputError, UnavailableError
from keyedwm.kafka.requests.produce import send
from tests.kafka import lies
from tests.kafka.test_hostile import METADATA, connected, patient, patient_cluster
from tests.support.hostile import TOPIC_ID, HostileBroker, hostile_broker

# A handful of requests each.
from tests.kafka.test_hostile import _compiled  # noqa: F401 isort:skip

pytestmark = pytest.mark.starts
PRODUCE = 0


@pytest.fixture
def broker() -> Iterator[HostileBroker]:
    with hostile_broker() as broker:
        yield broker


def test_false_answers_of_every_kind_end_in_a_value_or_an_error_for_the_user(broker: HostileBroker, seed: int) -> None:
    for number in range(40):
        lies.one(broker, seed * 1_000 + number)


def topic_answer(**change: Any) -> list[dict[str, Any]]:
    """A metadata answer's topics."""
    leader = {"error_code": 0, "partition_index": 0, "leader_id": 1, "leader_epoch": 0, "replica_nodes": [1],
              "isr_nodes": [1], "offline_replicas": []}  # fmt: skip
    topic = {"error_code": 0, "name": "t", "topic_id": TOPIC_ID, "is_internal": False, "partitions": [leader]}
    return [{**topic, **change}]


def test_another_topic_than_the_one_asked_for_is_none(broker: HostileBroker) -> None:
    cluster = patient_cluster(broker.bootstrap)
    broker.lies[METADATA] = lambda r, b: [b.honest(r, topics=topic_answer(name="u"))]
    with pytest.raises(UnavailableError, match="the answer leaves topic t out"):
        cluster.latest([("t", 0)])
    cluster.close()


@pytest.mark.parametrize(
    ("host", "port"), [("a" * 70 + ".x", 9_092), ("x\x00y", 9_092), ("", 9_092), ("127.0.0.1", 99_999)]
)
def test_an_address_that_is_none_is_a_broker_that_is_not_there(broker: HostileBroker, host: str, port: int) -> None:
    cluster = connected(broker.bootstrap)
    there = [{"node_id": 1, "host": "127.0.0.1", "port": broker.port, "rack": None},
             {"node_id": 2, "host": host, "port": port, "rack": None}]  # fmt: skip
    led = [{**topic_answer()[0]["partitions"][0], "leader_id": 2}]
    broker.lies[METADATA] = lambda r, b: [b.honest(r, brokers=there, topics=topic_answer(partitions=led))]
    with pytest.raises(UnavailableError):
        cluster.latest([("t", 0)])
    cluster.close()


def test_escape_codes_in_what_a_broker_says_have_no_effect(broker: HostileBroker) -> None:
    cluster = patient(broker.bootstrap)
    part = {"index": 0, "error_code": 87, "base_offset": -1, "log_append_time_ms": -1, "log_start_offset": 0,
            "error_message": "\x1b[2Jno"}  # fmt: skip
    broker.lies[PRODUCE] = lambda r, b: [b.honest(r, responses=[{"name": "t", "partition_responses": [part]}])]
    with pytest.raises(InputError, match=r"t-0 rejected a batch: \\x1b\[2Jno"):
        send(cluster, "t", {0: pa.table({"value": [b"x"]})})
    cluster.close()


def test_an_error_holds_nothing_that_a_terminal_obeys() -> None:
    error = InputError("a\x1b[2J\x07\x9b\u202e\nb\ud800 é")
    assert error.message == "a\\x1b[2J\\x07\\x9b\\u202e\nb\\ud800 é"
    assert str(error).startswith(error.message)
