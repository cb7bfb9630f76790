"""From a listener's events to samples."""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql.streaming.listener import StreamingQueryProgress

from keyedwm.core.axis import Counts
from keyedwm.spark.metrics import catalogue as of
from keyedwm.spark.metrics.batch_figures import SourceFigures
from keyedwm.spark.metrics.catalogue import METRICS, Kind, Unit
from tests.metrics.told import RUN, Told, value, values
from tests.source.plans import Simulation, tp

QUERY = ("orders",)
SOURCE = ("orders", "0")
KEY = ("orders", "0", "0")


def test_the_delay_of_the_watermark_grows_while_nothing_comes(figures, clock):
    told = Told(Simulation({0: [500_000, 600_000], 1: [700_000]}))
    figures.progressed(told.progress())
    assert values(figures, of.WATERMARK) == {}  # that of a batch is known when it is planned, and this is the first
    told.simulation.logs[1].append(710_000)
    figures.progressed(told.progress())
    assert value(figures, of.WATERMARK, *KEY) == 600
    assert value(figures, of.WATERMARK_DELAY, *KEY) == 400
    clock.now_s += 50
    assert value(figures, of.WATERMARK_DELAY, *KEY) == 450
    assert value(figures, of.WATERMARK_CHANGED, *KEY) == 1_000


def test_the_slowest_partitions_are_shown_and_no_more_than_asked_for(figures):
    told = Told(Simulation({p: [100_000 * p] for p in range(1, 6)}))
    figures.progressed(told.progress())
    for p in range(1, 6):
        told.simulation.logs[p] += [100_000 * p + 1] * p
    figures.progressed(told.progress(ends={p: 10 * p for p in range(1, 6)}))
    assert values(figures, of.PARTITION_DELAY) == {
        (*KEY, "t", "1"): 900, (*KEY, "t", "2"): 800,
    }  # fmt: skip
    # Of partition 5, 1 + 5 records are read of 50.
    assert values(figures, of.PARTITION_BACKLOG) == {(*SOURCE, "t", "5"): 44, (*SOURCE, "t", "4"): 35}
    assert value(figures, of.BACKLOG, *SOURCE) == sum(10 * p - 1 - p for p in range(1, 6))
    assert value(figures, of.WATERMARK_SKEW, *KEY) == 400
    assert values(figures, of.PARTITIONS) == {(*SOURCE, "active"): 5, (*SOURCE, "idle"): 0}


def test_an_idle_partition_is_counted_and_holds_nothing(figures):
    simulation = Simulation({0: [1_000], 1: [2_000]}, idle_timeout_ms=1_000)
    told = Told(simulation)
    figures.progressed(told.progress())
    simulation.now_ms = 5_000
    simulation.logs[1].append(9_000)
    figures.progressed(told.progress())
    assert values(figures, of.PARTITIONS) == {(*SOURCE, "active"): 1, (*SOURCE, "idle"): 1}
    assert values(figures, of.HOLDERS) == {(*KEY, "backlog"): 1}
    assert [labels[-1] for labels in values(figures, of.PARTITION_DELAY)] == ["1"]


def test_the_cause_says_why_partitions_hold_the_watermark(figures):
    told = Told(Simulation({0: [1_000], 1: [], 2: []}, idle_timeout_ms=None))
    figures.progressed(told.progress())
    assert values(figures, of.HOLDERS) == {(*KEY, "backlog"): 1, (*KEY, "no record ever"): 2}


def test_records_and_snapshots_count_a_batch_once(figures):
    told = Told(Simulation({0: [1_000, 2_000]}))
    figures.progressed(told.progress())
    told.simulation.logs[0].append(3_000)
    last = told.progress()
    for _ in range(3):  # Spark tells progress also where only another source of the query had news
        figures.progressed(last)
    assert value(figures, of.RECORDS, *SOURCE) == 3
    assert value(figures, of.BATCH_RECORDS, *SOURCE) == 1
    assert value(figures, of.SNAPSHOTS, *SOURCE) == 2
    assert value(figures, of.SNAPSHOT_ID, *SOURCE) == 1
    assert value(figures, of.BATCHES, *QUERY) == 4
    assert value(figures, of.INPUT_ROWS, *QUERY) == 28
    assert value(figures, of.PHASES, *QUERY, "add_batch") == 4
    assert value(figures, of.BATCH_DURATION, *QUERY) == 1.5


def test_a_batch_that_a_restart_runs_again_counts_without_having_been_planned(figures):
    figures.progressed(Told(Simulation({0: [1_000, 2_000]})).progress(is_again=True))
    assert value(figures, of.RECORDS, *SOURCE) == 2
    assert value(figures, of.SNAPSHOT_ID, *SOURCE) == 0


def test_the_watermark_of_a_batch_that_a_restart_runs_again_is_shown(figures, clock):
    """Its planning is in the offset log alone, so log ends are not known: no backlog is shown, and no cause."""
    told = Told(Simulation({0: [500_000, 600_000], 1: [700_000]}, idle_timeout_ms=1_000))
    told.progress()
    told.simulation.now_ms += 5_000
    told.simulation.logs[0].append(710_000)
    figures.progressed(told.progress(is_again=True))
    assert value(figures, of.WATERMARK, *KEY) == 600
    assert value(figures, of.WATERMARK_DELAY, *KEY) == 400
    assert values(figures, of.PARTITIONS) == {(*SOURCE, "active"): 1, (*SOURCE, "idle"): 1}
    assert values(figures, of.HOLDERS) == {(*KEY, "log ends not asked for"): 1}
    assert values(figures, of.BACKLOG) == {}


def test_the_committed_batch_is_shown_from_the_start_on_and_counts_nothing(figures, clock):
    told = Told(Simulation({0: [600_000]}))
    told.progress()
    told.simulation.logs[0].append(710_000)
    told.progress()
    committed = {0: SourceFigures.of_log(told.simulation.offset)}
    figures.started(told.id, told.run, told.name)
    figures.resumed(told.id, "the run before", committed)
    assert values(figures, of.WATERMARK) == {}
    figures.resumed(told.id, told.run, committed)
    assert value(figures, of.WATERMARK_DELAY, *KEY) == 400
    assert values(figures, of.RECORDS) == values(figures, of.SNAPSHOTS) == {}
    told.simulation.logs[0].append(720_000)
    figures.progressed(told.progress())
    figures.resumed(told.id, told.run, committed)  # a slow store: the batch is newer
    assert value(figures, of.WATERMARK, *KEY) == 710


def test_late_and_unreadable_events_are_those_since_the_query_began(figures):
    simulation = Simulation({0: [1_000, None, None]})
    told = Told(simulation)
    figures.progressed(told.progress())
    assert value(figures, of.UNREADABLE, *SOURCE) == 0
    simulation.logs[0].append(2_000)
    figures.progressed(told.progress())
    assert value(figures, of.UNREADABLE, *SOURCE) == 2
    assert value(figures, of.LATE, *SOURCE) == 0


def test_bad_values_are_those_since_the_query_began_by_reason(figures):
    told = Told(Simulation({0: [1_000], 1: [1_000]}))
    figures.progressed(told.progress())
    assert values(figures, of.BAD_VALUES) == {}
    channels = told.simulation.offset.channels
    counts = {tp(0): ((2, 3), (7, 1)), tp(1): ((7, 4),)}
    bad = {place: replace(one, counts=Counts(bad_values=counts[place])) for place, one in channels.items()}
    told.simulation.offset = replace(told.simulation.offset, channels=bad)
    told.simulation.logs[0].append(2_000)
    figures.progressed(told.progress())
    assert values(figures, of.BAD_VALUES) == {(*SOURCE, "no_head"): 3, (*SOURCE, "cut"): 5}


def test_counts_of_operators_add_up_and_sizes_are_those_of_the_last_batch(figures):
    told = Told(Simulation({0: [1_000]}))
    row = {"late_rows": 2, "null_event_time_rows": 1, "frames": 5, "state_bytes": 70, "largest_bucket_bytes": 60}
    figures.progressed(told.progress(observed={"visits": row}))
    without = dict.fromkeys(row)  # a batch without any bucket
    figures.progressed(told.progress(observed={"visits": without}))
    figures.progressed(told.progress(observed={"visits": row | {"frames": 3}, "of_the_user": {"rows": 9}}))
    assert values(figures, of.OPERATOR_LATE) == {("orders", "visits"): 4}
    assert values(figures, of.OPEN_WINDOWS) == {("orders", "visits"): 3}
    assert values(figures, of.STATE_BYTES) == {("orders", "visits"): 70}


def test_keys_with_watermarks_of_their_own_are_counted_and_none_is_named(figures):
    row = {
        "late_rows": 0, "state_bytes": 70, "largest_bucket_bytes": 60, "keys_held": 9, "keys_behind": 4,
        "keys_forgotten": 2, "keys_behind_ms_p50": 0, "keys_behind_ms_p90": 1_500, "keys_behind_ms_p99": 9_000,
        "slowest_keys": [{"key": "k7", "behind_ms": 9_000}], "dropped_keys": [],
    }  # fmt: skip
    told = Told(Simulation({0: [1_000]}))
    for _ in range(2):
        figures.progressed(told.progress(observed={"visits": row}))
    assert value(figures, of.KEYS, "orders", "visits") == 9
    assert value(figures, of.KEYS_BEHIND, "orders", "visits") == 4
    assert value(figures, of.FORGOTTEN_KEYS, "orders", "visits") == 4
    delays = {labels[-1]: seconds for labels, seconds in values(figures, of.KEY_DELAY).items()}
    assert delays == {"0.5": 0, "0.9": 1.5, "0.99": 9}
    assert "k7" not in str(figures.samples())


def test_operators_of_spark_tell_dropped_rows_and_state(figures):
    told = Told(Simulation({0: [1_000]}))
    operator = {
        "operatorName": "stateStoreSave", "numRowsTotal": 9, "numRowsUpdated": 1, "numRowsRemoved": 0,
        "allUpdatesTimeMs": 1, "allRemovalsTimeMs": 1, "commitTimeMs": 1, "memoryUsedBytes": 400,
        "numRowsDroppedByWatermark": 3, "numShufflePartitions": 2, "numStateStoreInstances": 2, "customMetrics": {},
    }  # fmt: skip
    for _ in range(2):
        figures.progressed(told.progress(operators=[operator]))
    labels = ("orders", "0:stateStoreSave")
    assert value(figures, of.SPARK_LATE, *labels) == 6
    assert value(figures, of.SPARK_ROWS, *labels) == 9
    assert value(figures, of.SPARK_BYTES, *labels) == 400


def test_two_queries_have_series_of_their_own_and_one_without_a_name_goes_by_its_id(figures):
    figures.progressed(Told(Simulation({0: [1_000]})).progress())
    other = Told(Simulation({0: [1_000]}), name=None, id=RUN)
    figures.progressed(other.progress())
    assert values(figures, of.SNAPSHOTS) == {SOURCE: 1, (RUN, "0"): 1}


def test_a_query_without_a_source_of_ours_tells_its_batches_alone(figures):
    progress = Told(Simulation({0: [1_000]})).progress()
    progress.sources[0]._endOffset = progress.sources[0]._startOffset = '{"t": 5}'
    progress.sources[0]._latestOffset = "7"
    figures.progressed(StreamingQueryProgress.fromJson(dict(progress._jdict) | {"sources": [
        {**progress._jdict["sources"][0], "startOffset": "5", "endOffset": "6", "latestOffset": "not json"}
    ]}))  # fmt: skip
    assert value(figures, of.BATCHES, *QUERY) == 1
    assert {sample.metric for sample in figures.samples() if "source" in sample.metric.labels} == set()


def test_a_query_that_ended_keeps_its_figures_and_its_delay_stands_still(figures, clock):
    told = Told(Simulation({0: [600_000]}))
    figures.progressed(told.progress())
    told.simulation.logs[0].append(700_000)
    figures.progressed(told.progress())
    clock.now_s += 10
    figures.terminated(told.id, told.run, failed=True)
    clock.now_s += 1_000
    assert value(figures, of.QUERY_ACTIVE, *QUERY) == 0
    assert value(figures, of.QUERY_FAILURES, *QUERY) == 1
    assert value(figures, of.WATERMARK_DELAY, *KEY) == 410


def test_a_query_that_starts_again_goes_on_counting_and_another_one_of_its_name_does_not(figures):
    told = Told(Simulation({0: [1_000]}))
    figures.progressed(told.progress())
    figures.started(told.id, "another run", told.name)
    told.simulation.logs[0].append(2_000)
    figures.progressed(told.progress())  # Spark tells the last batch and the end of a run later than the next start
    figures.terminated(told.id, told.run, failed=True)
    assert value(figures, of.QUERY_ACTIVE, *QUERY) == 1
    assert value(figures, of.QUERY_FAILURES, *QUERY) == 1
    assert value(figures, of.RECORDS, *SOURCE) == 2
    figures.started("another query", "its run", told.name)
    assert value(figures, of.QUERY_FAILURES, *QUERY) == 0
    assert values(figures, of.RECORDS) == {}


def test_operators_that_a_restart_left_out_are_forgotten(figures):
    told = Told(Simulation({0: [1_000]}))
    row = {"late_rows": 2, "state_bytes": 70, "largest_bucket_bytes": 60}
    for run in ("first", "second", "third"):
        figures.started(told.id, run, told.name)
        told.simulation.logs[0].append(2_000)
        figures.progressed(told.progress(observed={run: row, "kept": row}))
    assert values(figures, of.STATE_BYTES) == {("orders", "third"): 70, ("orders", "kept"): 70}
    assert values(figures, of.OPERATOR_LATE) == {
        ("orders", "second"): 2, ("orders", "third"): 2, ("orders", "kept"): 6,
    }  # fmt: skip


def test_two_sessions_may_name_their_queries_alike(figures):
    one, other = Told(Simulation({0: [1_000]})), Told(Simulation({0: [1_000, 2_000]}), id=RUN)
    for told, session in ((one, 1), (other, 2), (one, 1), (other, 2)):
        told.simulation.logs[0].append(3_000)
        figures.progressed(told.progress(), session)
    assert values(figures, of.RECORDS) == {SOURCE: 3, (f"orders {RUN}", "0"): 4}
    figures.terminated(one.id, one.run, failed=False)
    assert values(figures, of.QUERY_ACTIVE) == {QUERY: 0, (f"orders {RUN}",): 1}


def test_an_idle_query_gives_a_sign_of_life(figures, clock):
    told = Told(Simulation({0: [1_000]}))
    figures.progressed(told.progress())
    clock.now_s += 60
    figures.idle(told.id, "another run")
    assert value(figures, of.LAST_EVENT, *QUERY) == 1_000
    figures.idle(told.id, told.run)
    assert value(figures, of.LAST_EVENT, *QUERY) == 1_060


def test_queries_that_ended_long_ago_are_forgotten(figures):
    for number in range(50):
        figures.started(str(number), "run", None)
        if number != 7:
            figures.terminated(str(number), "run", failed=False)
    active = values(figures, of.QUERY_ACTIVE)
    assert len(active) == 21
    assert active[("7",)] == 1
    assert ("49",) in active


def test_names_follow_the_conventions_of_prometheus():
    names = [metric.prometheus for metric in METRICS]
    assert len(set(names)) == len(names) > 40
    for metric in METRICS:
        assert metric.prometheus.startswith("keyedwm_")
        assert metric.prometheus.endswith("_total") == (metric.kind is Kind.COUNTER)
        assert ("_seconds" in metric.prometheus) == (metric.unit is Unit.SECONDS)
        assert ("_bytes" in metric.prometheus) == (metric.unit is Unit.BYTES)
        assert metric.help.endswith(".")
