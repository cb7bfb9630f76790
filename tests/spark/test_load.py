"""What a user of `spark.readStream.format("keyedwm")` sees: errors where they belong, triggers, checkpoints."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException, StreamingQueryException

from pyspark_wm_source.values.offsets import OFFSET_VERSION
from tests.tools import NO_TIMESTAMP, Record, at, cluster_at, produce


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        # Spark hands option names over in lower case.
        ({"watermarkLags": "1 second"}, "option watermarklags is unknown to the keyedwm source: did you mean"),
        ({"maxOffsetsPerTrigger": "0"}, "option maxOffsetsPerTrigger: '0' is wrong; a whole number of at least 1 is"),
        ({"assign": '{"t":[0]}'}, "exactly one of the options subscribe, subscribePattern and assign is expected"),
        ({"kafka.bootstrap.servers": ""}, "option kafka.bootstrap.servers is missing"),
    ],
)  # fmt: skip
def test_a_wrong_option_fails_at_load_in_one_sentence(load, options, sentence):
    with pytest.raises(AnalysisException) as refused:
        load("t", options)
    assert "OptionError: " + sentence in str(refused.value)


def test_a_schema_of_ones_own_is_refused(spark, kafka, run, topic_of):
    reader = spark.readStream.format("keyedwm").schema("value string")
    frame = reader.options(**{"kafka.bootstrap.servers": kafka.bootstrap, "subscribe": topic_of()}).load()
    with pytest.raises(StreamingQueryException, match=r"the keyedwm source has a fixed schema: leave \.schema"):
        run(frame)


def test_an_absent_topic_fails_the_query_in_sparks_words(load, run, topic):
    with pytest.raises(StreamingQueryException) as refused:
        run(load(topic))
    assert f"This server does not host this topic-partition: topic '{topic}' does not exist" in str(refused.value)


def test_a_missing_broker_fails_the_query_naming_its_address(load, run):
    nobody = {"kafka.bootstrap.servers": "127.0.0.1:9", "kafka.default.api.timeout.ms": "1000"}
    with pytest.raises(StreamingQueryException, match=r"no Kafka broker answered at 127\.0\.0\.1:9 within 1000 ms"):
        run(load("t", nobody))


def test_a_record_without_event_time_can_fail_the_query_and_is_named(kafka, topic_of, load, run):
    topic = topic_of()
    produce(kafka.bootstrap, topic, [Record(0, NO_TIMESTAMP)])
    with pytest.raises(StreamingQueryException, match=f"{topic}-0: the record at offset 0 has no usable event time"):
        run(load(topic, onBadEventTime="fail"))
    (row,) = run(load(topic).where("control IS NULL")).rows
    assert row["event_time"] is None


class Checkpointed:
    """A stream into a Delta table under one checkpoint, run again and again."""

    def __init__(self, home: Path) -> None:
        self.checkpoint, self.table = home / "checkpoint", home / "table"

    def run(self, frame, **trigger: bool) -> None:
        writer = frame.writeStream.format("keyedwm").option("path", str(self.table))
        query = writer.option("checkpointLocation", str(self.checkpoint)).trigger(**trigger).start()
        try:
            query.awaitTermination()
        finally:
            query.stop()

    def values(self) -> list[bytes]:
        from deltalake import DeltaTable

        return sorted(DeltaTable(self.table).to_pyarrow_table(columns=["value"]).column("value").to_pylist())

    def offsets(self) -> list[Path]:
        return sorted(
            (p for p in (self.checkpoint / "offsets").iterdir() if p.name.isdigit()), key=lambda p: int(p.name)
        )

    def digests(self) -> dict[str, str]:
        files = (p for p in (*self.checkpoint.rglob("*"), *self.table.rglob("*")) if p.is_file())
        return {str(p): hashlib.sha256(p.read_bytes()).hexdigest() for p in files}


@pytest.fixture
def kept(tmp_path) -> Checkpointed:
    return Checkpointed(tmp_path)


def test_a_newer_checkpoint_is_refused_and_nothing_is_touched(kafka, topic_of, load, kept):
    topic = topic_of()
    produce(kafka.bootstrap, topic, [Record(0, 10, b"a")])
    kept.run(load(topic), availableNow=True)
    for path in kept.offsets():
        *head, offset = path.read_text().splitlines()
        path.write_text("\n".join([*head, json.dumps({**json.loads(offset), "version": OFFSET_VERSION + 1})]))
        path.with_name(f".{path.name}.crc").unlink()
    produce(kafka.bootstrap, topic, [Record(0, 20, b"b")])
    group = cluster_at(kafka.bootstrap).fetch_offsets(json.loads(offset)["group"], [(topic, 0)])
    before = kept.digests()
    told = f"offset has version {OFFSET_VERSION + 1}; this keyedwm reads versions 3 to {OFFSET_VERSION}"
    with pytest.raises(StreamingQueryException, match=told):
        kept.run(load(topic), availableNow=True)
    assert kept.digests() == before
    assert cluster_at(kafka.bootstrap).fetch_offsets(json.loads(offset)["group"], [(topic, 0)]) == group


def test_available_now_reads_all_there_is_in_bites_and_ends_with_one_control_batch(kafka, topic_of, load, run):
    topic = topic_of(2)
    produce(kafka.bootstrap, topic, [Record(p, 10 + n) for p in range(2) for n in range(6)])
    ran = run(
        load(topic, maxOffsetsPerTrigger="4").select("offset", "control.kind", "control.watermark", "control.channel")
    )
    assert sum(row["kind"] is None for row in ran.rows) == 12
    coalesced = [row["watermark"] for row in ran.rows if row["kind"] == "watermark" and row["channel"] is None]
    assert coalesced[-1] == at(15).replace(tzinfo=None)
    assert ran.batches == 4


def test_once_reads_everything_in_one_batch_whatever_the_limit(kafka, topic_of, load, run):
    topic = topic_of(2)
    produce(kafka.bootstrap, topic, [Record(p, 10 + n) for p in range(2) for n in range(6)])
    ran = run(load(topic, maxOffsetsPerTrigger="4"), once=True)
    assert (ran.batches, sum(row["control"] is None for row in ran.rows)) == (1, 12)


def test_a_restart_goes_on_where_the_checkpoint_stands_whatever_the_options_say(kafka, topic_of, load, kept):
    topic = topic_of()
    produce(kafka.bootstrap, topic, [Record(0, 10, b"a")])
    kept.run(load(topic), availableNow=True)
    produce(kafka.bootstrap, topic, [Record(0, 20, b"b")])
    kept.run(load(topic, startingOffsets="latest"), availableNow=True)
    assert kept.values() == [b"a", b"b"]


def test_a_batch_whose_commit_was_lost_is_read_again_row_by_row(kafka, topic_of, load, kept):
    topic = topic_of(2)
    seen: dict[int, list[list]] = {}

    def note(frame, batch: int) -> None:
        seen.setdefault(batch, []).append([row.asDict(recursive=True) for row in frame.collect()])

    def to_the_end() -> None:
        writer = load(topic, maxOffsetsPerTrigger="6").writeStream.foreachBatch(note)
        writer.option("checkpointLocation", str(kept.checkpoint)).trigger(availableNow=True).start().awaitTermination()

    produce(kafka.bootstrap, topic, [Record(p, 10 + n, b"%d" % n) for p in range(2) for n in range(6)])
    to_the_end()
    last = max(seen)
    # As if the driver had died in the batch before the last: it is planned, and nothing is committed.
    for name in (f"commits/{last - 1}", f"commits/{last}", f"offsets/{last}"):
        path = kept.checkpoint / name
        path.unlink()
        path.with_name(f".{path.name}.crc").unlink()
    # What came meanwhile belongs to later batches.
    produce(kafka.bootstrap, topic, [Record(p, 100, b"later") for p in range(2)])
    to_the_end()
    first, again = seen[last - 1]
    assert again == first
    assert any(row["control"] is None for row in first)
    assert b"later" in {row["value"] for batch in range(last, max(seen) + 1) for row in seen[batch][-1]}
