"""`keyedwm advise`: what each lag would have cost, against a model, a year of flights, and a real topic."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from examples.demo.flights import data_file
from keyedwm.cli.advise.advice import ONE, PER_PARTITION, advice_of
from keyedwm.cli.advise.losses import (
    HOUR_MS,
    LAGS_MS,
    MINUTE_MS,
    NEVER,
    Flow,
    Losses,
    arrivals,
    highest_before,
    late_with_idleness,
    silences,
)
from keyedwm.cli.advise.read import Sample, TimeFate, newest
from keyedwm.cli.advise.report import AdviceRequest, _span, as_json, show
from keyedwm.cli.main import main
from keyedwm.cli.printable import PlainConsole
from keyedwm.config.validation import duration_ms
from keyedwm.core.errors import InputError
from keyedwm.core.places import Unit
from keyedwm.kafka.client.values import TopicPartition
from pyspark_wm_source.values.offsets import QueryOffset
from tests.tools import NO_TIMESTAMP, Record, produce

VECTOR = json.loads((Path(__file__).parents[1] / "vectors" / "windows" / "keyed-watermark-flights.json").read_text())
NOW_MS = 1_700_000_000_000
SECOND_MS = 1_000


def losses_of(event, group, window_ms=HOUR_MS):
    event, group = np.asarray(event, np.int64), np.asarray(group, np.int64)
    return Losses.of(event, highest_before(event, group), np.ones(len(event), bool), window_ms)


def model(event, group, lag, window_ms):
    """Late and dropped rows, row by row."""
    highest, late, dropped_count = {}, 0, 0
    for time, one in zip(event, group, strict=True):
        if one in highest:
            mark = highest[one] - lag
            late += time < mark
            dropped_count += time - time % window_ms + window_ms <= mark
        highest[one] = max(highest.get(one, time), time)
    return late, dropped_count


@pytest.mark.parametrize("case", range(30))
def test_late_and_dropped_rows_are_those_of_a_loop(case, seed):
    chance = np.random.default_rng((seed, case))
    event = np.cumsum(chance.integers(-40, 50, 200)) - int(chance.integers(0, 500))
    group = chance.integers(0, int(chance.integers(1, 12)), 200)
    losses = losses_of(event, group, window_ms=25)
    for lag in (0, 1, 5, 24, 25, 60, 400):
        assert (losses.late(lag), losses.dropped_count(lag)) == model(event.tolist(), group.tolist(), lag, 25), (
            f"seed {seed}"
        )


@pytest.mark.parametrize("case", range(20))
def test_the_least_lag_leaves_so_many_late_and_a_second_less_leaves_more(case, seed):
    chance = np.random.default_rng((seed, case))
    losses = losses_of(chance.integers(0, 900_000, 300), chance.integers(0, 4, 300))
    for allowed in (0, 3, 50):
        lag_ms = losses.least_lag_ms(allowed)
        assert losses.late(lag_ms) <= allowed < losses.late(lag_ms - SECOND_MS)


def test_rows_without_one_before_them_are_never_late():
    losses = losses_of([9, 5, 1], [0, 1, 2])
    assert (losses.rows, losses.late(0), losses.dropped_count(0), losses.least_lag_ms(0)) == (3, 0, 0, 0)


@pytest.fixture(scope="module")
def flights():
    rows = pd.read_csv(data_file("flights.csv.zip"), usecols=["time_hour", "minute", "dep_delay", "origin", "carrier",
                                                               "dest"])  # fmt: skip
    rows = rows[rows["dep_delay"].notna()]
    event = rows["time_hour"].str.rstrip("Z").to_numpy("datetime64[ms]").astype(np.int64)
    event += rows["minute"].to_numpy(np.int64) * MINUTE_MS
    known = event + rows["dep_delay"].to_numpy(np.int64) * MINUTE_MS
    return rows.assign(event=event, known=known).sort_values("known", kind="stable")


@pytest.mark.parametrize("way", ["global", "origin", "carrier", "dest"])
def test_a_year_of_flights_loses_what_was_counted_elsewhere(way, flights):
    event = flights["event"].to_numpy()
    group = np.zeros(len(event)) if way == "global" else pd.factorize(flights[way])[0]
    losses = losses_of(event, group)
    for expected in VECTOR["expect"]:
        lag_ms = expected["bound_min"] * MINUTE_MS
        assert {"late": losses.late(lag_ms), "dropped": losses.dropped_count(lag_ms)} == expected[way]


def test_a_record_without_a_usable_timestamp_arrives_with_the_one_before():
    arrival_ms = arrivals(np.array([5, -1, 4, NOW_MS + 1, 7, 3]), np.array([0, 0, 0, 0, 0, 1]), NOW_MS)
    assert arrival_ms.tolist() == [5, 5, 5, 5, 7, 3]


def test_silence_is_told_before_each_record_and_before_the_first_since_the_begin():
    silences_ms = silences(np.array([5, 6, 20, 30]), np.array([0, 1, 1, 0]), begin_ms=2)
    assert silences_ms.tolist() == [3, 4, 14, 25]


def test_a_partition_that_was_idle_finds_the_watermark_of_the_others_when_it_returns():
    # Partition 1 is silent from 10 to 90 and then goes on where it was; nothing of it is late by itself.
    event = np.array([10, 11, 90, 12, 95, 13, 96])
    partition = np.array([0, 1, 0, 1, 0, 1, 1])
    silence = np.array([0, 0, 80, 80, 5, 1, 1])
    flow = Flow(event, partition, silence, highest_before(event, np.zeros(7)), highest_before(event, partition))
    assert flow.of_all_ms.tolist() == [NEVER, 10, 11, 90, 90, 95, 95]
    assert np.flatnonzero(late_with_idleness(flow, 0, timeout_ms=60)).tolist() == [3, 5]
    assert not late_with_idleness(flow, 78, timeout_ms=60).any()
    assert not late_with_idleness(flow, 0, timeout_ms=80).any()


def test_partitions_share_the_records_and_a_short_one_leaves_its_part_to_the_others():
    first = {TopicPartition("t", number): 10 for number in range(3)}
    ends = dict(zip(first, (14, 1_010, 510), strict=True))
    assert list(newest(first, ends, 104).values()) == [10, 460, 960]
    assert newest(first, ends, 10_000) == first


def sample(partition, arrival, event, *, fate=None, keys=None, begin_ms=0, partitions=(0, 1)):
    rows = len(event)
    return Sample(
        partitions=partitions, partition=np.array(partition), arrival_ms=np.array(arrival), event_ms=np.array(event),
        fate=np.zeros(rows, np.int8) if fate is None else np.array(fate, np.int8), keys=keys, begin_ms=begin_ms,
        appended=True, stamped_by_event=False,
    )  # fmt: skip


def test_a_time_that_looks_wrong_is_counted_and_makes_no_other_late():
    fate = [TimeFate.SOUND, TimeFate.FUTURE, TimeFate.SOUND, TimeFate.LONG_AGO]
    advice = advice_of(sample([0] * 4, [1, 2, 3, 4], [10, 10**12, 20, 0], fate=fate), "t", 0, HOUR_MS)
    assert (advice.records, advice.record_count, advice.fates[TimeFate.FUTURE], advice.fates[TimeFate.LONG_AGO]) == (
        4,
        2,
        1,
        1,
    )
    assert (advice.ways[ONE].late(0), advice.lag_ms) == (0, 0)


def test_records_before_all_partitions_are_complete_move_watermarks_and_are_not_counted():
    advice = advice_of(sample([0, 1, 0, 1], [1, 5, 6, 7], [50, 10, 40, 20], begin_ms=5), "t", 0, HOUR_MS)
    assert advice.record_count == 3
    assert (advice.ways[ONE].late(0), advice.ways[PER_PARTITION].late(0)) == (3, 1)


def test_a_timeout_below_a_silence_that_costs_records_is_not_recommended():
    arrival = [0, 1, 10 * MINUTE_MS, 10 * MINUTE_MS + 1]
    advice = advice_of(sample([0, 1, 0, 1], arrival, [0, 1, 10 * MINUTE_MS, 2]), "t", 0, HOUR_MS)
    assert (advice.lag_ms, advice.idle.timeout_ms, advice.idle.late) == (0, 15 * MINUTE_MS, 0)


@pytest.mark.parametrize(
    ("count", "span_ms", "parts"),
    [
        (
            65,
            222,
            ["arrived within 222 ms, so no record of them can show a longer", "65 records are too few"],
        ),
        (2_999, HOUR_MS, ["2,999 records are too few to decide a share of 0.1 %: at least 3,000 are needed"]),
        (3_000, HOUR_MS, []),
        (3_000, HOUR_MS - 1, ["arrived within 59 min"]),
    ],
)
def test_a_sample_that_is_too_small_is_warned_of(count, span_ms, parts):
    arrival = [0, *([span_ms] * (count - 1))]
    advice = advice_of(sample([0] * count, arrival, [0] * count, partitions=(0,)), "t", 0.001, HOUR_MS)
    request = AdviceRequest(topic="t", window_ms=HOUR_MS, share=0.1, options={"value.format": "avro-confluent"})
    report = json.loads(as_json(advice, request))
    warnings = report["warnings"]
    assert list(report["options"])[:2] == ["value.format", "watermarkLag"]
    assert len(warnings) == len(parts)
    assert all(part in warning for part, warning in zip(parts, warnings, strict=True))
    out = PlainConsole(file=io.StringIO(), width=80, markup=False)
    show(out, advice, request)
    assert all(warning in out.file.getvalue() for warning in warnings)


def test_without_a_sound_time_the_hint_is_in_the_error():
    with pytest.raises(InputError, match="topic t: none of 1 records has an event time to advise from; set --event"):
        advice_of(sample([0], [1], [0], fate=[TimeFate.UNREADABLE]), "t", 0, HOUR_MS)


def device(partition, second, behind_s, name):
    """A record that arrives at a second, of an event so many seconds before."""
    event = NOW_MS // SECOND_MS + second - behind_s
    return Record(partition, NOW_MS + second * SECOND_MS, json.dumps({"at": event, "device": name}).encode())


@pytest.fixture(scope="module")
def behind(kafka):
    """A topic of which partition 1 is ten minutes behind, in order; 100 records each."""
    from tests.tools import make_topic

    name = make_topic(kafka.bootstrap, "advise-behind", 2, retention_ms="-1")
    produce(kafka.bootstrap, name, [
        record for second in range(100) for record in (device(0, second, 0, "a"), device(1, second, 600, "b"))
    ])  # fmt: skip
    return name


def read_advice(capsys, kafka, topic, *arguments):
    assert main(["advise", "--bootstrap", kafka.bootstrap, "--topic", topic, *arguments]) == 0
    return capsys.readouterr().out


IN_SECONDS = ("--event-time", "json:$.at", "--unit", "s")


def test_a_partition_that_is_behind_is_late_under_one_watermark_and_not_under_its_own(capsys, kafka, behind):
    advice = json.loads(read_advice(capsys, kafka, behind, *IN_SECONDS, "--key", "json:$.device", "--json"))
    assert [lag["lag_ms"] for lag in advice["lags"]] == list(LAGS_MS)
    none, day = advice["lags"][0], advice["lags"][-1]
    # Equal timestamps: partition 0 comes first, so all records of partition 1 find its watermark.
    assert none["one_watermark"]["late"] == 100
    assert none["per_partition"] == none["per_key"] == day["one_watermark"] == {"late": 0, "dropped": 0}
    assert advice["least_lag_ms"] == {"one_watermark": 600_000, "per_partition": 0, "per_key": 0}
    assert [(one["records"], one["behind_ms"], one["longest_silence_ms"]) for one in advice["partitions"]] == [
        (100, 0, 1_000), (100, 600_000, 1_000),
    ]  # fmt: skip
    assert advice["options"] == {
        "eventTime": "json:$.at", "eventTimeUnit": "s", "watermarkLag": "0 seconds", "idleTimeout": "1 minute",
    }  # fmt: skip


def test_people_read_the_same_with_the_options_at_the_end(capsys, kafka, behind):
    text = read_advice(capsys, kafka, behind, *IN_SECONDS, "--records", "50")
    assert "the newest 50 records of 2 partitions" in text
    assert "10 minutes with one watermark, 0 seconds with one per partition" in text
    assert text.endswith('    .option("watermarkLag", "0 seconds")\n    .option("idleTimeout", "1 minute")\n')


def test_a_topic_whose_timestamps_are_event_times_cannot_tell_the_order_of_arrival(capsys, kafka, behind):
    advice = json.loads(read_advice(capsys, kafka, behind, "--json"))
    assert (advice["stamped_by_event_time"], advice["lags"][0]["one_watermark"]["late"]) == (True, 0)
    assert "the arrival across partitions is not known" in read_advice(capsys, kafka, behind)
    assert "is not known" not in read_advice(capsys, kafka, behind, *IN_SECONDS, "--records", "1")


@pytest.mark.parametrize(
    ("ms", "text"),
    [(0, "0 seconds"), (2_221_000, "37 minutes 1 second"), (90_000_000, "1 day 1 hour"), (1_000, "1 second")],
)
def test_a_lag_is_written_as_the_option_takes_it(ms, text):
    assert (_span(ms), duration_ms("watermarkLag", text)) == (text, ms)


def test_seconds_taken_for_milliseconds_are_one_sentence_that_names_the_unit(capsys, kafka, behind):
    assert main(["advise", "--bootstrap", kafka.bootstrap, "--topic", behind, "--event-time", "json:$.at"]) == 2
    message = capsys.readouterr().err
    assert message.count("\n") == 1
    assert "none of 200 records has an event time to advise from" in message
    assert f"eventTimeUnit={Unit.SECONDS.value} would read it" in message


def test_missing_times_tombstones_and_times_of_the_future_are_told_and_left_out(capsys, kafka, topic_of):
    topic = topic_of(1, retention_ms="-1")
    year_3000_s = 32_503_680_000
    values = [
        b'{"at": 1700000000}',
        b"{}",
        None,
        f'{{"at": {year_3000_s}}}'.encode(),
        b'{"at": 0}',
        b'{"at": 1700000001}',
    ]
    produce(kafka.bootstrap, topic, [Record(0, NOW_MS + at, value) for at, value in enumerate(values)])
    advice = json.loads(read_advice(capsys, kafka, topic, *IN_SECONDS, "--json"))
    assert advice["event_times"] == {"sound": 2, "unreadable": 1, "tombstone": 1, "future": 1, "long_ago": 1}
    assert advice["lags"][0]["one_watermark"]["late"] == 0
    assert advice["options"]["maxEventTimeAhead"] == "1 hour"


def test_records_without_a_timestamp_are_read_all_the_same(capsys, kafka, topic_of):
    topic = topic_of(1, retention_ms="-1")
    produce(kafka.bootstrap, topic, [Record(0, NO_TIMESTAMP, b'{"at": 1700000000}')])
    assert json.loads(read_advice(capsys, kafka, topic, *IN_SECONDS, "--json"))["counted"] == 1


def refused(capsys, bootstrap, *arguments):
    assert main(["advise", "--bootstrap", bootstrap, *arguments]) == 2
    output = capsys.readouterr()
    assert not output.out
    assert output.err.count("\n") == 1
    return output.err


def test_a_topic_without_records_and_one_that_is_missing_are_one_sentence(capsys, kafka, topic_of):
    topic = topic_of(2)
    assert f"topic {topic} has no record in its 2 partitions" in refused(capsys, kafka.bootstrap, "--topic", topic)
    assert f"did you mean '{topic}'" in refused(capsys, kafka.bootstrap, "--topic", f"{topic}x")


@pytest.mark.parametrize(
    ("arguments", "right"),
    [
        (["--topic", ""], "--topic"),
        (["--topic", "t", "--records", "0"], "--records: '0' is wrong; a whole number of at least 1"),
        (["--topic", "t", "--loss", "much"], "--loss: 'much' is wrong; a percentage from 0 to below 100"),
        (["--topic", "t", "--loss", "100"], "a percentage from 0 to below 100"),
        (["--topic", "t", "--window", "0 seconds"], "a duration above 0 is expected"),
        (["--topic", "t", "--key", "offset"], "no column 'offset'"),
        (["--topic", "t", "--unit", "hours"], "one of s, ms, us, ns, iso is expected"),
        (
            ["--topic", "t", "--event-time", "value"],
            "timestamp, json:$.a.b, key:$.a, avro:$.a, proto:$.a or header:NAME is expected",
        ),
        (["--topic", "t", "--option", "group=x"], "schemaRegistry.NAME=VALUE is expected"),
    ],
)
def test_a_wrong_option_is_one_sentence_before_any_broker_is_asked(arguments, right, capsys):
    assert right in refused(capsys, "nowhere.invalid:1", *arguments)


def test_a_topic_that_may_not_be_read_is_one_sentence(capsys, secured, new_topic, monkeypatch):
    from keyedwm.kafka.client.config import ClientConfig
    from keyedwm.kafka.requests.cluster import Cluster
    from tests.secured import PASSWORD
    from tests.tools import create_topic

    topic = new_topic()
    cluster = Cluster.connect(ClientConfig.from_options(secured.options()))
    create_topic(cluster, topic, 1)
    cluster.close()
    login = secured.options("guest", PASSWORD)
    monkeypatch.setenv("GUEST", login.pop("sasl.jaas.config"))
    del login["bootstrap.servers"]
    arguments = [word for name, value in login.items() for word in ("--option", f"kafka.{name}={value}")]
    arguments += ["--option", "kafka.sasl.jaas.config=env:GUEST", "--topic", topic]
    assert "not allowed" in refused(capsys, secured.bootstrap, *arguments)


@pytest.mark.parametrize("batch", [1, 40])
def test_a_query_loses_what_was_predicted_and_no_more(capsys, kafka, topic_of, open_stream, flights, batch):
    """Flights of one airport: batches of one record follow each record, as the prediction does; others lose less."""
    some = flights[flights["origin"] == "EWR"][:160]
    topic = topic_of(1, retention_ms="-1")
    produce(kafka.bootstrap, topic, [
        Record(0, int(known), json.dumps({"at": int(event) // SECOND_MS}).encode())
        for event, known in zip(some["event"], some["known"], strict=True)
    ])  # fmt: skip
    lag_ms = 15 * MINUTE_MS
    predicted = json.loads(read_advice(capsys, kafka, topic, *IN_SECONDS, "--json"))
    late = next(one["per_partition"]["late"] for one in predicted["lags"] if one["lag_ms"] == lag_ms)
    options = {
        "eventTime": "json:$.at", "eventTimeUnit": "s", "watermarkLag": "15 minutes", "idleTimeout": "none",
        "maxOffsetsPerTrigger": str(batch),
    }  # fmt: skip
    stream = open_stream(topic, options)
    stream.drain()
    (channel,) = QueryOffset.from_json(stream.offset).channels.values()
    measured = channel.counts.late
    assert late > 0
    assert measured == late if batch == 1 else measured <= late
