"""A broker that lies: every client call ends in an answer or in an error for the user, within a budget of requests."""

from __future__ import annotations

import contextlib
import logging
import os
import struct
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from keyedwm.core.errors import KeyedwmError, UnavailableError
from keyedwm.kafka.client.config import ClientConfig
from keyedwm.kafka.client.framing import OTHER_BYTES
from keyedwm.kafka.client.values import TopicPartition, WireLimits
from keyedwm.kafka.requests import cluster as cluster_module
from keyedwm.kafka.requests import transactions as txn
from keyedwm.kafka.requests.cluster import Cluster, close_shared, shared
from keyedwm.kafka.requests.fetch import OffsetRange, read_ranges
from keyedwm.kafka.requests.listing import groups_ending_with
from keyedwm.kafka.requests.produce import send
from tests.conftest import base_seed
from tests.support import hostile
from tests.support.hostile import HostileBroker, Lie, Request, hostile_broker, silent_listener
from tests.tools import wait_until

FETCH, LIST_OFFSETS, METADATA, FIND_COORDINATOR, API_VERSIONS = 1, 2, 3, 10, 18
NOT_COORDINATOR = 16
pytestmark = pytest.mark.starts
# Of one call: what some retries of all the APIs that it uses take.
MOST_REQUESTS = 150
MOST_TAKEN_BYTES = 16 << 20
MOST_INT32 = 2**31 - 1
OPEN_TRANSACTION = txn.Transaction("x", 1, 0)


def config_of(bootstrap: str, **options: str) -> ClientConfig:
    return replace(ClientConfig.from_options({
        "bootstrap.servers": bootstrap, "default.api.timeout.ms": "200", "request.timeout.ms": "100",
        "socket.connection.setup.timeout.ms": "400", "retry.backoff.ms": "20", "retry.backoff.max.ms": "40",
        "reconnect.backoff.ms": "10", "reconnect.backoff.max.ms": "20", "fetch.max.wait.ms": "10",
        **{name.replace("_", "."): value for name, value in options.items()},
    }), limits=WireLimits(answer_grace_ms=300, answer_poll_s=0.05, unknown_topic_grace_s=0.3))  # fmt: skip


PATIENT = {"default_api_timeout_ms": "60000", "request_timeout_ms": "30000",
           "socket_connection_setup_timeout_ms": "30000"}  # fmt: skip

# For what is tried again until the time is over.
SOME_PATIENCE = {"default_api_timeout_ms": "2000"}


def connected(bootstrap: str, first: Callable[[Cluster], object] = lambda _: None) -> Cluster:
    """A cluster that was connected to with patience, as the machine may be busy, and has none after `first`."""
    cluster = patient(bootstrap)
    with contextlib.suppress(KeyedwmError):
        first(cluster)
    cluster.connection._manager.config |= {"request_timeout_ms": 100, "socket_connection_setup_timeout_ms": 400}
    cluster.config = cluster.connection.config = config_of(bootstrap)
    return cluster


def patient(bootstrap: str) -> Cluster:
    """One for calls that must succeed, however busy the machine is."""
    return Cluster.connect(config_of(bootstrap, **PATIENT), 60_000)


def patient_cluster(bootstrap: str) -> Cluster:
    """One for a broker that always answers: it waits for each answer, but soon asks no more."""
    cluster = patient(bootstrap)
    cluster.config = cluster.connection.config = config_of(bootstrap, **(PATIENT | {"default_api_timeout_ms": "200"}))
    return cluster


@pytest.fixture(scope="module", autouse=True)
def _compiled() -> None:
    """Compiling takes memory, once; it is no part of a call's."""
    with hostile_broker() as broker:
        cluster = Cluster.connect(config_of(broker.bootstrap, **PATIENT), 30_000)
        send(cluster, "t", {0: pa.table({"value": [b"x"]})})
        cluster.close()


@pytest.fixture
def broker() -> Iterator[HostileBroker]:
    with hostile_broker() as broker:
        yield broker


def _without_end(frame: bytes) -> bytes:
    """A frame whose body ends early, with a fitting length."""
    body = frame[4 : 4 + max(4, (len(frame) - 4) // 2)]
    return struct.pack(">i", len(body)) + body


def _counting(frame: bytes, at: int) -> bytes:
    """A frame in which four bytes claim two thousand million entries, as a number of any kind."""
    frame_bytes = bytearray(frame)
    frame_bytes[at : at + 4] = b"\x7f\xff\xff\xff"
    return bytes(frame_bytes[: len(frame)])


def _varints(frame: bytes) -> bytes:
    """A frame whose body is numbers of the longest kind: counts of compact arrays and of tagged fields."""
    return frame[:8] + b"\xff\xff\xff\xff\x07" * ((len(frame) - 8) // 5) + b"\x07" * ((len(frame) - 8) % 5)


def _in_frame(frame: bytes, change: Callable[[bytes], bytes]) -> list[bytes]:
    return [change(frame)]


def _other_id(request: Request, broker: HostileBroker) -> list[bytes]:
    return [broker.honest(request._replace(correlation_id=request.correlation_id + 1))]


# Before anybody looks into an answer: which call it was makes no difference.
OF_FRAMES: dict[str, Lie] = {
    "a length of two GiB": lambda r, b: [struct.pack(">i", MOST_INT32) + b.honest(r)[4:]],
    "a negative length": lambda r, b: [struct.pack(">i", -5) + b.honest(r)[4:]],
    "a closed connection": lambda _r, _b: None,
    "half a frame, then silence": lambda r, b: [b.honest(r)[: len(b.honest(r)) // 2]],
    "one byte, then silence": lambda r, b: [b.honest(r)[:1]],
    "another correlation id": _other_id,
    "an answer twice": lambda r, b: [b.honest(r) * 2],
}
OF_ANSWERS: dict[str, Lie] = {
    "a cut body": lambda r, b: _in_frame(b.honest(r), _without_end),
    "an empty body": lambda r, _b: [struct.pack(">ii", 4, r.correlation_id)],
    "longest numbers": lambda r, b: _in_frame(b.honest(r), _varints),
    "a count of two thousand million": lambda r, b: _in_frame(b.honest(r), lambda frame: _counting(frame, 13)),
    "a later count of two thousand million": lambda r, b: _in_frame(b.honest(r), lambda frame: _counting(frame, 17)),
    "a body of zeros": lambda r, b: [b.honest(r)[:8] + bytes(len(b.honest(r)) - 8)],
    "NOT_COORDINATOR or what lies there": lambda r, b: [b.honest(r)[:12] + b"\x00\x10" + b.honest(r)[14:]],
}  # fmt: skip
LIES = OF_FRAMES | OF_ANSWERS

CALLS: dict[str, tuple[int, Callable[[Cluster], object]]] = {
    "topics": (3, lambda c: c.topics()),
    "partitions": (3, lambda c: c.partitions(["t"])),
    "topic ids": (3, lambda c: c.topic_ids(["t"])),
    "log ends": (2, lambda c: c.latest([("t", 0)])),
    "offsets of a time": (2, lambda c: c.by_timestamp({("t", 0): 5})),
    "commit": (8, lambda c: c.commit_offsets("g", {("t", 0): (1, "")})),
    "committed": (9, lambda c: c.fetch_offsets("g", [("t", 0)])),
    "coordinator of a commit": (10, lambda c: c.commit_offsets("g", {("t", 0): (1, "")})),
    "records": (1, lambda c: list(read_ranges(c, [OffsetRange("t", 0, 0, 1)], stall_ms=200))),
    "writing": (0, lambda c: send(c, "t", {0: pa.table({"value": [b"x"]})})),
    "a producer id": (22, lambda c: send(c, "t", {0: pa.table({"value": [b"x"]})})),
    "beginning": (22, lambda c: txn.begin(c, "x", 1_000)),
    "a partition of a transaction": (24, lambda c: txn.add_partitions(c, OPEN_TRANSACTION, [TopicPartition("t", 0)])),
    "committing": (26, lambda c: txn.end(c, [OPEN_TRANSACTION], commit=True)),
    "describing": (65, lambda c: txn.fate(c, OPEN_TRANSACTION)),
    "listing": (66, lambda c: txn.lingering(c, "x")),
    "groups": (16, lambda c: groups_ending_with(c, "-ledger")),
    "configuration": (32, txn.longest_timeout_ms),
}  # fmt: skip


def pairs() -> Iterator[tuple[str, str]]:
    """Each call meets every lie about an answer and, by the seed, a quarter of those about frames.

    KEYEDWM_LIES=all: all. What a call does where no byte comes is a test of its own, below.
    """
    is_all = os.environ.get("KEYEDWM_LIES") == "all"
    for at, call in enumerate(CALLS):
        for one_in, lies in ((1, OF_ANSWERS), (4, OF_FRAMES)):
            yield from ((call, lie) for n, lie in enumerate(lies) if is_all or (at + n + base_seed()) % one_in == 0)


@pytest.mark.parametrize(("call", "lie"), list(pairs()))
def test_a_lie_ends_in_an_error_for_the_user_within_a_budget(
    broker: HostileBroker, call: str, lie: str, caplog: pytest.LogCaptureFixture
) -> None:
    api, act = CALLS[call]
    cluster = connected(broker.bootstrap)
    try:
        broker.counts.clear()
        broker.lies[api] = LIES[lie]
        error_text = ""
        tracemalloc.start()
        try:
            act(cluster)
        except KeyedwmError as error:
            error_text = str(error)
        finally:
            taken_bytes = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
        assert broker.counts.total() <= MOST_REQUESTS, broker.counts
        assert taken_bytes <= MOST_TAKEN_BYTES
        assert len(error_text) < 1_000
        assert all(len(record.getMessage()) < 2_000 for record in caplog.records)
    finally:
        broker.lies.clear()
        cluster.close()


def test_an_answer_after_the_login_is_limited_by_what_was_asked(broker: HostileBroker) -> None:
    cluster = patient_cluster(broker.bootstrap)
    for api, most, call in (
        (
            FETCH,
            cluster.config.answer_bytes,
            lambda: list(read_ranges(cluster, [OffsetRange("t", 0, 0, 1)], stall_ms=200)),
        ),
        (LIST_OFFSETS, OTHER_BYTES, lambda: cluster.latest([("t", 0)])),
    ):
        broker.lies[api] = lambda _r, _b, most=most: [struct.pack(">i", most + 1)]  # type: ignore[misc]
        with pytest.raises(UnavailableError, match=f"{most + 1} bytes was announced, above {most} for"):
            call()
    cluster.close()


def test_a_peer_that_sends_without_pause_is_cut_off_early(broker: HostileBroker) -> None:
    cluster = connected(broker.bootstrap)
    broker.lies[LIST_OFFSETS] = lambda _r, _b: (b"\x00" * 1_000_000 for _ in range(2_000))
    with pytest.raises(UnavailableError):
        cluster.latest([("t", 0)])
    assert broker.sent_bytes < 400 << 20
    cluster.close()


def test_an_answer_that_leaves_a_partition_out_is_asked_for_again_with_pauses(broker: HostileBroker) -> None:
    cluster = patient_cluster(broker.bootstrap)
    broker.lies[LIST_OFFSETS] = lambda r, b: [b.honest(r, topics=[])]
    with pytest.raises(UnavailableError, match="t-0: the answer leaves this partition, "):
        cluster.latest([("t", 0)])
    assert broker.counts[LIST_OFFSETS] <= 40
    cluster.close()


def test_coordinators_that_send_one_another_round_in_circles_end(broker: HostileBroker) -> None:
    cluster = patient_cluster(broker.bootstrap)
    broker.lies[8] = lambda r, b: [
        b.honest(r, topics=[{"name": "t", "partitions": [{"partition_index": 0, "error_code": NOT_COORDINATOR}]}])
    ]
    with pytest.raises(UnavailableError, match="NotCoordinator"):
        cluster.commit_offsets("g", {("t", 0): (1, "")})
    assert broker.counts[FIND_COORDINATOR] <= 40
    cluster.close()


def test_another_cluster_at_the_same_address_is_noticed(broker: HostileBroker) -> None:
    cluster = patient(broker.bootstrap)
    cluster.partitions(["t"])
    broker.cluster_id = "two"
    with pytest.raises(KeyedwmError, match=r"cluster 'two' now, it was cluster 'one'"):
        cluster.partitions(["t"])
    cluster.close()


def test_a_malformed_answer_is_not_logged_whole(broker: HostileBroker, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    cluster = connected(broker.bootstrap)
    secret = b"a record's secret " * 20
    broker.lies[FETCH] = lambda r, _b: [struct.pack(">ii", 4 + len(secret), r.correlation_id) + secret]
    with pytest.raises(KeyedwmError):
        list(read_ranges(cluster, [OffsetRange("t", 0, 0, 1)], stall_ms=200))
    assert caplog.text.count("a record's secret") <= 4 * broker.counts[FETCH]
    assert "secret " * 5 not in caplog.text
    cluster.close()


@pytest.mark.parametrize("value", ["", "-5", "9" * 5_000, "1e3", "\u0665", None])
def test_a_setting_that_is_no_number_is_none(broker: HostileBroker, value: str | None) -> None:
    cluster = patient(broker.bootstrap)
    config = dict.fromkeys(("read_only", "is_default", "is_sensitive"), False) | {"value": value, "synonyms": []}
    names = ("max.message.bytes", "transaction.max.timeout.ms")
    results = [{"error_code": 0, "error_message": None, "resource_type": 2, "resource_name": "t",
                "configs": [{**config, "name": name, "config_source": 1} for name in names]}]  # fmt: skip
    broker.lies[32] = lambda r, b: [b.honest(r, results=results)]
    assert cluster.largest_batch_bytes("t") is None
    assert txn.longest_timeout_ms(cluster) is None
    cluster.close()


@pytest.mark.parametrize("call", CALLS)
def test_a_broker_that_falls_silent_later_is_given_up(broker: HostileBroker, call: str) -> None:
    api, act = CALLS[call]
    cluster = connected(broker.bootstrap, act if api != FIND_COORDINATOR else lambda _: None)
    broker.lies[api] = lambda _r, _b: []
    broker.counts.clear()
    with pytest.raises(UnavailableError):
        act(cluster)
    wait_until(lambda: broker.counts[api], "the broker takes note of the request")
    assert broker.counts[api] <= MOST_REQUESTS
    cluster.close()


def test_a_silent_address_does_not_take_the_time_of_the_next_one(broker: HostileBroker) -> None:
    with silent_listener() as port:
        some = {"default_api_timeout_ms": "60000", "request_timeout_ms": "30000"}
        cluster = Cluster.connect(config_of(f"127.0.0.1:{port},{broker.bootstrap}", **some), 60_000)
    assert cluster.topics() == ("t",)
    cluster.close()


def test_who_connects_to_a_silent_cluster_holds_up_nobody_else(
    broker: HostileBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    entered, leave = threading.Event(), threading.Event()
    honest = cluster_module.Cluster.connect

    def connect(config: ClientConfig, timeout_ms: int = 30_000) -> Cluster:
        if config.client_id == "slow":
            entered.set()
            assert leave.wait(240)
        return honest(config, timeout_ms)

    monkeypatch.setattr(cluster_module.Cluster, "connect", connect)
    slow = threading.Thread(target=lambda: shared(config_of(broker.bootstrap, client_id="slow", **PATIENT)))
    slow.start()
    assert entered.wait(240)
    assert shared(config_of(broker.bootstrap, **PATIENT)).topics() == ("t",)
    leave.set()
    slow.join()
    close_shared()


def test_the_hostile_broker_tells_the_truth_unless_it_is_told_to_lie(broker: HostileBroker) -> None:
    cluster = patient(broker.bootstrap)
    assert cluster.topic_ids(["t"]) == {"t": hostile.TOPIC_ID}
    assert cluster.latest([("t", 0)]) == {("t", 0): 0}
    assert send(cluster, "t", {0: pa.table({"value": [b"x"], "timestamp": np.array([1])})}) == {("t", 0): 1}
    assert txn.fate(cluster, OPEN_TRANSACTION) is txn.Fate.OPEN
    cluster.close()
