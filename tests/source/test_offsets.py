"""The offset in Spark's log: one canonical form, read back exactly, and never guessed at."""

from __future__ import annotations

import copy
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keyedwm.core.axis import AxisState
from keyedwm.core.coalescer import CommonState
from keyedwm.core.counts import Counts
from keyedwm.core.errors import FormatError
from keyedwm.core.watermark import Status
from keyedwm.kafka.values import TopicPartition
from pyspark_wm_source.offsets import NOT_STARTED, Channel, QueryOffset, as_spark_offsets, from_spark_offsets

MS = st.integers(-(2**63), 2**63 - 1)
OFFSETS = st.integers(0, 2**62)
KEYS = st.integers(-128, 127)
PLACES = st.builds(TopicPartition, st.text("abc.-_0", min_size=1, max_size=6), st.integers(0, 2_000))
AXES = st.dictionaries(
    KEYS, st.builds(AxisState, st.lists(MS, max_size=3).map(tuple), st.one_of(st.none(), MS)), max_size=3
)
CHANNELS = st.builds(
    Channel, next_offset=OFFSETS, read=OFFSETS, status=st.sampled_from([Status.ACTIVE, Status.IDLE]), since_ms=MS,
    counts=st.builds(Counts, OFFSETS, OFFSETS), axes=AXES,
)  # fmt: skip
COMMON = st.builds(
    CommonState,
    emitted=st.dictionaries(KEYS, MS),
    top=st.dictionaries(KEYS, MS),
    idle_spell=st.booleans(),
    history=st.dictionaries(KEYS, st.lists(st.tuples(MS, MS), max_size=3).map(tuple), max_size=2),
    swallowed=OFFSETS,
)
STARTED = st.builds(
    QueryOffset, batch=st.integers(0, 10**9), group=st.text(max_size=9), token=st.text(max_size=9), now_ms=MS,
    coalesced=COMMON, channels=st.dictionaries(PLACES, CHANNELS, max_size=4),
)  # fmt: skip
NEW = st.builds(
    QueryOffset, batch=st.just(NOT_STARTED), group=st.text(max_size=9), token=st.text(max_size=9), now_ms=MS,
    coalesced=st.just(CommonState()), begins=st.dictionaries(PLACES, OFFSETS, max_size=4),
)  # fmt: skip


@given(st.one_of(STARTED, NEW))
def test_an_offset_reads_back_as_it_was_written(offset):
    text = json.dumps(offset.to_json())
    read = QueryOffset.from_json(json.loads(text))
    assert read == offset
    assert json.dumps(read.to_json()) == text


@given(STARTED)
def test_the_order_in_which_channels_were_met_does_not_show(offset):
    turned = copy.copy(offset)
    object.__setattr__(turned, "channels", dict(reversed(offset.channels.items())))
    assert json.dumps(turned.to_json()) == json.dumps(offset.to_json())


@given(STARTED)
def test_offsets_stand_in_sparks_own_shape(offset):
    shaped = offset.to_json()["offsets"]
    assert from_spark_offsets(shaped) == {tp: c.next_offset for tp, c in offset.channels.items()}
    assert as_spark_offsets(from_spark_offsets(shaped)) == shaped


@pytest.mark.parametrize("version", [3, 1, 0, "1", None, 1.5])
def test_another_version_is_refused_by_name(version):
    found = QueryOffset(batch=0, group="g", token="t", now_ms=0, coalesced=CommonState()).to_json()  # noqa: S106
    found["version"] = version
    with pytest.raises(FormatError, match=rf"has version {version!r}; this keyedwm reads version 2 only"):
        QueryOffset.from_json(found)


def test_an_offset_of_another_source_is_refused_by_name():
    with pytest.raises(FormatError, match="version None"):
        QueryOffset.from_json({"t": {"0": 5}})


@pytest.mark.parametrize("field", ["batch", "channels", "coalesced", "group", "now_ms", "offsets", "token"])
def test_a_damaged_offset_is_refused_and_says_what_is_wrong(field):
    found = QueryOffset(batch=NOT_STARTED, group="g", token="t" * 8, now_ms=0, coalesced=CommonState()).to_json()
    assert QueryOffset.from_json(found)
    started = {**found, "batch": 1, "offsets": {"t": {"0": 5}}, "channels": {"t": {"0": [5, 0, 0, 0, 0, []]}}}
    assert QueryOffset.from_json(started)
    with pytest.raises(FormatError, match=f"the checkpoint's offset of version 2 is damaged: KeyError.*{field}"):
        QueryOffset.from_json({name: value for name, value in started.items() if name != field})
