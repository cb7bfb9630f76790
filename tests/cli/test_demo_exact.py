"""The exact answer, lateness behind a partition's own watermark, and what a table of counts lost."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from examples.demo.exact import COUNTS, difference, exact_counts, late_behind_own_watermark
from examples.demo.flights import HOUR_MS, ORIGINS, Flights, read_flights

LAG_MS = 3 * HOUR_MS


def flights(**event_hours):
    """Flights by origin, event times in hours, in partition order."""
    rows = [
        {"key": origin, "partition": own, "event_ms": int(hour * HOUR_MS), "offset": at, "reach_ms": at, "value": ""}
        for own, origin in enumerate(ORIGINS)
        for at, hour in enumerate(event_hours.get(origin, []))
    ]
    return Flights(pa.Table.from_pylist(rows))


def counts(*cells):
    """Counts of (origin, hour, count)."""
    rows = [{"origin": origin, "hour_ms": hour * HOUR_MS, "count": count} for origin, hour, count in cells]
    return pa.Table.from_pylist(rows, schema=COUNTS)


def test_the_year_has_19434_hours_with_flights():
    year = read_flights()
    exact = exact_counts(year)
    assert exact.num_rows == 19_434
    assert sum(exact["count"].to_pylist()) == 328_521
    assert late_behind_own_watermark(year, LAG_MS).sum() == 2_464


def test_hours_are_counted_per_origin():
    hour_counts = exact_counts(flights(EWR=[1, 1.5, 2], LGA=[1]))
    assert sorted(zip(*hour_counts.to_pydict().values(), strict=True)) == [
        ("EWR", HOUR_MS, 2), ("EWR", 2 * HOUR_MS, 1), ("LGA", HOUR_MS, 1),
    ]  # fmt: skip


def test_a_record_is_late_below_its_own_partitions_highest_minus_the_lag():
    #              10   on time: nothing before it
    #               7   exactly at 10 - 3: on time
    #             6.9   late
    #              14   moves the watermark to 11
    #              10   late now, though it was on time before
    late = late_behind_own_watermark(flights(EWR=[10, 7, 6.9, 14, 10]), LAG_MS)
    assert late.tolist() == [False, False, True, False, True]


def test_another_partition_makes_nobody_late():
    late = late_behind_own_watermark(flights(EWR=[100], JFK=[10, 8], LGA=[50]), LAG_MS)
    assert not late.any()


@pytest.mark.parametrize("seed", range(20))
def test_no_cut_into_batches_makes_a_record_late_that_is_not_late_by_itself(seed):
    chance = np.random.default_rng(seed)
    hours = chance.uniform(0, 24, 60)
    late = late_behind_own_watermark(flights(JFK=hours), LAG_MS)
    event_ms = (hours * HOUR_MS).astype(np.int64)
    batch = np.sort(chance.integers(0, 8, 60))
    for number in range(1, 8):
        before = event_ms[batch < number]
        if len(before):
            below_watermark = event_ms[batch == number] < before.max() - LAG_MS
            assert (below_watermark <= late[batch == number]).all()


def test_the_exact_counts_have_lost_nothing():
    events = flights(EWR=[1, 1.5, 9, 1.2], JFK=[1, 2, 3])
    deviation = difference(events, exact_counts(events))
    assert (deviation.lost_rows.sum(), deviation.surplus, deviation.hours_wrong) == (0, 0, 0)


def test_a_short_cell_lost_its_last_arrivals():
    events = flights(EWR=[1, 9, 1.5, 1.2], LGA=[1])
    deviation = difference(events, counts(("EWR", 1, 1), ("EWR", 9, 1), ("LGA", 1, 1)))
    assert deviation.lost_rows.tolist() == [False, False, True, True, False]
    assert deviation.hours_wrong == 1


def test_a_cell_that_is_not_there_lost_all_its_records():
    deviation = difference(flights(EWR=[1, 1], JFK=[1]), counts(("EWR", 1, 2)))
    assert deviation.lost_rows.tolist() == [False, False, True]
    assert deviation.hours_wrong == 1


def test_an_empty_table_lost_everything():
    deviation = difference(flights(EWR=[1], JFK=[1]), counts())
    assert deviation.lost_rows.all()
    assert deviation.hours_wrong == 2


def test_a_count_too_many_is_a_wrong_hour_and_a_surplus():
    deviation = difference(flights(EWR=[1]), counts(("EWR", 1, 1), ("EWR", 1, 1), ("closing", 7, 3)))
    assert (deviation.lost_rows.sum(), deviation.surplus, deviation.hours_wrong) == (0, 4, 2)
