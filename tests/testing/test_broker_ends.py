"""Whatever ends a broker's holder ends the broker, and a local broker comes back with its data."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import KafkaAdminClient

from keyedwm.core.errors import OptionError, OutOfTurnError, UnavailableError
from keyedwm.testing.broker import answers, broker
from keyedwm.testing.local import free_ports, local_broker

pytestmark = pytest.mark.starts

HOLDER = Path(__file__).with_name("holder.py")
LIMIT_S = 240


def start_holder(way: str) -> tuple[subprocess.Popen, dict]:
    holder = subprocess.Popen(
        [sys.executable, HOLDER, way],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True,
    )  # fmt: skip
    return holder, json.loads(holder.stdout.readline())


def is_gone(description: dict) -> bool:
    """No process, directory or container is left of this broker. A dead process that nobody has reaped yet is gone."""
    if "name" in description:
        import docker

        client = docker.from_env()
        try:
            return not client.api.containers(all=True, filters={"name": description["name"]})  # asks nothing about each
        finally:
            client.close()
    state = subprocess.run(
        ["ps", "-o", "stat=", "-p", str(description["pid"])], capture_output=True, text=True, check=False
    )
    return (not state.stdout or state.stdout.startswith("Z")) and not Path(description["home"]).exists()


def wait_until_gone(description: dict) -> None:
    limit = time.monotonic() + LIMIT_S
    while not is_gone(description):
        assert time.monotonic() < limit, f"still there: {description}"
        time.sleep(0.1)
    assert "bootstrap" not in description or not answers(description["bootstrap"])


def test_the_end_of_the_context_ends_the_broker(started_way):
    holder, description = start_holder(started_way)
    with holder:
        assert answers(description["bootstrap"])
        assert not is_gone(description)
        holder.stdin.close()
        assert holder.wait(LIMIT_S) == 0
    assert is_gone(description)
    assert not answers(description["bootstrap"])


def test_ctrl_c_ends_the_broker(started_way):
    holder, description = start_holder(started_way)
    with holder:
        holder.send_signal(signal.SIGINT)
        assert holder.wait(LIMIT_S) == -signal.SIGINT
    assert is_gone(description)


def test_a_holder_that_is_killed_leaves_nothing_either(started_way):
    holder, description = start_holder(started_way)
    with holder:
        holder.send_signal(signal.SIGKILL)
        assert holder.wait(LIMIT_S) == -signal.SIGKILL
    wait_until_gone(description)


# What a broker is guarded by, with a process that starts fast.
GUARDED = """
import json, subprocess, sys
from keyedwm.testing.guard import Guard
sleeper = subprocess.Popen(["sleep", "1000"], start_new_session=True)
guard = Guard("process", str(sleeper.pid), sys.argv[1])
print(json.dumps({"pid": sleeper.pid, "home": sys.argv[1]}), flush=True)
sys.stdin.read()
"""


def test_a_holder_that_is_told_to_end_and_does_not_clean_up_leaves_nothing_either(tmp_path):
    home = tmp_path / "home"
    home.mkdir()
    holder = subprocess.Popen(
        [sys.executable, "-c", GUARDED, home], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with holder:
        description = json.loads(holder.stdout.readline())
        assert not is_gone(description)
        holder.send_signal(signal.SIGTERM)
        assert holder.wait(LIMIT_S) == -signal.SIGTERM
    wait_until_gone(description)


def test_records_survive_a_stop_and_a_kill_on_the_same_address_and_a_failure_inside_ends_the_broker(topic):
    description = {}
    with suppress(RuntimeError), local_broker(extra={"broker.session.timeout.ms": "3000"}) as running:
        address = running.bootstrap
        with pytest.raises(OutOfTurnError, match="runs already"):
            running.start()
        produce(address, topic, [b"one", b"two"])
        for end in (running.stop, running.kill):
            end()
            assert running.pid is None
            assert not answers(address)
            running.start()
            assert running.bootstrap == address
            assert consume(address, topic, 2) == [b"one", b"two"]
        description |= {"pid": running.pid, "home": str(running._home), "bootstrap": address}
        raise RuntimeError("a failure inside the with")
    wait_until_gone(description)


def test_a_broker_that_cannot_read_its_settings_says_why(started_way):
    with pytest.raises(UnavailableError, match="Invalid value nonsense for configuration"):
        broker(started_way, extra={"log.segment.bytes": "nonsense"}).__enter__()


def test_a_broker_whose_port_is_taken_says_so(started_way):
    (port,) = free_ports(1)
    kind, sentence = {
        "local": (OptionError, f"port {port} is taken: something listens there already"),
        "container": (UnavailableError, rf"(?i)did not start at 127.0.0.1:{port}: .*address already in use"),
    }[started_way]
    with socket.create_server(("127.0.0.1", port)), pytest.raises(kind, match=sentence):
        broker(started_way, port=port).__enter__()


def produce(bootstrap: str, topic: str, values: list[bytes]) -> None:
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    try:
        admin.create_topics({topic: {"num_partitions": 1}}, wait_for_metadata=True)
    finally:
        admin.close()
    producer = KafkaProducer(bootstrap_servers=bootstrap, acks="all")
    try:
        for value in values:
            producer.send(topic, value).get(timeout=LIMIT_S)
    finally:
        producer.close()


def consume(bootstrap: str, topic: str, count: int) -> list[bytes]:
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest", group_id=None)
    values: list[bytes] = []
    try:
        consumer.assign([TopicPartition(topic, 0)])
        limit = time.monotonic() + LIMIT_S
        while len(values) < count and time.monotonic() < limit:
            for records in consumer.poll(timeout_ms=1000).values():
                values += [record.value for record in records]
    finally:
        consumer.close()
    return values
