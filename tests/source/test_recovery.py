"""A commit that is lost, foreign, stale, damaged or refused costs a second read and changes nothing else."""

from __future__ import annotations

import copy
import logging
import random
from collections.abc import Callable, Iterator

import pytest
from kafka.protocol.admin import CreateAclsRequest, DeleteGroupsRequest

from keyedwm.core.axis import AxisState, Counts
from keyedwm.core.encoding import CommittedState, encode_committed
from keyedwm.kafka.client.connection import Retry
from keyedwm.kafka.client.values import TopicPartition
from keyedwm.kafka.requests.cluster import Cluster
from keyedwm.testing.local import local_broker
from pyspark_wm_source.values.offsets import state_place
from tests.tools import NO_TIMESTAMP, Record, Stream, cluster_at, controls, events, make_topic, produce

PARTITIONS = 3
WRONG_STATE = {0: AxisState(policy=(10**15,), emitted_ms=10**15)}

Damage = Callable[[Stream, Cluster, list[TopicPartition]], None]


def committed(cluster: Cluster, group: str, places: list[TopicPartition]) -> dict:
    return cluster.fetch_offsets(group, places)


def deleted(stream: Stream, cluster: Cluster, _places: list[TopicPartition]) -> None:
    group = stream.offset["group"]
    node = cluster.coordinator(group, 0, Retry(cluster.config, "deleting a group"))
    answer = cluster.connection.call(node, DeleteGroupsRequest(groups_names=[group], max_version=2))
    assert answer.results[0].error_code == 0


def rewritten(change: Callable[[int, str], tuple[int, str]]) -> Damage:
    def damage(stream: Stream, cluster: Cluster, places: list[TopicPartition]) -> None:
        group = stream.offset["group"]
        positions_read = committed(cluster, group, places)
        assert positions_read
        cluster.commit_offsets(group, {tp: change(c.next_offset, c.metadata) for tp, c in positions_read.items()})

    return damage


def forged(wrong: Callable[[Stream], tuple[int, str, str]]) -> Damage:
    """Well-formed states; wrong: batch, state key and settings, of which one is not the query's own."""

    def damage(stream: Stream, cluster: Cluster, places: list[TopicPartition]) -> None:
        group = stream.offset["group"]
        positions_read = committed(cluster, group, places)
        assert positions_read
        batch, key, settings = wrong(stream)
        state = CommittedState(batch, Counts(), WRONG_STATE)
        positions = {}
        for tp, position in positions_read.items():
            place = state_place(group, tp, position.next_offset, settings)
            positions[tp] = (position.next_offset, encode_committed(state, bytes.fromhex(key), place))
        cluster.commit_offsets(group, positions)

    return damage


def copied(stream: Stream, cluster: Cluster, places: list[TopicPartition]) -> None:
    """Every partition is given the state of another."""
    positions_read = committed(cluster, stream.offset["group"], places)
    swapped = dict(
        zip(positions_read, [*list(positions_read.values())[1:], next(iter(positions_read.values()))], strict=True)
    )
    positions = {tp: (positions_read[tp].next_offset, other.metadata) for tp, other in swapped.items()}
    cluster.commit_offsets(stream.offset["group"], positions)


DAMAGES: dict[str, Damage] = {
    "deleted": deleted,
    "garbage": rewritten(lambda offset, _: (offset, "garbage")),
    "empty": rewritten(lambda offset, _: (offset, "")),
    "newer version": rewritten(lambda offset, text: (offset, text.replace("keyedwm3:", "keyedwm4:"))),
    "one byte changed": rewritten(lambda offset, text: (offset, text[:-1] + ("1" if text[-1] == "0" else "0"))),
    "cut short": rewritten(lambda offset, text: (offset, text[: len(text) // 2])),
    "stale offset": rewritten(lambda offset, text: (offset - 1, text)),
    "of another query": forged(lambda s: (s.offset["batch"], "00" * 32, s.offset["settings"])),
    "of another batch": forged(lambda s: (s.offset["batch"] + 1, s.offset["state_key"], s.offset["settings"])),
    "of a copy with other settings": forged(lambda s: (s.offset["batch"], s.offset["state_key"], "another lag")),
    "of another partition": copied,
}


def records(seed: str, count: int = 60) -> list[Record]:
    rng = random.Random(seed)
    return [
        Record(rng.randrange(PARTITIONS), rng.choice([NO_TIMESTAMP, *(rng.randrange(10**6) for _ in range(4))]))
        for _ in range(count)
    ]


def run(stream: Stream, damage: Callable[[], None] = lambda: None) -> tuple[list, list]:
    """The offset log without clocks and names, and all rows; `damage` comes after every batch."""
    rows = []
    while (batch := stream.batch()) is not None:
        rows.append((events(batch), controls(batch)))
        damage()
        stream.restart()
    return [timeless(offset) for offset in stream.log[1:]], rows


def late(offset: dict) -> list[int]:
    return [channel[4] for of_topic in offset["channels"].values() for channel in of_topic.values() if channel[4]]


def timeless(offset: dict) -> dict:
    offset_fields = copy.deepcopy(
        {k: v for k, v in offset.items() if k not in ("now_ms", "group", "state_key", "topic_ids")}
    )
    for of_topic in offset_fields["channels"].values():
        for channel in of_topic.values():
            channel[2] = "since_ms"
    return offset_fields


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
def test_a_damaged_commit_changes_no_result(kafka, topic_of, open_stream, seed, caplog, damage):
    topic = topic_of(PARTITIONS)
    produce(kafka.bootstrap, topic, records(f"{seed} recovery"))
    options = {"maxOffsetsPerTrigger": "15", "watermarkLag": "100 milliseconds", "idleTimeout": "none"}
    expected = run(open_stream(topic, options))
    assert len(expected[0]) > 4
    assert late(expected[0][-1])
    stream = open_stream(topic, options)
    places = [TopicPartition(topic, p) for p in range(PARTITIONS)]
    cluster = cluster_at(kafka.bootstrap)
    with caplog.at_level(logging.DEBUG, "keyedwm.source"):
        result = run(stream, lambda: damage(stream, cluster, places) if reads(stream) else None)
    assert result == expected
    assert "recovery read" in caplog.text


def reads(stream: Stream) -> bool:
    return any(channel[0] for of_topic in stream.offset["channels"].values() for channel in of_topic.values())


def test_committed_states_are_taken_and_nothing_is_read_twice(kafka, topic_of, open_stream, seed, caplog):
    topic = topic_of(PARTITIONS)
    produce(kafka.bootstrap, topic, records(f"{seed} recovery"))
    with caplog.at_level(logging.DEBUG, "keyedwm.source"):
        run(open_stream(topic, maxOffsetsPerTrigger="15"))
    assert "recovery read" not in caplog.text


def test_users_see_the_real_backlog_of_the_group(kafka, topic_of, open_stream):
    topic = topic_of()
    produce(kafka.bootstrap, topic, [Record(0, 1)] * 10)
    stream = open_stream(topic, {"maxOffsetsPerTrigger": "4", "kafka.group.id": f"shown-{topic}"})
    stream.batch()
    assert (
        committed(cluster_at(kafka.bootstrap), f"shown-{topic}", [TopicPartition(topic, 0)])[topic, 0].next_offset == 4
    )


@pytest.fixture(scope="module")
def guarded() -> Iterator[str]:
    """A broker that lets nobody use any consumer group."""
    rights = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
        "super.users": "User:somebody",
    }
    with local_broker(extra=rights) as running:
        cluster = cluster_at(running.bootstrap)
        deny = CreateAclsRequest.AclCreation(
            resource_type=3, resource_name="*", resource_pattern_type=3, principal="User:ANONYMOUS", host="*",
            operation=2, permission_type=2,
        )  # fmt: skip
        answer = cluster.connection.call(None, CreateAclsRequest(creations=[deny], max_version=2))
        assert answer.results[0].error_code == 0, answer.results[0].error_message
        yield running.bootstrap
        cluster.close()


def test_a_refused_group_changes_no_result(kafka, topic_of, open_stream, guarded, seed, caplog):
    sent_records = records(f"{seed} refused")
    options = {"maxOffsetsPerTrigger": "15", "watermarkLag": "100 milliseconds", "idleTimeout": "none"}
    topic = topic_of(PARTITIONS)
    make_topic(guarded, topic, PARTITIONS)
    produce(kafka.bootstrap, topic, sent_records)
    produce(guarded, topic, sent_records)
    expected = run(open_stream(topic, options))
    with caplog.at_level(logging.WARNING, "keyedwm.source"):
        result = run(open_stream(topic, {**options, "kafka.bootstrap.servers": guarded}))
    assert result == expected
    assert "every batch is read a second time" in caplog.text
