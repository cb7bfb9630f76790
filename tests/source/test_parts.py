"""Ranges cut into parts: more tasks, the same rows, the same coalesced watermark in every batch."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keyedwm.testing.broker import Broker
from pyspark_wm_source.driver.splits import equal_ranges, parts_of
from pyspark_wm_source.values.offsets import CutLimits
from tests.tools import Record, Stream, cluster_at, controls, events, produce

POLICIES = [
    {"watermarkLag": "1 second"},
    {"watermarkLag": "1 second", "watermarkThrottle": "frame", "frameSize": "5 seconds"},
    {"watermarkPolicy": "lagAndDelay", "watermarkDelay": "1 day"},
]


@given(start=st.integers(0, 10**12), size=st.integers(1, 10**9), parts=st.integers(1, 50))
def test_parts_follow_each_other_without_a_gap(start: int, size: int, parts: int) -> None:
    ranges = equal_ranges(start, start + size, parts)
    assert [first for first, _ in ranges] == [start, *(last for _, last in ranges[:-1])]
    assert ranges[-1][1] == start + size
    sizes = [last - first for first, last in ranges]
    assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize(
    ("sizes", "least_tasks", "most_records", "parts"),
    [
        ([4, 1000], 4, None, [1, 3]),
        ([10, 10, 1], 6, None, [3, 3, 1]),
        ([4], None, 4, [1]),
        ([4], None, 2, [2]),
        ([10, 3], None, 4, [3, 1]),
        ([100, 100], 1, None, [1, 1]),
        ([7], 3, 4, [4]),
        ([], 5, 5, []),
    ],
)
def test_ranges_are_cut_as_spark_cuts_them(sizes: list, least_tasks: int, most_records: int, parts: list) -> None:
    assert parts_of(sizes, CutLimits(least_tasks=least_tasks, most_records=most_records)) == parts


@given(
    sizes=st.lists(st.integers(1, 10**7), min_size=1, max_size=20),
    least_tasks=st.none() | st.integers(1, 64),
    most_records=st.none() | st.integers(1, 10**7),
)
def test_no_part_is_empty_or_larger_than_asked(sizes: list, least_tasks: int | None, most_records: int | None) -> None:
    counts = parts_of(sizes, CutLimits(least_tasks=least_tasks, most_records=most_records))
    assert all(1 <= count <= size for count, size in zip(counts, sizes, strict=True))
    if most_records is not None:
        assert all(-(-size // count) <= most_records for count, size in zip(counts, sizes, strict=True))


def records(seed: int, count: int) -> list[Record]:
    chance = random.Random(seed)
    return [
        Record(partition=i % 2, value=b"%d" % i, timestamp_ms=1_000_000 + i * 40 * (1 + i % 2) - chance.randrange(900))
        for i in range(count)
    ]


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: "-".join(policy.values()))
@pytest.mark.parametrize("is_lost", [False, True], ids=["committed", "lost"])
def test_parts_change_neither_rows_nor_the_coalesced_watermark(
    policy: dict, is_lost: bool, kafka: Broker, topic_of: Callable, open_stream: Callable[..., Stream], seed: int
) -> None:
    topic = topic_of(2)
    produce(kafka.bootstrap, topic, records(seed, 400))
    common = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "90", **policy}
    whole, in_parts = open_stream(topic, common), open_stream(topic, {**common, "minPartitions": "5"})
    cluster = cluster_at(kafka.bootstrap)
    while True:
        rows_in_parts, rows_whole = in_parts.batch(), whole.batch()
        assert in_parts.watermark_ms() == whole.watermark_ms()
        if rows_whole is None and rows_in_parts is None:
            break
        assert rows(rows_in_parts) == rows(rows_whole)
        if is_lost and in_parts.offset is not None:
            # The state of one part is lost: the whole range is read again and nothing else changes.
            positions = {(topic, p): (1, "") for p in range(2)}
            cluster.commit_offsets(f"{in_parts.offset['group']}-1", positions)
    assert (
        sum(len(in_parts.reader.partitions(a, b)) > 2 for a, b in zip(in_parts.log, in_parts.log[1:], strict=False))
        >= 4
    )
    assert watermark_rows(in_parts) == watermark_rows(whole)


def rows(table: object) -> list:
    return [] if table is None else sorted((e["partition"], e["offset"], e["value"]) for e in events(table))


def watermark_rows(stream: Stream) -> list:
    """The last watermark that each channel's own rows announced; in parts it comes a batch later, never another one."""
    last: dict[str, int] = {}
    for number in range(1, len(stream.log)):
        own = [c for c in controls(stream.read(number)) if c["kind"] == "watermark" and c["channel"]]
        for row in sorted(own, key=lambda row: row["watermark"]):
            assert row["channel"] not in last or row["watermark"] > last[row["channel"]]
            last[row["channel"]] = row["watermark"]
    return sorted(last.items())
