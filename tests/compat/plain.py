"""State at rest without Kafka and Spark: what is written to files, and what the present code makes of it.

`python -m tests.compat.plain VERSION` records it once, when a version is cut, beside what `record` does.
"""

from __future__ import annotations

import gzip
import json
import sys
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from keyedwm.core.axis import AxisConfig, AxisState, Counts, PropagatedState
from keyedwm.core.coalescer import CommonState
from keyedwm.core.encoding import CommittedState, decode_committed, encode_committed
from keyedwm.core.idleness import Idleness
from keyedwm.core.inline import Upstream, UpstreamBarrier, decode_cut, encode_cut
from keyedwm.core.policy import FixedLag, LagAndDelay, LagAndLull, NoWatermarks, RealTimeLag, TimestampAndWallClockLag
from keyedwm.core.rows import ROW_FORMAT_VERSION
from keyedwm.core.throttle import ThrottleByBatch
from keyedwm.core.watermark import Guarantee, Status
from keyedwm.core.window_rules import LatePolicy, LateRule, Touching
from keyedwm.kafka.client.values import TopicPartition
from keyedwm.kafka.requests.transactions import Transaction
from keyedwm.operators.aggregates import functions as agg
from keyedwm.operators.frames.plan import SessionWindow, SlidingWindow, WindowPlan
from keyedwm.operators.panes import Early
from keyedwm.operators.state.store import MemoryStore
from keyedwm.savepoint_files import Files, OperatorState, Savepoint, read_savepoint, write_savepoint
from keyedwm.spark.hosting.bucket_batch import BucketManifest
from pyspark_wm_sink.batch.record import ChannelRecord, Record
from pyspark_wm_sink.iceberg import table as iceberg
from pyspark_wm_sink.kafka.ledger import Entry, Ledger, RunHistory
from pyspark_wm_source.driver.plan import BrokerAnswers, Rules, plan
from pyspark_wm_source.values.offsets import Channel, CutLimits, QueryOffset, RetiredChannel
from pyspark_wm_source.values.ranges import RangeResult
from tests.compat import operators
from tests.spark.test_bucket_batch import SCHEMA, Pipeline, staged, steps

FIXTURES = Path(__file__).parent / "fixtures"
PLACE = "group-1 t-0 40 settings"
KEY = bytes(range(32))
POLICIES = (
    FixedLag(5), LagAndDelay(5, 10), LagAndLull(5, 100), TimestampAndWallClockLag(5, 7), RealTimeLag(9), NoWatermarks(),
)  # fmt: skip
AXES = tuple(AxisConfig(key, policy, ThrottleByBatch()) for key, policy in enumerate(POLICIES))
SAVED_STEPS = 6  # of the batches of `steps`, as many are in the fixture
AGGREGATES = (
    ("rows", agg.count()), ("values", agg.count("v")), ("total", agg.sum("v")), ("mean", agg.avg("v")),
    ("low", agg.min("v")), ("high", agg.max("v")), ("first", agg.first("v")), ("last", agg.last("v")),
    ("all", agg.collect("v")), ("distinct", agg.approx_count_distinct("v")),
)  # fmt: skip


def _plan(window: SlidingWindow | SessionWindow, **how: Any) -> WindowPlan:
    return WindowPlan(schema=SCHEMA, by=("k",), window=window, aggregates=AGGREGATES, time="__time", **how)


PLANS: Mapping[str, WindowPlan] = {
    "tumbling": _plan(SlidingWindow(6_000, 6_000)),
    "panes": _plan(SlidingWindow(6_000, 6_000), early=Early(rows=3), lateness_ms=4_000, late=LatePolicy.EMIT),
    "sliding": _plan(SlidingWindow(6_000, 2_000, 500), late_rule=LateRule.FRAME),
    "discarding": _plan(SlidingWindow(6_000, 2_000), lateness_ms=4_000, accumulating=False),
    "sessions": _plan(SessionWindow(700)),
    "session-panes": _plan(
        SessionWindow(700, Touching.SEPARATE), early=Early(rows=2), lateness_ms=2_000, late=LatePolicy.EMIT
    ),
}


def axis_states() -> dict[int, AxisState]:
    """A state of every policy, as some events leave it."""
    states = {}
    for axis in AXES:
        run = axis.policy.build()
        for event_ms, now_ms in ((100, 1_000), (140, 1_020), (120, 1_030)):
            run.observe(event_ms, now_ms)
        states[axis.key] = AxisState(run.snapshot(), run.current(1_030))
    return states


def start_offset() -> QueryOffset:
    """An offset with everything in it."""
    tps = [TopicPartition("t", number) for number in range(3)]
    common = CommonState(emitted={0: 90}, top={0: 135}, history={0: ((1_000, 95), (1_020, 135))}, ignored=1)
    counts = Counts(1, 2, 3)
    return QueryOffset(
        batch=4, group="group-1", state_key=KEY.hex(), now_ms=1_030, coalesced=common, settings="settings",
        limits=CutLimits(least_tasks=2, most_records=100), topic_ids={"t": "3f0b2b0e-0000-4000-8000-000000000001"},
        channels={
            tps[0]: Channel(
                next_offset=40, read=10, status=Status.ACTIVE, since_ms=1_030, counts=counts, axes=axis_states(),
            ),
            tps[1]: Channel(
                next_offset=7, read=0, status=Status.IDLE, since_ms=500, counts=counts, announced=(0,),
                axes={0: AxisState((95,), 95)},
            ),
        },
        retired={tps[2]: RetiredChannel(missed_ms=900, next_offset=12, counts=counts, axes={0: AxisState((80,), 80)})},
    )  # fmt: skip


def next_offset(start: QueryOffset, after: CommittedState) -> dict[str, Any]:
    """What is planned on top of an offset and the state that its task committed."""
    tps = [TopicPartition("t", number) for number in range(3)]
    answers = BrokerAnswers(
        ends={tps[0]: 55, tps[1]: 7, tps[2]: 20}, begins={tps[2]: 12}, requested_ms=2_000, now_ms=2_010,
        topic_ids=start.topic_ids,
    )  # fmt: skip
    # No axis is asked by the clock: channel 1 is idle, and 0.2.0, which made the fixture, let it stand still.
    rules = Rules(
        guarantee=Guarantee.EXACTLY_ONCE, idleness=Idleness(60_000), max_offsets=10, retention_ms=400, axes=AXES,
        limits=start.limits, settings=start.settings,
    )  # fmt: skip
    read = {tps[0]: RangeResult(next_offset=40, counts=after.counts, axes=after.axes)}
    return plan(start, read, answers, rules).to_json()


def committed() -> CommittedState:
    """What a task left."""
    states = {key: AxisState(state.policy, (state.emitted_ms or 90) + 10) for key, state in axis_states().items()}
    return CommittedState(snapshot_id=4, counts=Counts(2, 3, 4), axes=states)


def propagated() -> CommittedState:
    """What a task left of a channel whose watermarks are propagated."""
    state = PropagatedState(query=123_456_789, snapshot=3, repeated=2, idle=True)
    return CommittedState(snapshot_id=4, counts=Counts(), axes={0: AxisState(state, 77)})


def record() -> Record:
    """A published batch."""
    channels = {
        "t-0": ChannelRecord(snapshot=4, offset=40, watermarks={0: 90, 1: 80}),
        "t-1": ChannelRecord(snapshot=4, offset=7, idle=True),
    }
    return Record(
        query="query-1", run="run-1", batch=4, attempt="attempt-1", snapshot=4, rows=10, ignored=1, tops="0f" * 16,
        channels=channels, coalesced={0: 90},
    )  # fmt: skip


def upstream_barrier() -> UpstreamBarrier:
    """A barrier in a topic."""
    upstream = {"t-0": Upstream(offset=40, watermarks={0: 90}), "t-1": Upstream(offset=7, idle=True)}
    return UpstreamBarrier(query="query-1", snapshot=4, channels=upstream)


def write_ledger(directory: Path) -> None:
    """A published and a decided batch, and who wrote them."""
    ledger = Ledger(directory)
    with ledger.locked():
        ledger.write_run_history(RunHistory(query="query-1", runs=("run-0", "run-1"), fence=Transaction("fence", 7, 2)))
        entry = Entry(
            batch=4, record=record(), transactions=(Transaction("query-1-4-0", 8, 0), Transaction("query-1-4-1", 9, 0)),
            control=(Transaction("query-1-4-control", 10, 0),),
        )  # fmt: skip
        ledger.decide(entry)
        ledger.mark_published(entry)
        ledger.decide(Entry(batch=5, record=record(), transactions=(Transaction("query-1-5-0", 11, 0),)))
    (directory / "lock").unlink()


def read_ledger(directory: Path) -> dict[str, Any]:
    """Everything a ledger says."""
    ledger = Ledger(directory)
    history = ledger.run_history()
    assert history is not None
    return _plain_json({"entries": [asdict(one) for one in ledger.entries(10)], "history": asdict(history)})


def save_buckets(name: str) -> dict[str, Any]:
    """Two buckets after some batches, the batches to come, and what they give."""
    pipeline, batches = Pipeline(PLANS[name], 2), steps(f"compat {name}")
    for tasks in batches[:SAVED_STEPS]:
        pipeline.batch([staged(rows) for rows in tasks])
    buckets = {}
    for bucket, (note, store) in pipeline.state.items():
        texts = {blob: b64encode(data).decode() for blob, data in store.blobs.items()}
        buckets[str(bucket)] = {"note": json.loads(json.dumps(note.as_json())), "blobs": texts}
    saved = {"row_format": ROW_FORMAT_VERSION, "buckets": buckets, "batches": batches[SAVED_STEPS:]}
    return {**saved, "expected": continue_buckets(name, saved)}


def continue_buckets(name: str, saved: Mapping[str, Any]) -> list[list[str]]:
    """What the batches to come give on top of the saved buckets; rows of a batch in any order."""
    pipeline = Pipeline(PLANS[name], 2)
    for bucket, state in saved["buckets"].items():
        blobs = {blob: b64decode(text) for blob, text in state["blobs"].items()}
        pipeline.state[int(bucket)] = BucketManifest.from_json(state["note"]), MemoryStore(blobs)
    results = [pipeline.batch([staged(rows) for rows in tasks]) for tasks in saved["batches"]]
    row_of = _row_1 if saved.get("row_format", 1) == 1 else dict
    return [sorted(json.dumps(row_of(row), default=str, sort_keys=True) for row in rows) for rows in results]


def _row_1(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row as format version 1 had it, in which control rows named no source."""
    control = row["control"] and {name: value for name, value in row["control"].items() if name != "source"}
    return {**row, "control": control}


def _plain_json(value: Any) -> Any:
    """As JSON has it, without fields that say nothing: a later version may have more of those."""
    if isinstance(value, dict):
        return {str(name): _plain_json(inner) for name, inner in value.items() if inner is not None}
    return (
        [_plain_json(inner) for inner in value] if isinstance(value, (list, tuple)) else json.loads(json.dumps(value))
    )


def _as_version_3(offset: dict[str, Any]) -> dict[str, Any]:
    """What version 3 of the offset had to say, without its number: leader epochs and resets came later."""
    version_3 = json.loads(json.dumps(offset))
    for entry in (entry for of_topic in version_3["channels"].values() for entry in of_topic.values()):
        del entry[6]
    for entry in (entry for of_topic in version_3["retired"].values() for entry in of_topic.values()):
        del entry[5]
    return {name: value for name, value in version_3.items() if name not in ("version", "resets")}


def savepoint() -> Savepoint:
    """A savepoint of one operator of two buckets."""
    manifest = {
        "inbox": {"of_source": {"source-1": ["t-", [0, 1]]}}, "blobs": {"note": 3, "frame-0": 9}, "emitted_ms": 90,
        "snapshot": 4,
    }  # fmt: skip
    operator = OperatorState(
        name="hours", axis=0, digest="digest", description=PLANS["tumbling"].description(), manifests=[manifest] * 2,
        states=[{"version": 3, "plan": "digest", "rows": {"frame-0": 2}, "watermark_ms": 90}] * 2,
    )  # fmt: skip
    return Savepoint(
        place="", checkpoint="/a/checkpoint", batch=4, sources=[start_offset().to_json()], operators={"hours": operator}
    )


def read_back(directory: Path) -> dict[str, Any]:
    """Everything that a savepoint says of its query."""
    return _plain_json({**asdict(read_savepoint("continue_from", str(directory))), "place": ""})


def later_texts() -> dict[str, Any]:
    """What 0.2.0 did not write: counts of times too far ahead, long records, the property of an Iceberg table."""
    channels = {
        f"topic-of-many-partitions-{n}": ChannelRecord(snapshot=4, offset=n, watermarks={0: n}) for n in range(200)
    }
    future = replace(committed(), counts=Counts(2, 3, 4, 5))
    start = start_offset()
    tps = {tp: replace(of, counts=Counts(1, 2, 3, 4)) for tp, of in start.channels.items()}
    return {
        "committed_future": encode_committed(future, KEY, PLACE),
        "offset_future": replace(start, channels=tps).to_json(),
        "long_record": replace(record(), channels=channels).to_json(),
        "property": iceberg._property_text(record().to_json(), 7, 3),
    }


def read_later_texts(texts: Mapping[str, Any]) -> dict[str, Any]:
    """What those texts say."""
    state = decode_committed(texts["committed_future"], KEY, PLACE)
    return _plain_json({
        "committed_future": {name: count for name, count in asdict(state.counts).items() if name != "bad_values"},
        "offset_future": QueryOffset.from_json(texts["offset_future"]).to_json(),
        "long_record": asdict(Record.from_json(texts["long_record"])),
        "property": asdict(iceberg._read(texts["property"])[0]),
    })  # fmt: skip


def source_texts() -> dict[str, Any]:
    """What the source and the sink write as text."""
    return {
        "offset": start_offset().to_json(),
        "committed": encode_committed(committed(), KEY, PLACE),
        "propagated": encode_committed(propagated(), KEY, PLACE),
        "record": record().to_json(),
        "barrier": encode_cut(upstream_barrier()).decode(),
    }


def read_texts(texts: Mapping[str, Any]) -> dict[str, Any]:
    """What those texts say, and what is planned on top of them."""
    state = decode_committed(texts["committed"], KEY, PLACE)
    barrier = decode_cut(b"1", texts["barrier"].encode(), "the fixture")
    assert barrier is not None
    offset = QueryOffset.from_json(texts["offset"])
    planned = next_offset(offset, state)
    contents = {
        "committed": {str(key): axis.as_list() for key, axis in state.axes.items()},
        "counts": {name: count for name, count in asdict(state.counts).items() if name in ("bad", "late", "control")},
        "propagated": decode_committed(texts["propagated"], KEY, PLACE).axes[0].as_list(),
        "record": asdict(Record.from_json(texts["record"])),
        "barrier": asdict(barrier),
        "promise": barrier.promise(),
        "planned": _as_version_3(planned) if texts["offset"]["version"] == 3 else planned,
    }
    return _plain_json(contents)


def main(version: str) -> None:
    """Write the fixtures of a version."""
    home = FIXTURES / version / "plain"
    home.mkdir(parents=True)
    texts = source_texts()
    _write(home / "texts.json", {"texts": texts, "expected": read_texts(texts)})
    write_ledger(home / "ledger")
    _write(home / "ledger.json", read_ledger(home / "ledger"))
    later = later_texts()
    _write(home / "later_texts.json", {"texts": later, "expected": read_later_texts(later)})
    write_savepoint(Files(str(home / "savepoint")), savepoint())
    _write(home / "savepoint.json", read_back(home / "savepoint"))
    for name in PLANS:
        _write_compressed(home / f"buckets-{name}.json.gz", save_buckets(name))
    for name in operators.PLANS:
        _write_compressed(home / f"operator-{name}.json.gz", operators.save_operator(name))


def _write_compressed(path: Path, value: object) -> None:
    path.write_bytes(gzip.compress(json.dumps(value, sort_keys=True).encode(), mtime=0))


def _write(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, indent=0, sort_keys=True) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
