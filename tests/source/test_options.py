"""Every option is honoured or refused, in one sentence that names it, its value and what would be right."""

from __future__ import annotations

import pickle

import pytest

from keyedwm.config.validation import duration_ms
from keyedwm.core.errors import OptionError
from pyspark_wm_source.options.source_options import SourceOptions
from pyspark_wm_source.options.start_offsets import EARLIEST, LATEST, NoMatch

BASE = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "t"}


def parse(**options: str) -> SourceOptions:
    return SourceOptions.parse(BASE | options)


WRONG = [
    ({"subscribe": " , "}, r"option subscribe: ' , ' is wrong; a comma list of topics"),
    (
        {"assign": '{"t": [0]}'},
        r"exactly one of the options subscribe, subscribePattern and assign .* assign and subscr",
    ),
    ({"startingOffsets": "earlyest"}, r"option startingOffsets: 'earlyest' is wrong; earliest, latest or JSON such as"),
    ({"startingOffsets": "[1]"}, r"option startingOffsets: '\[1\]' is wrong; a JSON object keyed by topic"),
    (
        {"startingOffsets": '{"t": {"0": -3}}'},
        r'option startingOffsets: .* is wrong; JSON such as \{"topic": \{"0": 23, "1": -2\}\} is expected, no number',
    ),
    ({"startingOffsets": '{"t": {"0": true}}'}, r"option startingOffsets: .* is wrong; JSON such as"),
    (
        {"startingOffsetsByTimestamp": '{"t": {"0": -1}}'},
        r"option startingOffsetsByTimestamp: .* is wrong; JSON .* no number below 0",
    ),
    ({"startingOffsets": '{"t": 5}'}, r"option startingOffsets: .* is wrong; JSON such as"),
    (
        {"startingTimestamp": "yesterday"},
        r"option startingTimestamp: 'yesterday' is wrong; whole milliseconds since 1970",
    ),
    ({"startingOffsetsByTimestamp": "5"}, r"option startingOffsetsByTimestamp: '5' is wrong; a JSON object"),
    (
        {"startingOffsetsByTimestampStrategy": "err"},
        r"option startingOffsetsByTimestampStrategy: 'err' is wrong; one of",
    ),
    ({"endingOffsets": "latest"}, r"option endingOffsets is for batch reads, a stream has no end"),
    ({"maxOffsetsPerTrigger": "0"}, r"option maxOffsetsPerTrigger: '0' is wrong; a whole number of at least 1"),
    ({"maxOffsetsPerTrigger": "many"}, r"option maxOffsetsPerTrigger: 'many' is wrong; a whole number"),
    (
        {"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"},
        r"option minOffsetsPerTrigger: 9 is above maxOffsetsPerTrigger \(8\)",
    ),
    ({"maxPartitions": "0"}, r"option maxPartitions: '0' is wrong; a whole number of at least 1 is expected"),
    (
        {"maxPartitions": "2", "minPartitions": "1"},
        r"option maxPartitions has no effect with minPartitions, which adds tasks: leave one of them out",
    ),
    (
        {"maxPartitions": "2", "maxRecordsPerPartition": "5"},
        r"option maxPartitions has no effect with maxRecordsPerPartition, which adds tasks: leave one of them out",
    ),
    ({"maxTriggerDelay": "soon"}, r"option maxTriggerDelay: 'soon' is wrong; a duration such as '10 seconds'"),
    ({"failOnDataLoss": "yes"}, r"option failOnDataLoss: 'yes' is wrong; true or false is expected"),
    (
        {"maxOffsetsPerTrigger": "9" * 5_000},
        r"maxOffsetsPerTrigger: '9{120}\.\.\.' is wrong; a whole",
    ),
    ({"maxOffsetsPerTrigger": "\u00b2"}, r"option maxOffsetsPerTrigger: '\u00b2' is wrong; a whole number"),
    ({"idleTimeout": "9" * 400 + " s"}, r"a duration of at most 9223372036854775807 milliseconds is expected"),
    ({"kafka.bootstrap.servers": "h:" + "9" * 5_000}, r"comma-separated host:port is expected"),
    ({"kafka.bootstrap.servers": "..:9092"}, r"comma-separated host:port is expected"),
    ({"kafka.bootstrap.servers": "[::1"}, r"comma-separated host:port is expected"),
    ({"kafka.bootstrap.servers": "h:\u00b2"}, r"comma-separated host:port is expected"),
    ({"security.protocol": "SSL"}, r"security.protocol is unknown .*: did you mean kafka.security.protocol\?"),
    ({"fetch.max.bytes": "1"}, r"option fetch.max.bytes is unknown .*: did you mean kafka.fetch.max.bytes\?"),
    ({"watermarkLag": "3"}, r"option watermarkLag: '3' is wrong; a duration such as"),
    ({"watermarkLag": "-3 seconds"}, r"option watermarkLag: '-3 seconds' is wrong; a duration such as"),
    ({"idleTimeout": "never"}, r"option idleTimeout: 'never' is wrong; a duration such as"),
    ({"idleTimeout": "0 seconds"}, r"idleTimeout is 0 ms, it must be above 0, or none"),
    ({"onBadEventTime": "drop"}, r"option onBadEventTime: 'drop' is wrong; one of null, fail, reject is expected"),
    ({"guarantee": "at-most-once"}, r"option guarantee: 'at-most-once' is wrong; one of exactly-once, at-least-once"),
    ({"columns": "value,valeu"}, r"option columns: 'valeu' is not a column of the source .*; did you mean value\?"),
    ({"columns": "key,headers"}, r"option columns: column 'headers' does not exist with includeHeaders=false"),
    (
        {"columns": "Control", "emitControl": "false"},
        r"option columns: column 'control' does not exist with emitControl=false",
    ),
    ({"columns": " "}, r"option columns: it is empty; name at least one column"),
    (
        {"checkpoint": "c", "windows": "medians"},
        r"option checkpoint is unknown to the keyedwm source: did you mean keyedwm\.spark\.held_windows\(",
    ),
    (
        {"watermarkLags": "3 seconds"},
        r"option watermarkLags is unknown to the keyedwm source: did you mean watermarkLag",
    ),
    ({"path": "/tmp"}, r"option path is unknown to the keyedwm source: "),  # noqa: S108 - never touched
    (
        {"kafka.auto.offset.reset": "latest"},
        r"option kafka.auto.offset.reset is set by the source itself: leave it out",
    ),
    ({"kafka.enable.auto.commit": "true"}, r"option kafka.enable.auto.commit is set by the source itself"),
    ({"kafka.group.id": " "}, r"option kafka.group.id: ' ' is wrong; the name of a consumer group is expected"),
    ({"kafka.key.deserializer": "x"}, r"option kafka.key.deserializer is set by the source itself"),
    ({"kafka.value.deserializer": "x"}, r"option kafka.value.deserializer is set by the source itself"),
    ({"kafka.interceptor.classes": "x"}, r"option kafka.interceptor.classes is set by the source itself"),
    ({"kafka.bootstrap.servers": "nowhere"}, r"option kafka.bootstrap.servers: 'nowhere' is wrong; .*host:port"),
    (
        {"kafka.bootstrap.servers": " "},
        r"option kafka.bootstrap.servers is missing: a comma list of host:port is expected",
    ),
    (
        {"kafka.isolation.level": "serial"},
        r"option kafka.isolation.level: 'serial' is wrong; one of read_uncommitted, ",
    ),
]


@pytest.mark.parametrize(
    ("options", "sentence"), WRONG, ids=[next(iter(o)) + "=" + next(iter(o.values()))[:40] for o, _ in WRONG]
)
def test_a_wrong_option_is_refused_in_one_sentence(options, sentence):
    with pytest.raises(OptionError, match=sentence) as error:
        parse(**options).for_stream()
    assert "\n" not in str(error.value)
    assert pickle.loads(pickle.dumps(error.value)).message == error.value.message  # noqa: S301 - its own


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("90 seconds", 90_000), ("INTERVAL 1 Minute 30 SECONDS", 90_000), ("interval 1 minute", 60_000),
        ("1.5s", 1_500), (" 2 h ", 7_200_000), ("500ms", 500), ("0 seconds", 0),
    ],
)  # fmt: skip
def test_a_duration_is_sparks_interval_string_in_any_case(text, ms):
    assert duration_ms("x", text) == ms


def test_no_topics_at_all_names_the_three_ways():
    with pytest.raises(
        OptionError, match="exactly one of the options subscribe, subscribePattern and assign is expected; none"
    ):
        SourceOptions.parse({"kafka.bootstrap.servers": "localhost:9092"})


@pytest.mark.parametrize("assigned", ["{}", '{"t": []}', '{"t": [true]}', '{"t": "0"}', '{"t": [0], "u": []}'])
def test_partitions_assigned_must_be_some(assigned):
    with pytest.raises(
        OptionError, match=r'option assign: .* is wrong; JSON such as \{"topic": \[0, 1\]\} is expected'
    ):
        SourceOptions.parse({"kafka.bootstrap.servers": "localhost:9092", "assign": assigned})


def test_a_wrong_pattern_is_refused():
    with pytest.raises(OptionError, match=r"option subscribePattern: '\(' is wrong; it is no regular expression"):
        SourceOptions.parse({"kafka.bootstrap.servers": "localhost:9092", "subscribePattern": "("})


def test_no_servers_are_named_as_missing():
    with pytest.raises(OptionError, match=r"option kafka\.bootstrap\.servers is missing"):
        SourceOptions.parse({"subscribe": "t"})


def test_a_secret_stays_out_of_every_message():
    secret = "hunter2"  # noqa: S105 - the test's own
    with pytest.raises(OptionError) as error:
        parse(
            **{"kafka.sasl.jaas.config": secret, "kafka.sasl.mechanism": "PLAIN", "kafka.security.protocol": "SASL_SSL"}
        )
    assert secret not in str(error.value)


def test_names_are_case_insensitive():
    shouted = {name.upper(): value for name, value in (BASE | {"maxOffsetsPerTrigger": "7"}).items()}
    assert SourceOptions.parse(shouted).max_offsets == 7


def test_sparks_own_options_without_effect_here_are_taken():
    without_effect = {"fetchOffset.numRetries": "3", "fetchOffset.retryIntervalMs": "10", "queryName": "q"}
    assert parse(**without_effect, checkpointLocation="/c", **{"kafkaConsumer.pollTimeoutMs": "512"}) == parse()


def test_a_batch_read_says_that_it_takes_no_trigger_limits(caplog):
    parse(minOffsetsPerTrigger="1", maxOffsetsPerTrigger="2").for_batch()
    assert [record.getMessage() for record in caplog.records] == [
        "option maxOffsetsPerTrigger has no effect on a batch read",
        "option minOffsetsPerTrigger has no effect on a batch read",
    ]


def test_the_start_by_timestamp_beats_the_others():
    start = parse(startingTimestamp="5", startingOffsetsByTimestamp='{"t": {"0": 6}}', startingOffsets="earliest").start
    assert (start.timestamp_ms, start.timestamps_ms) == (5, None)
    start = parse(startingOffsetsByTimestamp='{"t": {"0": 6}}', startingOffsets="earliest").start
    assert start.timestamps_ms == {"t": {0: 6}}
    assert start.no_match is NoMatch.ERROR


def test_a_stream_starts_at_the_latest_unless_told():
    assert parse().start.word_of(("t", 0), LATEST) == LATEST
    assert parse(startingOffsets="Earliest").start.word == EARLIEST


def test_control_rows_go_with_their_column():
    assert parse().emit_control
    assert not parse(emitControl="false").emit_control
    assert not parse(columns="value, event_time").emit_control
    assert parse(columns="value,CONTROL").emit_control
