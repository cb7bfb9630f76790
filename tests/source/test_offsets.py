"""The offset in Spark's log: one canonical form, read back exactly, and never guessed at."""

from __future__ import annotations

import copy
import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keyedwm.core.axis import AxisState, Counts, PropagatedState
from keyedwm.core.coalescer import CommonState
from keyedwm.core.errors import FormatError
from keyedwm.core.watermark import Status
from keyedwm.kafka.client.values import TopicPartition
from pyspark_wm_source.values.offsets import (
    NOT_STARTED,
    Channel,
    CutLimits,
    QueryOffset,
    RetiredChannel,
    as_spark_offsets,
    from_spark_offsets,
)

MS = st.integers(-(2**63), 2**63 - 1)
OFFSETS = st.integers(0, 2**62)
KEYS = st.integers(-128, 127)
PLACES = st.builds(TopicPartition, st.text("abc.-_0", min_size=1, max_size=6), st.integers(0, 2_000))
PROPAGATED = st.builds(PropagatedState, OFFSETS, OFFSETS, OFFSETS, st.booleans())
AXES = st.dictionaries(
    KEYS, st.builds(AxisState, st.lists(MS, max_size=3).map(tuple) | PROPAGATED, st.one_of(st.none(), MS)), max_size=3
)
COUNTS = st.builds(Counts, OFFSETS, OFFSETS, OFFSETS)
BAD_VALUES = st.dictionaries(st.integers(2, 13), OFFSETS, max_size=3).map(
    lambda values_by_version: tuple(sorted(values_by_version.items()))
)
ALL_COUNTS = st.builds(Counts, OFFSETS, OFFSETS, OFFSETS, OFFSETS, bad_values=BAD_VALUES)
CHANNELS = st.builds(
    Channel, next_offset=OFFSETS, read=OFFSETS, status=st.sampled_from([Status.ACTIVE, Status.IDLE]), since_ms=MS,
    counts=ALL_COUNTS, axes=AXES, announced=st.lists(KEYS, max_size=2).map(tuple), resets=OFFSETS,
    leader_epoch=st.none() | OFFSETS,
)  # fmt: skip
RETIRED = st.builds(
    RetiredChannel, missed_ms=MS, next_offset=OFFSETS, counts=COUNTS, axes=AXES, resets=OFFSETS,
    leader_epoch=st.none() | OFFSETS,
)  # fmt: skip
COMMON = st.builds(
    CommonState,
    emitted=st.dictionaries(KEYS, MS),
    top=st.dictionaries(KEYS, MS),
    idle_spell=st.booleans(),
    history=st.dictionaries(KEYS, st.lists(st.tuples(MS, MS), max_size=3).map(tuple), max_size=2),
    ignored=OFFSETS,
)
STARTED = st.builds(
    QueryOffset,
    batch=st.integers(0, 10**9),
    group=st.text(max_size=9),
    state_key=st.text(max_size=9),
    now_ms=MS,
    coalesced=COMMON,
    channels=st.dictionaries(PLACES, CHANNELS, max_size=4),
    settings=st.text(max_size=9),
    limits=st.builds(CutLimits, least_tasks=st.none() | OFFSETS, most_records=st.none() | OFFSETS),
    topic_ids=st.dictionaries(st.text(max_size=3), st.text(max_size=3)),
    retired=st.dictionaries(PLACES, RETIRED, max_size=2),
    ahead_ms=st.dictionaries(KEYS, OFFSETS, max_size=2),
    told_ms=st.dictionaries(KEYS, MS, max_size=2),
).map(lambda offset: replace(offset, retired={tp: r for tp, r in offset.retired.items() if tp not in offset.channels}))
NEW = st.builds(
    QueryOffset, batch=st.just(NOT_STARTED), group=st.text(max_size=9), state_key=st.text(max_size=9), now_ms=MS,
    coalesced=st.just(CommonState()), begins=st.dictionaries(PLACES, OFFSETS, max_size=4),
)  # fmt: skip


@given(st.one_of(STARTED, NEW))
def test_an_offset_reads_back_as_it_was_written(offset):
    text = json.dumps(offset.to_json())
    read = QueryOffset.from_json(json.loads(text))
    assert read == offset
    assert json.dumps(read.to_json()) == text


def test_counts_that_are_rare_and_limits_cost_a_version_each_and_outlive_a_missed_partition():
    offset = QueryOffset(batch=0, group="g", state_key="00", now_ms=0, coalesced=CommonState())
    assert offset.to_json()["version"] == 4
    retired = RetiredChannel(missed_ms=1, next_offset=2, counts=Counts(1, 2, 3, 4), axes={})
    with_retired = replace(offset, retired={TopicPartition("t", 0): retired})
    assert (with_retired.to_json()["version"], with_retired.to_json()["future"]) == (5, {"t": {"0": 4}})
    assert QueryOffset.from_json(with_retired.to_json()) == with_retired
    limited = replace(with_retired, ahead_ms={0: 86_400_000})
    assert (limited.to_json()["version"], limited.to_json()["ahead"]) == (6, [[0, 86_400_000]])
    bad = replace(retired, counts=Counts(bad_values=((2, 70), (7, 1))))
    text = json.dumps(replace(offset, retired={TopicPartition("t", 0): bad}).to_json())
    read = QueryOffset.from_json(json.loads(text))
    assert (read.to_json()["version"], read.retired[TopicPartition("t", 0)]) == (7, bad)


@given(STARTED)
def test_the_order_in_which_channels_were_met_does_not_show(offset):
    reordered = copy.copy(offset)
    object.__setattr__(reordered, "channels", dict(reversed(offset.channels.items())))
    assert json.dumps(reordered.to_json()) == json.dumps(offset.to_json())


@given(STARTED)
def test_offsets_stand_in_sparks_own_shape(offset):
    shaped = offset.to_json()["offsets"]
    assert from_spark_offsets(shaped) == {tp: c.next_offset for tp, c in offset.channels.items()}
    assert as_spark_offsets(from_spark_offsets(shaped)) == shaped


@pytest.mark.parametrize("version", [8, 2, 1, 0, "3", None, 1.5])
def test_another_version_is_refused_by_name(version):
    offset_json = QueryOffset(batch=0, group="g", state_key="00", now_ms=0, coalesced=CommonState()).to_json()
    offset_json["version"] = version
    with pytest.raises(FormatError, match=rf"has version {version!r}; this keyedwm reads versions 3 to 7"):
        QueryOffset.from_json(offset_json)


def test_an_offset_of_another_source_is_refused_by_name():
    with pytest.raises(FormatError, match=r"another source, .*keyedwm migrate CHECKPOINT"):
        QueryOffset.from_json({"t": {"0": 5}})


@pytest.mark.parametrize(
    "field",
    [
        "batch",
        "channels",
        "coalesced",
        "group",
        "limits",
        "now_ms",
        "offsets",
        "resets",
        "retired",
        "settings",
        "state_key",
        "topic_ids",
    ],
)
def test_a_damaged_offset_is_refused_and_says_what_is_wrong(field):
    offset_json = QueryOffset(batch=NOT_STARTED, group="g", state_key="00", now_ms=0, coalesced=CommonState()).to_json()
    assert QueryOffset.from_json(offset_json)
    started = {
        **offset_json,
        "batch": 1,
        "offsets": {"t": {"0": 5}},
        "channels": {"t": {"0": [5, 0, 0, 0, 0, 0, None, []]}},
    }
    assert QueryOffset.from_json(started)
    with pytest.raises(FormatError, match=f"the checkpoint's offset of version 4 is damaged: KeyError.*{field}"):
        QueryOffset.from_json({name: value for name, value in started.items() if name != field})


@pytest.mark.parametrize("number", [None, "x", True, 1.5, []])
def test_a_number_that_is_none_is_refused_wherever_it_stands(number):
    axis = [5, "policy", 5]
    started = {
        **QueryOffset(batch=NOT_STARTED, group="g", state_key="00", now_ms=0, coalesced=CommonState()).to_json(),
        "batch": 1, "offsets": {"t": {"0": 5}},
    }  # fmt: skip
    channel = [5, 0, 0, 0, 0, 0, None, [], [0, *axis]]
    common = started["coalesced"]
    assert QueryOffset.from_json({**started, "channels": {"t": {"0": channel}}})
    for damaged in (
        {"channels": {"t": {"0": [*channel[:3], number, *channel[4:]]}}},
        {"channels": {"t": {"0": [*channel[:-1], [number, *axis]]}}},
        {"channels": {"t": {"0": channel}}, "resets": {"t": {"0": number}}},
        {"channels": {"t": {"0": channel}}, "coalesced": {**common, "emitted": [[0, number]]}},
        {"channels": {"t": {"0": channel}}, "coalesced": {**common, "top": [[number, 0]]}},
    ):
        with pytest.raises(FormatError, match="a whole number is expected"):
            QueryOffset.from_json({**started, **damaged})
