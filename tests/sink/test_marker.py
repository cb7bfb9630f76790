"""The marker of the last decided batch, as anybody may have left it who may commit offsets of its group."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from types import SimpleNamespace

import pytest

from keyedwm.core.errors import FormatError
from keyedwm.kafka.client.values import Committed, TopicPartition
from pyspark_wm_sink.batch.advice import Published
from pyspark_wm_sink.batch.record import Reads
from pyspark_wm_sink.kafka.marker import Decided, Marker, marker_text
from tests.sink.test_record_formats import FEW

WHERE = TopicPartition("t", 0)
MARKER = Marker(group="q-ledger")


def holding(metadata: str) -> SimpleNamespace:
    return SimpleNamespace(fetch_offsets=lambda _group, _places: {WHERE: Committed(8, metadata)})


@pytest.mark.parametrize(
    "metadata",
    ["", "null", "7", "[]", '"text"', "[" * 4_000, '{"version":1}', '{"version":2,"batch":7}',
     '{"version":1,"batch":"7"}', '{"version":1,"batch":true}',
     '{"version":1,"batch":1e400}', '{"version":1,"batch":' + "9" * 4_400 + "}",
     '{"version":[1],"batch":7}', '{"version":2,"batch":7,"checksum":1}', '{"version":true,"batch":7}',
     '{"version":0,"batch":7}'],
)  # fmt: skip
def test_what_is_no_marker_is_named_and_ignored(metadata, caplog):
    with caplog.at_level(logging.WARNING, "keyedwm.sink"):
        assert MARKER.read(holding(metadata), None) is None
    assert caplog.messages == [
        "group q-ledger holds an offset of t-0 that is no marker of a known version, it is ignored"
    ]


@pytest.mark.parametrize("metadata", ['{"version":3}', '{"version":30,"batch":9,"checksum":"a"}'])
def test_a_marker_of_a_later_version_is_refused_whatever_else_stands_there(metadata):
    """Taken for nothing, it would let this version decide anew what the later one has decided."""
    other = Committed(8, '{"version":2,"batch":7,"checksum":"ab"}')
    stored_marker = SimpleNamespace(
        fetch_offsets=lambda _group, _places: {WHERE: Committed(9, metadata), TopicPartition("u", 0): other}
    )
    with pytest.raises(
        FormatError, match=r"group q-ledger holds at t-0 a marker of format version \d+, .* reads versions 1 and 2"
    ):
        MARKER.read(stored_marker, None)


def test_a_marker_is_read():
    t = frozenset({"t"})
    assert MARKER.read(holding('{"version":1,"batch":7}'), None) == Decided(batch=7, topics=t)
    marker = MARKER.read(holding('{"version":2,"batch":7,"checksum":"ab"}'), "t")
    assert marker == Decided(batch=7, checksums=frozenset({"ab"}), topics=t)


READS = '"reads":{"version":1,"sources":[{"in-0":7},null],"stateful":true},"operators":["sum"]'


def test_a_marker_says_how_far_its_query_has_read():
    marker = MARKER.read(holding('{"version":2,"batch":7,"checksum":"ab",' + READS + "}"), None)
    reads = Reads(sources=({"in-0": 7}, None), is_stateful=True)
    assert marker.published == Published(batch=7, reads=reads, operators=frozenset({"sum"}))


@pytest.mark.parametrize(
    "reads", ['"reads":{"version":2}', '"reads":7,"operators":[]', '"reads":{"version":1,"sources":[{"in-0":"7"}]}']
)
def test_what_a_marker_says_of_reading_in_another_way_is_unknown_and_the_rest_counts(reads):
    marker = MARKER.read(holding('{"version":2,"batch":7,"checksum":"ab",' + reads + "}"), None)
    assert (marker.published, marker.checksums) == (None, frozenset({"ab"}))


@pytest.mark.parametrize(("partitions", "is_said"), [(1, True), (100, True), (2_000, False)])
def test_a_marker_fits_into_what_brokers_take(partitions, is_said):
    record = replace(FEW, channels={}, reads=Reads(sources=({f"orders-{n}": 10**9 for n in range(partitions)},)))
    text = marker_text({"version": 2, "batch": 7, "checksum": "a" * 32, "run": "r" * 36}, record)
    assert len(text) < 4_096
    assert ("reads" in json.loads(text)) is is_said
    if is_said:
        assert MARKER.read(holding(text), None).published.reads == record.reads
