"""The soak's own answers: the stream, the reader of the copy, the check of the windows."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest

from keyedwm.core.errors import UnavailableError
from keyedwm.kafka.client.values import TopicPartition
from keyedwm.kafka.requests.fetch import Fetched
from tests.soak import checks
from tests.soak.__main__ import growth
from tests.soak.checks import CopyReader, Findings, check_windows
from tests.soak.samples import Sample
from tests.soak.stream import Stream

STREAM = Stream(first_ms=1_000_000, rate=800, seconds=40, keys=10)


def test_a_window_of_the_stream_is_what_its_records_say():
    offsets = np.arange(STREAM.records)
    counts, sums = np.zeros(STREAM.keys, int), np.zeros(STREAM.keys, int)
    for partition in range(STREAM.partitions):
        is_inside = STREAM.times_ms(offsets) // STREAM.window_ms == 1_010_000 // STREAM.window_ms
        for offset in offsets[is_inside].tolist():
            key = int(STREAM.keys_of(partition, np.array([offset]))[0])
            counts[key] += 1
            sums[key] += offset
    answer_counts, answer_sums = STREAM.window(1_010_000)
    assert counts.sum() == STREAM.rate * 10
    assert (counts.tolist(), sums.tolist()) == (answer_counts.tolist(), answer_sums.tolist())


def test_the_windows_that_the_last_records_close_end_a_lag_before_them():
    assert [*STREAM.closed_windows()] == [1_000_000, 1_010_000, 1_020_000]  # 1,039,950 - 1,000 is within the fourth


@pytest.mark.parametrize(
    ("offsets", "lost", "doubled", "reordered"),
    [
        ([0, 1, 2, 3], 0, 0, 0),
        ([0, 1, 3, 4], 1, 0, 0),
        ([0, 1, 1, 2], 0, 1, 0),
        ([0, 1, 2, 0], 0, 1, 1),
    ],
)
def test_the_reader_of_the_copy_counts_what_differs(offsets, lost, doubled, reordered):
    findings = Findings()
    reader = CopyReader(STREAM, "copy", findings)
    for piece in (offsets[:2], offsets[2:]):
        reader.take(0, np.array(piece))
    assert findings == Findings(lost, doubled, reordered)


def test_a_read_that_fails_half_way_is_not_repeated(monkeypatch):
    findings = Findings()
    reader = CopyReader(STREAM, "copy", findings)
    place = TopicPartition("copy", 0)
    ends = SimpleNamespace(latest=lambda _places, _isolation: {place: 4})

    def read_ranges(_cluster, ranges, *_):
        start = ranges[0].start
        values = pa.array([b"%012d" % offset for offset in (start, start + 1)])
        yield Fetched(0, place, SimpleNamespace(value=values), start + 2, done=start == 2)
        if start == 0:
            raise UnavailableError("the broker is away")

    monkeypatch.setattr(checks, "read_ranges", read_ranges)
    with pytest.raises(UnavailableError):
        reader.read(ends)
    reader.read(ends)
    assert (reader.expected[0], findings) == (4, Findings())


def test_memory_that_doubles_in_the_second_half_is_growth():
    samples = [Sample(at_s, 1, 100.0, 10.0 * at_s, 7, 3, 0.1, 9, 0.0) for at_s in (1.0, 26.0, 27.0, 36.0, 39.0)]
    assert growth(samples, STREAM, "java_mib") == 1.0
    assert growth(samples, STREAM, "python_mib") == 37.5 / 26.5
    with pytest.raises(SystemExit, match="no sample of java_mib"):
        growth(samples[:3], STREAM, "java_mib")


def _rows():
    columns = {"key": [], "n": [], "offsets": [], "start_ms": []}
    for start_ms in STREAM.closed_windows():
        counts, sums = STREAM.window(start_ms)
        columns["key"] += [b"%06d" % key for key in range(STREAM.keys)]
        columns["n"] += counts.tolist()
        columns["offsets"] += sums.tolist()
        columns["start_ms"] += [start_ms] * STREAM.keys
    return pa.table(columns)


def _one_more(counts):
    return [counts[0].as_py() + 1, *counts.to_pylist()[1:]]


@pytest.mark.parametrize(
    ("changed", "findings"),
    [
        (lambda rows: rows, Findings()),
        (lambda rows: rows.slice(1), Findings(lost=1)),
        (lambda rows: pa.concat_tables([rows, rows.slice(7, 1)]), Findings(doubled=1)),
        (lambda rows: rows.set_column(1, "n", [_one_more(rows["n"])]), Findings(wrong_windows=1)),
    ],
    ids=["exact", "a row is missing", "a row is doubled", "a count is wrong"],
)  # fmt: skip
def test_the_check_of_the_windows_counts_what_differs(changed, findings):
    seen = Findings()
    check_windows(changed(_rows()), STREAM, seen)
    assert seen == findings
