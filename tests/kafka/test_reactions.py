"""Each error code in the answer to each request is retried, final or an answer, as one table says."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import kafka.errors as wire_errors
import pyarrow as pa
import pytest

from keyedwm.core.errors import InputError, KeyedwmError, UnavailableError
from keyedwm.kafka.client.errors import AccessError, Code
from keyedwm.kafka.client.values import Committed, TopicPartition
from keyedwm.kafka.requests import transactions as txn
from keyedwm.kafka.requests.cluster import Cluster
from keyedwm.kafka.requests.fetch import OffsetRange, read_ranges
from keyedwm.kafka.requests.listing import groups_ending_with
from keyedwm.kafka.requests.produce import send
from keyedwm.kafka.requests.reactions import Api, Reaction, reaction
from keyedwm.kafka.requests.transactional_offsets import commit_as
from tests.kafka.reference import Record, write
from tests.kafka.test_hostile import patient, patient_cluster
from tests.support.hostile import HostileBroker, Lie, Request, hostile_broker

PLACE = TopicPartition("t", 0)
OPEN_TRANSACTION = txn.Transaction("x", 1, 0)
RECORD = write([Record(0, 0, None, b"x")])
ROWS = {0: pa.table({"value": [b"x"]})}
# Kafka's codes, by the library that has them all, and whether it takes them for ones that pass.
KAFKAS = {
    one.errno: issubclass(one, wire_errors.RetriableError)
    for one in vars(wire_errors).values()
    if isinstance(one, type)
    and issubclass(one, wire_errors.KafkaError)
    and isinstance(getattr(one, "errno", None), int)
}
CODES = sorted(KAFKAS)
# Codes that pass all the same: nothing is known of the cause, a batch was damaged on its way, a broker is away.
PASS = {-1, 2, 8}

CALLS: dict[Api, Callable[[Cluster], Any]] = {
    Api.PRODUCE: lambda c: send(c, "t", ROWS),
    Api.FETCH: lambda c: [one.records.value.to_pylist() for one in read_ranges(c, [OffsetRange("t", 0, 0, 1)])],
    Api.LIST_OFFSETS: lambda c: c.latest([PLACE]),
    Api.METADATA: lambda c: c.partitions(["t"]),
    Api.OFFSET_COMMIT: lambda c: c.commit_offsets("g", {PLACE: (1, "")}),
    Api.OFFSET_FETCH: lambda c: c.fetch_offsets("g", [PLACE]),
    Api.FIND_COORDINATOR: lambda c: c.fetch_offsets("g", [PLACE]),
    Api.LIST_GROUPS: lambda c: groups_ending_with(c, "-ledger"),
    Api.INIT_PRODUCER_ID: lambda c: txn.begin(c, "x", 1_000),
    Api.OFFSET_FOR_LEADER_EPOCH: lambda c: c.epoch_ends({PLACE: 0}),
    Api.ADD_PARTITIONS_TO_TXN: lambda c: txn.add_partitions(c, OPEN_TRANSACTION, [PLACE]),
    Api.ADD_OFFSETS_TO_TXN: lambda c: commit_as(c, OPEN_TRANSACTION, "g", PLACE, Committed(1, ""), timeout_ms=60_000),
    Api.TXN_OFFSET_COMMIT: lambda c: commit_as(c, OPEN_TRANSACTION, "g", PLACE, Committed(1, ""), timeout_ms=60_000),
    Api.END_TXN: lambda c: txn.end(c, [OPEN_TRANSACTION], commit=True),
    Api.DESCRIBE_CONFIGS: lambda c: c.largest_batch_bytes("t"),
    Api.DESCRIBE_TRANSACTIONS: lambda c: txn.fate(c, OPEN_TRANSACTION),
    Api.LIST_TRANSACTIONS: lambda c: txn.lingering(c, "y"),
}


@pytest.fixture
def broker() -> Iterator[HostileBroker]:
    with hostile_broker() as broker:
        yield broker


@pytest.fixture
def cluster(broker: HostileBroker) -> Iterator[Cluster]:
    """A cluster with patience, and with hardly a pause before it asks again."""
    patient_cluster = patient(broker.bootstrap)
    patient_cluster.config = patient_cluster.connection.config = replace(
        patient_cluster.config, retry_backoff_ms=1, retry_backoff_max_ms=1
    )
    yield patient_cluster
    patient_cluster.close()


@pytest.mark.parametrize("api", Api)
def test_every_code_that_passes_is_asked_about_again_and_no_other(api: Api) -> None:
    for number in CODES:
        observed_reaction, code = reaction(api, number), Code.of(number)
        passes = KAFKAS[number] or number in PASS
        if number == 0 or api is Api.DESCRIBE_CONFIGS:
            assert observed_reaction is Reaction.ANSWER
        elif observed_reaction is Reaction.ANSWER:
            assert (api, code) in ANSWERS
        elif (api, code) in OTHERWISE:
            assert observed_reaction.repeats is not passes
        else:
            assert observed_reaction.repeats is passes, (number, observed_reaction)
    assert reaction(api, 9_999).repeats or api is Api.DESCRIBE_CONFIGS  # of a later Kafka


ANSWERS = {
    (Api.PRODUCE, Code.DUPLICATE_SEQUENCE), (Api.METADATA, Code.UNKNOWN_TOPIC_OR_PARTITION),
    (Api.OFFSET_FETCH, Code.UNKNOWN_TOPIC_OR_PARTITION), (Api.OFFSET_FETCH, Code.GROUP_ID_NOT_FOUND),
    (Api.DESCRIBE_TRANSACTIONS, Code.TRANSACTIONAL_ID_NOT_FOUND), (Api.END_TXN, Code.INVALID_PRODUCER_EPOCH),
    (Api.END_TXN, Code.PRODUCER_FENCED), (Api.END_TXN, Code.INVALID_TXN_STATE),
    (Api.END_TXN, Code.INVALID_PRODUCER_ID_MAPPING),
}  # fmt: skip
OTHERWISE = {
    (Api.FETCH, Code.CORRUPT_MESSAGE), (Api.FETCH, Code.OFFSET_OUT_OF_RANGE),
    (Api.OFFSET_COMMIT, Code.UNKNOWN_TOPIC_OR_PARTITION),
    (Api.DELETE_TOPICS, Code.UNKNOWN_TOPIC_OR_PARTITION), (Api.CREATE_PARTITIONS, Code.UNKNOWN_TOPIC_OR_PARTITION),
    (Api.ADD_PARTITIONS_TO_TXN, Code.OPERATION_NOT_ATTEMPTED), (Api.PRODUCE, Code.POLICY_VIOLATION),
}  # fmt: skip


@pytest.mark.starts
@pytest.mark.parametrize("api", CALLS)
def test_a_call_does_with_every_code_what_the_table_says(broker: HostileBroker, cluster: Cluster, api: Api) -> None:
    act, honest = CALLS[api], {Api.FETCH: _one_record, Api.LIST_OFFSETS: _one_offset} if api is Api.FETCH else {}
    broker.lies |= honest
    right = act(cluster)
    for number in CODES:
        for key in ((0, "g"), (1, "x")):
            cluster.forget_coordinator(key[1], key[0])
        broker.lies[api] = once(number, honest.get(api))
        broker.counts.clear()
        then = reaction(api, number)
        raised_error = None
        try:
            result = act(cluster)
        except KeyedwmError as error:
            raised_error = error
        if then is Reaction.FINAL and api is Api.OFFSET_COMMIT:
            assert result == {PLACE: Code.of(number)}
        elif then is Reaction.FINAL:
            assert raised_error is not None, number
            assert broker.counts[api] == 1, number
            assert isinstance(raised_error, AccessError) is Code.of(number).denied
        elif then.repeats:
            assert raised_error is None, (number, raised_error)
            assert result == right, number
            assert broker.counts[api] == 2, number
        elif number == 0:
            assert result == right
        else:
            assert raised_error is None or api is Api.METADATA, (number, raised_error)


def once(number: int, honest: Lie | None = None) -> Lie:
    """The first answer has this code wherever it can have one, the next ones are true."""

    def lie(request: Request, broker: HostileBroker) -> Any:
        if broker.counts[request.api] == 1:
            return [broker.failed(request, number)]
        return [broker.honest(request)] if honest is None else honest(request, broker)

    return lie


def _one_record(request: Request, broker: HostileBroker) -> list[bytes]:
    (topic,) = broker.fields(Api.FETCH)["responses"]
    part = {**topic["partitions"][0], "records": RECORD, "high_watermark": 1, "last_stable_offset": 1}
    return [broker.honest(request, responses=[{**topic, "partitions": [part]}])]


def _one_offset(request: Request, broker: HostileBroker) -> list[bytes]:
    """The log holds offset 0; the request for its start has -2 in place of a time."""
    (topic,) = broker.fields(Api.LIST_OFFSETS)["topics"]
    part = {**topic["partitions"][0], "offset": int((-2).to_bytes(8, "big", signed=True) not in request.body)}
    return [broker.honest(request, topics=[{**topic, "partitions": [part]}])]


@pytest.mark.starts
@pytest.mark.parametrize("api", [api for api in CALLS if api not in {Api.DESCRIBE_CONFIGS, Api.FETCH}])
def test_an_error_that_does_not_pass_ends_with_its_name(broker: HostileBroker, api: Api) -> None:
    impatient = patient_cluster(broker.bootstrap)
    CALLS[api](impatient)
    for key in ((0, "g"), (1, "x")):
        impatient.forget_coordinator(key[1], key[0])
    broker.lies[api] = lambda request, broker: [broker.failed(request, -1)]
    with pytest.raises(UnavailableError, match=r"Unknown \(-1\)"):
        CALLS[api](impatient)
    assert broker.counts[api] <= 60
    impatient.close()


@pytest.mark.starts
def test_a_new_group_has_nothing_committed(broker: HostileBroker, cluster: Cluster) -> None:
    broker.lies[Api.OFFSET_FETCH] = lambda r, b: [
        b.honest(r, groups=[{"group_id": "g", "error_code": int(Code.GROUP_ID_NOT_FOUND), "topics": []}])
    ]
    assert cluster.fetch_offsets("g", [PLACE]) == {}
    assert cluster.fetch_offsets("g", None) == {}


@pytest.mark.starts
def test_one_topic_without_a_leader_is_listed_and_holds_up_no_other(broker: HostileBroker, cluster: Cluster) -> None:
    leaderless = {"error_code": int(Code.LEADER_NOT_AVAILABLE), "name": "a", "topic_id": None, "partitions": []}
    (sound,) = broker.fields(Api.METADATA)["topics"]
    broker.lies[Api.METADATA] = lambda r, b: [b.honest(r, topics=[leaderless, sound])]
    assert cluster.topics() == ("a", "t")
    assert cluster.partitions(["t"]) == {"t": (0,)}


def _two_partitions(broker: HostileBroker, *numbers: int) -> list[dict[str, Any]]:
    (topic,) = broker.fields(Api.METADATA)["topics"]
    (part,) = topic["partitions"]
    return [{**topic, "partitions": [{**part, "partition_index": number} for number in numbers]}]


def _with_other_names(broker: HostileBroker, api: Api, topics: str, parts: str, index: str) -> list[dict[str, Any]]:
    """An answer's topics, about another partition than the one that was asked for."""
    (topic,) = broker.fields(api)[topics]
    (part,) = topic[parts]
    return [{**topic, parts: [{**part, index: 7}]}]


# What the first answer leaves out, and the words of the pause.
LEFT_OUT: dict[str, tuple[Api, Callable[[HostileBroker], dict[str, Any]], str]] = {
    "a topic of the metadata": (Api.METADATA, lambda _: {"topics": []}, "leaves topic t out"),
    "all partitions of a topic": (
        Api.METADATA, lambda b: {"topics": _two_partitions(b)}, "leaves partition 0 of topic t out",
    ),
    "the first of two partitions": (
        Api.METADATA, lambda b: {"topics": _two_partitions(b, 1)}, "leaves partition 0 of topic t out",
    ),
    "the end of a log": (Api.LIST_OFFSETS, lambda _: {"topics": []}, "t-0: the answer leaves this partition, "),
    "the offset of a log's end": (
        Api.LIST_OFFSETS,
        lambda _: {"topics": [{"name": "t", "partitions": [
            {"partition_index": 0, "error_code": 0, "offset": -1, "timestamp": -1, "leader_epoch": -1}]}]},
        "t-0: the answer leaves this partition, or its offset, out",
    ),
    "the acknowledgement of a partition": (
        Api.PRODUCE,
        lambda b: {"responses": _with_other_names(b, Api.PRODUCE, "responses", "partition_responses", "index")},
        "the answer has no partition of t 0",
    ),
    "the acknowledgement of an offset": (
        Api.TXN_OFFSET_COMMIT,
        lambda b: {"topics": _with_other_names(b, Api.TXN_OFFSET_COMMIT, "topics", "partitions", "partition_index")},
        "the answer has no partition of t 0",
    ),
    "a group": (
        Api.OFFSET_FETCH, lambda _: {"groups": [{"group_id": "other", "error_code": 0, "topics": []}]},
        "the answer has no group g",
    ),
    "where an epoch ends": (
        Api.OFFSET_FOR_LEADER_EPOCH, lambda _: {"topics": []}, "t-0: the answer leaves this partition, ",
    ),
    "a commit": (Api.OFFSET_COMMIT, lambda _: {"topics": []}, "t-0: the answer leaves this partition out"),
    "a committed offset": (
        Api.OFFSET_FETCH, lambda _: {"groups": [{"group_id": "g", "error_code": 0, "topics": []}]},
        "t-0: the answer leaves this partition out",
    ),
    "a partition of a transaction": (
        Api.ADD_PARTITIONS_TO_TXN, lambda _: {"results_by_topic_v3_and_below": []},
        "t-0: the answer leaves this partition out",
    ),
    "a transaction": (Api.DESCRIBE_TRANSACTIONS, lambda _: {"transaction_states": []}, "has no transaction"),
    "the brokers": (Api.METADATA, lambda _: {"brokers": []}, "the answer has no broker"),
}  # fmt: skip


@pytest.mark.starts
@pytest.mark.parametrize("missing_part", LEFT_OUT)
def test_what_an_answer_leaves_out_is_asked_for_again_and_named(broker: HostileBroker, missing_part: str) -> None:
    api, fields, sentence = LEFT_OUT[missing_part]
    act = txn.brokers if missing_part == "the brokers" else CALLS[api]
    impatient = patient_cluster(broker.bootstrap)
    right = act(impatient)
    broker.counts.clear()
    broker.lies[api] = lambda r, b: [b.honest(r, **(fields(b) if b.counts[api] == 1 else {}))]
    assert act(impatient) == right
    assert broker.counts[api] == 2
    broker.lies[api] = lambda r, b: [b.honest(r, **fields(b))]
    with pytest.raises(UnavailableError, match=sentence):
        act(impatient)
    impatient.close()


@pytest.mark.starts
def test_a_list_without_any_topic_is_asked_for_again(broker: HostileBroker, cluster: Cluster) -> None:
    """A broker that has just started lists none: a pattern matched nothing then, and a drain ended with no rows."""
    right = cluster.topics()
    assert right
    broker.lies[Api.METADATA] = lambda r, b: [b.honest(r, **({"topics": []} if b.counts[Api.METADATA] == 1 else {}))]
    broker.counts.clear()
    assert cluster.topics() == right
    broker.lies[Api.METADATA] = lambda r, b: [b.honest(r, topics=[])]
    assert cluster.topics() == ()


@pytest.mark.starts
def test_a_topic_that_has_fewer_partitions_than_before_is_asked_for_again(
    broker: HostileBroker, cluster: Cluster
) -> None:
    broker.lies[Api.METADATA] = lambda r, b: [
        b.honest(r, topics=_two_partitions(b, *((0,) if b.counts[Api.METADATA] == 2 else (0, 1))))
    ]
    broker.counts.clear()
    assert cluster.partitions(["t"]) == {"t": (0, 1)}
    assert cluster.partitions(["t"]) == {"t": (0, 1)}
    assert broker.counts[Api.METADATA] == 3


@pytest.mark.starts
def test_a_partition_whose_committed_offset_is_denied_is_named(broker: HostileBroker, cluster: Cluster) -> None:
    denied = {"partition_index": 0, "committed_offset": -1, "metadata": "", "error_code": 29}
    groups = [{"group_id": "g", "error_code": 0, "topics": [{"name": "t", "partitions": [denied]}]}]
    broker.lies[Api.OFFSET_FETCH] = lambda r, b: [b.honest(r, groups=groups)]
    with pytest.raises(AccessError, match="not allowed to read the committed offset of t-0 in group 'g'"):
        cluster.fetch_offsets("g", [PLACE])
    denied["error_code"] = 42
    with pytest.raises(InputError, match="does not give the committed offset of t-0 in group 'g': InvalidRequest"):
        cluster.fetch_offsets("g", [PLACE])
