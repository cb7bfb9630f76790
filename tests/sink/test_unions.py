"""Snapshots over several sources: the barriers of each are checked by the id of their source, not by counts."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import StringType, StructField, StructType

from keyedwm.arrow.schema import CONTROL_TYPE, CONTROL_TYPE_1
from keyedwm.core.axis import AxisState, Counts, PropagatedState
from keyedwm.core.coalescer import CommonState
from keyedwm.core.control_row import ControlRow
from keyedwm.core.errors import InputError
from keyedwm.core.rows import CONTROL_FIELDS_1, ControlKind
from keyedwm.core.watermark import Guarantee, Status
from keyedwm.kafka.client.values import TopicPartition
from keyedwm.spark.hosting.channel_tracker import ChannelTracker
from pyspark_wm_sink.batch.record import Record
from pyspark_wm_sink.batch.reports import BatchReport
from pyspark_wm_sink.batch.seal import seal
from pyspark_wm_sink.batch.source_columns import has_control
from pyspark_wm_sink.options.sink_options import SnapshotMode
from pyspark_wm_sink.tables.columns import table_columns
from pyspark_wm_source.driver.splits import ControlSettings, splits
from pyspark_wm_source.values.offsets import Channel, QueryOffset

ONCE, LEAST = Guarantee.EXACTLY_ONCE, Guarantee.AT_LEAST_ONCE
PLAIN, UPSTREAM = AxisState((50,), 50), AxisState(PropagatedState(7, 31), 40)


class Source:
    """A source whose partitions have nothing to read, so that its planner makes all of its rows."""

    def __init__(self, topic: str, partitions: int, state: AxisState = PLAIN, batch: int = -1) -> None:
        self._places = [TopicPartition(topic, number) for number in range(partitions)]
        self._state = state
        self._last = QueryOffset(
            batch=batch, group=topic, state_key=topic.encode().hex(), now_ms=0, coalesced=CommonState()
        )

    def rows(self) -> list[ControlRow]:
        """The control rows of its next batch, with the watermark of each partition."""
        self._state = replace(self._state, emitted_ms=(self._state.emitted_ms or 0) + 10)
        channel = Channel(
            next_offset=5, read=0, status=Status.ACTIVE, since_ms=0, counts=Counts(), axes={0: self._state},
            announced=(0,),
        )  # fmt: skip
        start = self._last
        self._last = replace(start, batch=start.batch + 1, channels=dict.fromkeys(self._places, channel))
        (split,) = splits(start, self._last, ControlSettings(axes={"": 0}, control=True, barriers=True))
        return list(split.control)


def sealed(last: Record | None, *sources: list[ControlRow], guarantee: Guarantee = ONCE) -> Record:
    control = tuple(row for rows in sources for row in rows)
    report = BatchReport(query="q", run="r", batch=0, attempt="a", rows=1, control=control, event_tops={})
    return seal(last, report, SnapshotMode.BARRIER, guarantee)


def without(rows: list[ControlRow], channel: str | None = None) -> list[ControlRow]:
    """The rows without the barriers, of one channel or of all."""
    return [row for row in rows if row.kind is not ControlKind.BARRIER or row.channel not in (channel or row.channel)]


def snapshots(record: Record) -> dict[str, int | None]:
    return {name: channel.snapshot for name, channel in record.channels.items()}


def unite(*sources: Source) -> tuple[Record, ChannelTracker]:
    """A sink and a bucket that have seen one batch of all."""
    rows = [source.rows() for source in sources]
    box = ChannelTracker("aggregate hours", key=0)
    box.apply([row for of_one in rows for row in of_one])
    return sealed(None, *rows), box


def test_a_source_without_a_batch_keeps_its_snapshot_and_goes_on_with_the_next():
    a, b = Source("a", 2), Source("b", 2)
    record, box = unite(a, b)
    rows = a.rows()
    record = sealed(record, rows)
    assert snapshots(record) == {"a-0": 1, "a-1": 1, "b-0": 0, "b-1": 0}
    assert box.apply(rows).watermark_ms == 60
    both = a.rows(), b.rows()
    assert set(snapshots(sealed(record, *both)).items()) == {("a-0", 2), ("a-1", 2), ("b-0", 1), ("b-1", 1)}
    assert box.apply([*both[0], *both[1]]).watermark_ms == 70


def test_a_batch_of_one_source_that_was_dropped_whole_is_noticed_at_its_next():
    a, b = Source("a", 1), Source("b", 1)
    record, _ = unite(a, b)
    b.rows()
    record = sealed(record, a.rows())
    with pytest.raises(InputError, match="snapshot 2 of channels b-0 follows snapshot 0"):
        sealed(record, a.rows(), b.rows())


def test_sources_with_other_snapshot_numbers_go_up_each_on_its_own():
    a, b = Source("a", 2, batch=6), Source("b", 2)
    record, _ = unite(a, b)
    assert snapshots(record) == {"a-0": 7, "a-1": 7, "b-0": 0, "b-1": 0}
    assert snapshots(sealed(record, a.rows(), b.rows()))["b-1"] == 1


def test_the_snapshots_that_readers_of_a_union_are_told_go_up_whichever_source_has_a_batch():
    a, b = Source("a", 1, batch=30), Source("b", 1)
    record, _ = unite(a, b)
    snapshots = [record.snapshot]
    for rows in ([b.rows()], [a.rows()], [b.rows(), a.rows()], [b.rows()]):
        record = sealed(record, *rows)
        snapshots.append(record.snapshot)
    assert snapshots == [31, 32, 33, 34, 35]
    empty = BatchReport(query="q", run="r", batch=0, attempt="a", rows=0, control=(), event_tops={})
    assert seal(record, empty, SnapshotMode.BARRIER, ONCE).snapshot == 35


@pytest.mark.parametrize("is_empty", [False, True], ids=["rows in the batch before", "an empty batch before"])
def test_the_snapshots_that_readers_are_told_go_up_when_barriers_come_into_a_query_that_had_none(is_empty):
    """The source's own number, 0, is below that of the batches, which readers were told until then."""
    control_rows, record = tuple(without(Source("a", 1).rows())), None
    for batch in range(3):
        report = BatchReport(query="q", run="r", batch=batch, attempt="a", rows=1, control=control_rows, event_tops={})
        if batch:
            report = replace(report, rows=0 if is_empty else 1, control=())
        record = seal(record, report, SnapshotMode.BATCH, ONCE)
        assert record.snapshot is None
    control_rows = tuple(Source("b", 1).rows())
    report = BatchReport(query="q", run="r", batch=3, attempt="a", rows=1, control=control_rows, event_tops={})
    for mode in SnapshotMode:
        assert seal(record, report, mode, ONCE).snapshot == 3
    assert seal(None, report, SnapshotMode.BARRIER, ONCE).snapshot == 0


def test_sources_with_other_numbers_of_partitions_are_each_whole_or_refused():
    a, b = Source("a", 3), Source("b", 1)
    record, box = unite(a, b)
    rows = a.rows(), b.rows()
    assert snapshots(sealed(record, *rows))["a-2"] == 1
    with pytest.raises(InputError, match=r"2 of 3 barrier rows of snapshot 1 arrived \(a-0, a-2; not of a-1, b-0\)"):
        sealed(record, without(rows[0], "a-1"))
    with pytest.raises(InputError, match=r"aggregate hours: 2 of 3 barrier rows of snapshot 1 arrived"):
        box.apply([*without(rows[0], "a-1"), *rows[1]])


def test_a_propagated_source_beside_a_plain_one_counts_its_own_batches():
    """The snapshots upstream have numbers of their own, which are no part of this query's."""
    plain, propagated = Source("a", 2), Source("u", 2, UPSTREAM)
    record, box = unite(plain, propagated)
    record = sealed(record, plain.rows())  # rows of u wait in the topic until their snapshot is complete
    both = plain.rows(), propagated.rows()
    assert snapshots(sealed(record, *both)) == {"a-0": 2, "a-1": 2, "u-0": 1, "u-1": 1}
    assert box.apply([row for rows in both for row in rows]).watermark_ms == 60
    with pytest.raises(InputError, match=r"1 of 2 barrier rows of snapshot 1 arrived \(u-0"):
        sealed(record, both[0], without(both[1], "u-1"))


def test_two_sources_that_lack_a_barrier_each_are_not_taken_for_a_whole_one():
    a, b = Source("a", 2), Source("b", 2)
    record, _ = unite(a, b)
    rows = [row for row in (*a.rows(), *b.rows()) if row.channel not in ("a-1", "b-1")]
    with pytest.raises(InputError, match=r"1 of 2 barrier rows of snapshot 1 arrived \([ab]-0; not of a-1, b-1"):
        sealed(record, rows)
    unnamed = [replace(row, source=None) for row in rows]
    assert snapshots(sealed(record, unnamed))["a-0"] == 1  # as rows of version 1 were judged


def test_a_source_that_told_something_but_delivered_no_barrier_is_refused():
    a, b = Source("a", 1), Source("b", 1)
    record, _ = unite(a, b)
    watermark_rows = [replace(row, channel=None, offset=None) for row in b.rows() if row.kind is ControlKind.WATERMARK]
    assert watermark_rows
    with pytest.raises(
        InputError, match=f"none of the barrier rows of source {watermark_rows[0].source}, which has other"
    ):
        sealed(record, a.rows(), watermark_rows)


def test_one_channel_of_two_sources_is_refused_under_exactly_once():
    a, b = Source("a", 1), Source("a", 1)
    again = [replace(row, source="another") for row in b.rows() if row.kind is ControlKind.BARRIER]
    with pytest.raises(
        InputError, match="channel a-0 comes from two sources of this query: load the topic once"
    ) as error:
        sealed(None, a.rows(), again)
    assert "write topics of the same name in two clusters in a query each" in error.value.message
    assert sealed(None, again, again, guarantee=LEAST).snapshot == 0


def test_the_id_of_a_source_outlives_a_restart_and_differs_between_sources():
    one, other = (QueryOffset(batch=0, group="g", state_key=key, now_ms=0, coalesced=CommonState()) for key in "ab")
    assert one.source != other.source
    assert QueryOffset.from_json(one.to_json()).source == one.source
    assert one.source not in one.state_key


@pytest.mark.parametrize("kind", [CONTROL_TYPE, CONTROL_TYPE_1])
def test_a_table_keeps_control_rows_as_tables_of_version_1_have_them(kind):
    schema = StructType([StructField("value", StringType()), StructField("control", from_arrow_type(kind))])
    assert has_control(schema)
    columns = table_columns(schema, drop_control=False, table="a Delta table")
    assert columns.field("control").type.names == list(CONTROL_FIELDS_1)
    row = {"value": "x", "control": {"kind": "idle", "source": "s"} if "source" in kind.names else {"kind": "idle"}}
    staged_table = pa.Table.from_pylist([row], pa.schema([("value", pa.string()), ("control", kind)])).cast(columns)
    assert staged_table.to_pylist()[0]["control"] == dict.fromkeys(CONTROL_FIELDS_1) | {"kind": "idle"}
