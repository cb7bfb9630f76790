"""An id that is registered after a batch was read: every later read of that batch gives the same rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pytest

from keyedwm.core.axis import Counts
from keyedwm.core.errors import InputError, UnavailableError
from keyedwm.core.schemas import UnknownSchemaError
from keyedwm.kafka.client.errors import Code
from keyedwm.kafka.client.values import Committed, TopicPartition
from keyedwm.registry.client import registry_of
from pyspark_wm_source.options.source_options import SourceOptions
from pyspark_wm_source.task import decoding
from pyspark_wm_source.task.scan import _notes
from pyspark_wm_source.task.unknown_ids import UnknownIds
from pyspark_wm_source.values.ranges import ChannelRange, Split, group_of_notes, part_group
from tests.formats.avro_laws import framed
from tests.source.test_avro_values import ORDER, SECOND_MS, _read, order, parse, registry  # noqa: F401
from tests.source.test_heads import GUID, KEY, header_of, who
from tests.support.fake_registry import FakeRegistry
from tests.tools import Record, Stream, events, produce

TP = TopicPartition("orders", 3)
SECRET = bytes(32)


class Offsets:
    """Committed offsets of groups, as a coordinator keeps them."""

    def __init__(self) -> None:
        self.committed: dict[tuple[str, TopicPartition], Committed] = {}
        self.code = Code.NONE
        self.fetches = 0

    def commit_offsets(
        self, group: str, positions: Mapping[tuple[str, int], tuple[int, str]], *, timeout_ms: int | None
    ) -> dict[TopicPartition, Code]:
        assert timeout_ms is not None
        if self.code is Code.NONE:
            self.committed |= {(group, TopicPartition(*tp)): Committed(*one) for tp, one in positions.items()}
        return {TopicPartition(*tp): self.code for tp in positions}

    def fetch_offsets(
        self, group: str, partitions: Iterable[tuple[str, int]] | None, *, timeout_ms: int | None
    ) -> dict[TopicPartition, Committed]:
        assert timeout_ms is not None
        self.fetches += 1
        return {tp: one for (of, tp), one in self.committed.items() if of == group and tp in set(partitions or ())}


def unknown(offsets: Offsets, batch: int = 4, *, key: bytes = SECRET, **bounds: int) -> UnknownIds:
    """What a task knows of a batch when it begins to read."""
    where = {"start": 100, "end": 104, **bounds}
    return UnknownIds(offsets, "g-unknown", batch, [ChannelRange(channel=TP, counts=Counts(), axes={}, **where)], key)


def register(registry: FakeRegistry, text: str = ORDER) -> int:  # noqa: F811
    """Register a schema, and read as a process that has just started."""
    id_ = registry.add("orders-value", text)
    fresh_process()
    return id_


def fresh_process() -> None:
    registry_of.cache_clear()
    decoding._decoder.cache_clear()


def late(options: SourceOptions, offsets: Offsets, values: list, batch: int = 4, **more: object) -> tuple:
    return _read(options, values, notes=unknown(offsets, batch).of([0]), **more)


@pytest.mark.parametrize("on_bad", ["null", "reject"])
def test_an_id_that_is_registered_between_a_run_and_its_replay_changes_no_row(registry, on_bad):  # noqa: F811
    offsets, columns = Offsets(), "avro:$.id::bigint, schema_id, event_time, rejected"
    options = parse(registry, eventTime="avro:$.ts", onBadValue=on_bad,
                    columns=columns if on_bad == "reject" else columns.removesuffix(", rejected"))  # fmt: skip
    values = [order(2, 8, ms=SECOND_MS + 9_000), None, order(1, 7), order(1, 9)]
    assert register(registry) == 1
    first = late(options, offsets, values)
    assert [row["id"] for row in first[0]] == [None, None, 7, 9]
    assert first[1].axes[0].emitted_ms == SECOND_MS
    assert register(registry, ORDER.replace("order", "other")) == 2
    assert late(options, offsets, values) == first
    assert late(options, offsets, values, recovery=True)[1] == first[1]
    assert [row["id"] for row in late(options, offsets, values, batch=5)[0]] == [8, None, 7, 9]


def test_an_id_that_is_registered_while_a_task_reads_stays_unknown_to_it(registry):  # noqa: F811
    offsets = Offsets()
    options, notes = parse(registry, columns="avro:$.id::bigint", onBadValue="null"), unknown(offsets).of([0])
    assert _read(options, [order(1, 7)], notes=notes)[0][0]["id"] is None
    assert register(registry) == 1
    assert _read(options, [order(1, 7)], notes=notes)[0][0]["id"] is None
    assert offsets.fetches == 1


def test_an_id_that_cannot_be_noted_makes_no_row(registry):  # noqa: F811
    offsets = Offsets()
    offsets.code = Code.GROUP_AUTHORIZATION_FAILED
    options = parse(registry, columns="avro:$.id::bigint", onBadValue="null")
    with pytest.raises(UnavailableError, match=r"orders-3: .* in consumer group g-unknown .GROUP_AUTHORIZATION_FAILED"):
        late(options, offsets, [order(1, 7)])


def test_a_note_holds_for_its_query_batch_range_and_side_alone(registry):  # noqa: F811
    offsets = Offsets()
    settings = {"key.format": "avro-confluent", "columns": "avro:$.id::bigint, key.avro:$.shop AS whose"}
    options, key = parse(registry, **settings, onBadValue="null"), framed(2, who("Oslo"))
    header = [header_of(b"\1" + GUID.bytes)]
    row = late(options, offsets, [order(1, 7)[5:]], keys=[key], headers=header)[0][0]
    assert row == {"id": None, "whose": None}
    assert unknown(offsets).names(0) == {f"v{GUID}", "k2"}
    for other in (
        unknown(offsets, 5), unknown(offsets, key=bytes(31) + b"1"), unknown(offsets, start=99),
        unknown(offsets, end=105),
    ):  # fmt: skip
        assert other.names(0) == set()
    register(registry)
    registry.guids[str(GUID)] = 1
    registry.add("orders-key", KEY)
    assert late(options, offsets, [order(1, 7)[5:]], keys=[key], headers=header)[0][0] == row
    assert late(options, offsets, [order(2, 7)], keys=[framed(1, b"")])[0][0]["id"] is None


def test_ids_that_no_registry_gives_need_no_note(registry):  # noqa: F811
    offsets = Offsets()
    options = parse(registry, columns="avro:$.id::bigint", onBadValue="null")
    assert late(options, offsets, [order(2**31, 7), b"{}"])[0][0]["id"] is None
    assert offsets.committed == {}


def test_more_unknown_ids_than_a_note_holds_end_the_query(registry):  # noqa: F811
    options = parse(registry, columns="avro:$.id::bigint", onBadValue="null")
    with pytest.raises(InputError, match="orders-3, offsets 100 to 103: 900 ids have no schema"):
        late(options, Offsets(), [order(n, 7) for n in range(100, 1_000)])


def test_parts_of_a_range_have_notes_of_their_own_and_a_recovery_read_follows_each(registry):  # noqa: F811
    offsets = Offsets()
    options = parse(registry, eventTime="avro:$.ts", onBadValue="null")
    parts = [
        ChannelRange(channel=TP, start=at, end=at + 2, counts=Counts(), axes={}, part=part, parts=2)
        for part, at in enumerate((100, 102))
    ]
    tasks = [UnknownIds(offsets, "g-unknown", 4, [part], SECRET) for part in parts]
    tasks[0].add(0, ["v1"])
    assert [group for group, _ in offsets.committed] == [part_group("g-unknown", 0, 2)]
    register(registry)
    recovery = UnknownIds(offsets, "g-unknown", 4, parts, SECRET, writes=False).of([0, 1])
    values = [order(1, n, ms=SECOND_MS + 1_000 - n) for n in range(4)]
    state = _read(options, values, notes=recovery, recovery=True)[1]
    assert state.axes[0].emitted_ms == SECOND_MS + 1_000 - 2


def test_a_batch_of_a_real_broker_is_read_again_as_it_was_and_the_next_one_asks_again(kafka, topic_of, registry):  # noqa: F811
    topic = topic_of(2)
    options = {
        "kafka.bootstrap.servers": kafka.bootstrap, "subscribe": topic, "startingOffsets": "earliest",
        "value.format": "avro-confluent", "schemaRegistry.url": registry.url, "schemaRegistry.cache": "none",
        "eventTime": "avro:$.ts", "onBadValue": "null", "columns": "avro:$.id::bigint, offset, event_time, control",
    }  # fmt: skip
    stream = Stream(**options, minPartitions="3")
    records = [Record(n % 2, 0, order(1, n, ms=SECOND_MS + n)) for n in range(4)]
    produce(kafka.bootstrap, topic, records)
    first = stream.batch()
    assert [row["id"] for row in events(first)] == [None] * 4
    register(registry)
    stream.restart()
    assert stream.read().equals(first)
    produce(kafka.bootstrap, topic, records)
    while (batch := stream.batch()) is not None and not events(batch):
        assert stream.watermark_ms() is None
    assert sorted(row["id"] for row in events(batch)) == [0, 1, 2, 3]


def test_a_task_reads_notes_only_where_rows_can_depend_on_them(registry):  # noqa: F811
    split = {"ranges": (), "control": (), "stamps": {}, "batch": 1, "channels": 1, "source": "", "group": "g",
             "state_key": "00" * 32, "now_ms": 0}  # fmt: skip
    noted = Split(**split, notes=group_of_notes("g"))
    lenient, strict = parse(registry, onBadValue="null"), parse(registry)
    json_ = parse(None, value_format="json-confluent", onBadValue="null")
    assert [_notes(noted, strict), _notes(noted, json_), _notes(Split(**split), lenient)] == [None] * 3


def test_the_sentence_of_a_noted_id_is_that_of_an_unknown_one(registry):  # noqa: F811
    client = registry_of(parse(registry).formats.value.registry)
    with pytest.raises(UnknownSchemaError) as caught:
        client.schema(77)
    assert client.no_schema(77).message == caught.value.message
