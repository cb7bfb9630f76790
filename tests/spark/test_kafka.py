"""The source with its options as arguments: the same options, and no second list of them."""

from __future__ import annotations

import inspect
import typing
from datetime import timedelta
from types import SimpleNamespace

import pytest

from keyedwm.core.errors import OptionError
from keyedwm.core.places import OnBadTime, OnBadValue, OnFuture, OnFutureWatermark, Unit
from keyedwm.core.watermark import Guarantee
from keyedwm.spark import kafka, source
from keyedwm.spark.api.kafka import argument_of, options_of
from pyspark_wm_source.options.axes import _PolicyName, _ThrottleName
from pyspark_wm_source.options.source_options import STREAM_OPTIONS
from pyspark_wm_source.options.start_offsets import NoMatch
from pyspark_wm_source.options.value_format import FormatName

ARGUMENTS = inspect.signature(kafka).parameters
SESSION = type("Session", (SimpleNamespace,), {"readStream": None})()
CHOICES = {
    "on_bad_event_time": OnBadTime, "event_time_unit": Unit, "on_future_time": OnFuture, "guarantee": Guarantee,
    "watermark_throttle": _ThrottleName, "starting_offsets_by_timestamp_strategy": NoMatch,
    "value_format": FormatName, "key_format": FormatName, "on_bad_value": OnBadValue,
    "on_future_watermark": OnFutureWatermark,
    "watermark_policy": [one for one in _PolicyName if one is not _PolicyName.CUSTOM],
}  # fmt: skip


def words(annotation: object) -> set[str]:
    """The words of every Literal within a type."""
    if typing.get_origin(annotation) is typing.Literal:
        return set(typing.get_args(annotation))
    return set().union(*(words(part) for part in typing.get_args(annotation)), set())


def test_every_option_of_a_stream_is_an_argument_and_every_argument_an_option():
    assert set(ARGUMENTS) == {
        "spark", "bootstrap_servers", "properties", *(argument_of(option) for option in STREAM_OPTIONS),
    }  # fmt: skip


def test_the_words_that_an_editor_offers_are_those_that_the_source_takes():
    types = typing.get_type_hints(kafka, localns={"SparkSession": object})
    offered = {name: words(annotation) for name, annotation in types.items() if words(annotation)}
    assert offered == {
        **{name: {member.value for member in kind} for name, kind in CHOICES.items()},
        "starting_offsets": {"earliest", "latest"},
    }


def test_arguments_are_written_as_the_options_want_them():
    assert options_of({
        "bootstrap_servers": ["a:1", "b:2"],
        "subscribe": ("orders", "refunds"),
        "watermark_lag": timedelta(minutes=1, milliseconds=5),
        "include_headers": True,
        "max_offsets_per_trigger": 7,
        "starting_offsets": {"orders": {0: 5}},
        "properties": {"security.protocol": "SSL", "kafka.fetch.max.wait.ms": 10},
    }) == {
        "kafka.bootstrap.servers": "a:1,b:2",
        "subscribe": "orders,refunds",
        "watermarkLag": "60005 ms",
        "includeHeaders": "true",
        "maxOffsetsPerTrigger": "7",
        "startingOffsets": '{"orders": {"0": 5}}',
        "kafka.security.protocol": "SSL",
        "kafka.fetch.max.wait.ms": "10",
    }  # fmt: skip


def test_it_describes_the_read_that_the_options_describe():
    by_options = source(SESSION).option("kafka.bootstrap.servers", "a:1").option("subscribe", "orders")
    by_options = by_options.option("watermarkLag", "10 seconds").option("barriers", "false")
    assert kafka(SESSION, "a:1", subscribe="orders", watermark_lag="10 seconds", barriers=False) == by_options


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({}, "subscribe"),
        ({"subscribe": "orders", "watermark_lag": "10 secs of"}, "option watermarkLag: '10 secs of' is wrong"),
        ({"subscribe": "orders", "watermark_lag": timedelta(microseconds=1)}, "a whole number of milliseconds"),
        ({"subscribe": ["orders", 5]}, "option subscribe: a list of names is expected, 5 is none"),
        ({"subscribe": "orders", "properties": "acks"}, "properties='acks': a mapping"),
        ({"subscribe": b"orders"}, "option subscribe: a text, number or boolean is expected"),
        ({"subscribe": "orders", "watermark_lull": "5 s"}, "option watermarkLull has no effect"),
        ({"subscribe": "orders", "group_id": "a", "properties": {"group.id": "b"}}, "group.id stands among properties"),
        ({"subscribe": "orders", "properties": {"bootstrap.serves": "b:1"}}, "bootstrap.serve"),
    ],
)
def test_a_wrong_argument_is_refused_at_the_call(arguments, sentence):
    with pytest.raises(OptionError) as refused:
        kafka(SESSION, "a:1", **arguments)
    assert sentence in str(refused.value)


@pytest.mark.parametrize("session", ["a:1", None])
def test_the_session_is_asked_for(session):
    with pytest.raises(OptionError, match=f"kafka: spark={session!r}: the session"):
        kafka(session, "a:1", subscribe="t")


@pytest.mark.parametrize(("partitions", "options"), [("2", {"maxPartitions": "2"}), ("auto", {})])
def test_a_described_read_has_a_task_for_each_of_the_sessions_if_that_is_a_number(partitions, options):
    session = type("Session", (), {"readStream": None, "conf": {"spark.sql.shuffle.partitions": partitions}})()
    assert kafka(session, "a:1", subscribe="orders")._most_tasks() == options
