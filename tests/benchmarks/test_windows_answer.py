"""The exact answers of the window benchmarks, against windows assigned one by one."""

from __future__ import annotations

from collections import defaultdict

import pytest

from benchmarks.windows_answer import SESSION, Stream, answer

RECORDS = 5_000


def assigned(stream: Stream) -> dict[tuple[int, int], list[int]]:
    """The offsets of each (key, window start)."""
    rows = [(int(key), int(at)) for key, at in zip(stream.numbers(RECORDS), stream.after_ms(RECORDS), strict=True)]
    windows = defaultdict(list)
    places, filled = stream.places(RECORDS), defaultdict(int)
    opened: dict[int, tuple[int, int]] = {}
    for place, (key, at) in zip(places.tolist(), rows, strict=True):
        offset, filled[place] = filled[place], filled[place] + 1
        if stream.slide_ms == SESSION:
            start, last = opened.get(key, (at, at))
            start = at if at - last > stream.size_ms else start
            opened[key] = start, at
            starts = [start]
        else:
            newest = at // stream.slide_ms * stream.slide_ms
            starts = list(range(newest, newest - stream.size_ms, -stream.slide_ms))
        for start in starts:
            windows[key, start].append(offset)
    return windows


@pytest.mark.parametrize(
    "stream",
    [
        Stream(1_000, 1_000, keys=7),
        Stream(3_000, 500, keys=7, per_ms=2),
        Stream(600, SESSION, keys=4_000, per_ms=1),
        Stream(1_000, 1_000, keys=7, hot_partition=0.87),
        Stream(1_000, 1_000, keys=7, hot_key=0.5),
        Stream(1_000, 1_000, keys=7, partitions=1_000),
    ],
    ids=["tumbling", "sliding", "sessions", "hot partition", "hot key", "many partitions"],
)
def test_an_answer_is_that_of_windows_assigned_one_by_one(stream):
    windows = assigned(stream)
    told = answer(stream, RECORDS)
    assert told["results"] == len(windows)
    assert told["rows"] == sum(map(len, windows.values()))
    assert told["offsets"] == sum(map(sum, windows.values()))


def test_a_hot_partition_and_a_hot_key_have_their_share():
    places = Stream(1_000, 1_000, hot_partition=0.87).places(RECORDS)
    keys = Stream(1_000, 1_000, hot_key=0.5).numbers(RECORDS)
    assert (places == 0).mean() == pytest.approx(0.9, abs=0.02)
    assert (keys == 0).mean() == pytest.approx(0.5, abs=0.02)
