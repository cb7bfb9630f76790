"""Windows by a zone's clock against plain Python: one that walks along the clock, and the dates of `zoneinfo`."""

from __future__ import annotations

import pickle
import random
from collections import Counter
from collections.abc import Iterator
from datetime import date, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pytest

from keyedwm.core.errors import OptionError
from keyedwm.operators.aggregates import functions as agg
from keyedwm.operators.frames.partials import combine_rows
from keyedwm.operators.frames.plan import SlidingWindow, WindowPlan
from keyedwm.operators.frames.zoned import ZonedWindow, zone_rules
from keyedwm.operators.panes import Early, EveryBy
from keyedwm.operators.protocol import operator_of
from keyedwm.operators.state.store import MemoryStore
from keyedwm.spark.api.window_specs import hopping, sliding, tumbling
from tests.support.frame_stage import SOURCE, frame_stage

MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000
# Half an hour of summer time, 45 minutes of offset, a skipped day, changes around midnight, changes at 00:01.
ZONES = [
    "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu", "Pacific/Apia", "Africa/Casablanca",
    "America/Sao_Paulo", "America/Havana", "America/St_Johns", "Asia/Tehran", "Antarctica/Troll", "UTC",
]  # fmt: skip
EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001  as a clock shows it


def ms(moment: datetime) -> int:
    return round(moment.timestamp() * 1_000)


def local_time_ms(zone: ZoneInfo, time_ms: int) -> int:
    """What the clock shows, in ms since it showed the beginning of 1970."""
    local = datetime.fromtimestamp(time_ms // 1_000, timezone.utc).astimezone(zone).replace(tzinfo=None)
    return (local - EPOCH) // timedelta(milliseconds=1)


def frame_starts(zone: ZoneInfo, first_ms: int, last_ms: int, step_ms: int, months: int) -> Iterator[int]:
    """The beginnings of frames that somebody notes who looks at the clock every minute."""
    highest = before = label = None
    weeks = 3 * DAY if step_ms % (7 * DAY) == 0 else 0
    for time_ms in range(first_ms, last_ms, MINUTE):
        local = local_time_ms(zone, time_ms)
        is_back = before is not None and local < before
        repeats = is_back and step_ms and (before + MINUTE - local) % step_ms == 0  # whole frames come again
        highest = local if highest is None or repeats else max(highest, local)
        day = EPOCH + timedelta(milliseconds=highest)
        current_label = (day.year * 12 + day.month - 1) // months if months else (highest + weeks) // step_ms
        if (local + weeks) % step_ms == 0 if repeats else label is not None and current_label != label:
            yield time_ms
        before, label = local, current_label


def changes(zone: str, years: range) -> list[int]:
    return [at for at, _ in zone_rules(zone)[1:] if datetime.fromtimestamp(at / 1_000, timezone.utc).year in years]


@pytest.mark.parametrize("zone", ZONES)
def test_frames_begin_where_one_notes_it_who_walks_along_the_clock(zone, seed):
    rng = random.Random(f"{seed} {zone}")
    change_times = changes(zone, range(1971, 2060))
    moments = [*rng.sample(change_times, min(3, len(change_times))), rng.randrange(10**12) // MINUTE * MINUTE]
    if zone == "Pacific/Apia":
        moments.append(ms(datetime(2011, 12, 30, 10, tzinfo=timezone.utc)))
    steps = [15 * MINUTE, HOUR, 2 * HOUR, 12 * HOUR, DAY, 7 * DAY]
    for moment in moments:
        for step_ms, months in [(rng.choice(steps), 0), (DAY, 0), (HOUR, 0), (0, 1)][: 2 + 2 * (moment == moments[0])]:
            first, last = moment - 2 * DAY, moment + 36 * HOUR
            window = ZonedWindow(zone, step_ms, months)
            expected = [at for at in frame_starts(ZoneInfo(zone), first, last, step_ms, months) if at > first + DAY]
            low, high = window.frame_of(first + DAY), window.frame_of(last - MINUTE)
            numbers = np.arange(low + 1, high + 1)
            assert window.starts_of(numbers).tolist() == expected, (zone, moment, step_ms, months)


@pytest.mark.parametrize("zone", ZONES)
def test_every_time_lies_in_the_frame_between_its_start_and_the_next(zone, seed):
    rng = random.Random(f"{seed} {zone}")
    for step_ms, months in [(DAY, 0), (HOUR, 0), (0, 3), (7 * DAY, 0)]:
        window = ZonedWindow(zone, step_ms, months, 1, 12 * MINUTE)
        near = [at + rng.randrange(-3, 4) for at in changes(zone, range(1900, 2200))]
        far = [-(2**52), 2**52, 0, -1, 1]
        times = np.array([*near, *far, *(rng.randrange(-(2**42), 2**43) for _ in range(200))])
        frames = window.frames_of(times)
        assert (window.starts_of(frames) <= times).all()
        assert (window.starts_of(frames + 1) > times).all()
        assert frames.tolist() == [window.frame_of(one) for one in times.tolist()]
        assert window.starts_of(frames).tolist() == [window.start_of(one) for one in frames.tolist()]
        assert window.frames_of(window.starts_of(frames)).tolist() == frames.tolist()
        assert window.frame_of(0) == 0


@pytest.mark.parametrize("zone", [one for one in ZONES if one != "Pacific/Apia"])
def test_days_and_months_begin_where_zoneinfo_says(zone):
    info = ZoneInfo(zone)
    days, months = tumbling("1 day", zone=zone), tumbling("1 month", zone=zone)
    for number in range(900):
        day = date(2017, 1, 1) + timedelta(days=number)
        start = ms(datetime(day.year, day.month, day.day, tzinfo=info).astimezone(timezone.utc))
        if local_time_ms(info, start) % DAY == 0:  # a midnight that the clock shows
            assert days.start_of(days.frame_of(start)) == start
            assert days.frame_of(start - 1) == days.frame_of(start) - 1
            if day.day == 1:
                assert months.start_of(months.frame_of(start)) == start


def test_days_have_the_hours_that_the_clock_gives_them():
    window = tumbling("1 day", zone="Europe/Berlin")
    first = window.frame_of(ms(datetime(2026, 1, 1, 12, tzinfo=timezone.utc)))
    hours = Counter(np.diff(window.starts_of(np.arange(first, first + 366))).tolist())
    assert hours == {24 * HOUR: 363, 23 * HOUR: 1, 25 * HOUR: 1}
    hourly = tumbling("1 hour", zone="Europe/Berlin")
    summer, winter = (ms(datetime(2026, *at, tzinfo=timezone.utc)) for at in ((3, 28, 23), (10, 24, 22)))
    assert window.start_of(window.frame_of(summer)) == summer
    assert hourly.frame_of(summer + 23 * HOUR) - hourly.frame_of(summer) == 23
    assert hourly.frame_of(winter + 25 * HOUR) - hourly.frame_of(winter) == 25


def test_weeks_begin_on_monday_and_offsets_move_windows():
    berlin = ZoneInfo("Europe/Berlin")
    moment = ms(datetime(2026, 3, 29, 12, tzinfo=berlin))  # a Sunday

    def start(window):
        return datetime.fromtimestamp(window.start_of(window.frame_of(moment)) / 1_000, berlin).isoformat()

    assert start(tumbling("1 week", zone="Europe/Berlin")) == "2026-03-23T00:00:00+01:00"
    assert start(tumbling("1 week", "-1 day", zone="Europe/Berlin")) == "2026-03-29T00:00:00+01:00"
    assert start(tumbling("1 day", "6 hours", zone="Europe/Berlin")) == "2026-03-29T06:00:00+02:00"
    assert start(tumbling("1 quarter", zone="Europe/Berlin")) == "2026-01-01T00:00:00+01:00"
    assert start(tumbling("1 year", "3 days", zone="Europe/Berlin")) == "2026-01-04T00:00:00+01:00"
    assert start(tumbling("1 month")) == "2026-03-01T01:00:00+01:00"  # of UTC


def test_negative_offsets_are_those_that_give_the_same_windows():
    assert tumbling("1 day", "-2 hours") == SlidingWindow(DAY, DAY, 22 * HOUR)
    assert sliding("1 day", "1 hour", "-20 minutes") == sliding("1 day", "1 hour", "40 minutes")
    assert hopping("1 hour", "2 hours", "-1 hour") == hopping("1 hour", "2 hours", "1 hour")


SCHEMA = pa.schema([("k", pa.string()), ("event_time", pa.int64())])


def plan_of(window, **how) -> WindowPlan:
    return WindowPlan(schema=SCHEMA, by=("k",), window=window, aggregates=(("n", agg.count()),), **how)


def row_counts(plan: WindowPlan, batches) -> Counter:
    """The rows that each window told last; the operator is built anew from its blobs, and the plan travels."""
    store, counts_by_window = MemoryStore(), Counter()
    for rows, watermark_ms in batches:
        here = pickle.loads(pickle.dumps(plan))  # noqa: S301  our own
        operator = operator_of(here, store)
        table = pa.table([["a"] * len(rows), pa.array(rows, pa.int64())], schema=SCHEMA)
        outputs = [*operator.on_rows(0, combine_rows(here, table), None)]
        outputs += operator.on_watermark(0, 0, watermark_ms)
        for output in outputs:
            for row in output.rows.to_pylist():
                edges = tuple(ms(row["window"][edge]) for edge in ("start", "end"))
                counts_by_window[edges] = row["n"]
        store.apply(operator.drain())
    return counts_by_window


@pytest.mark.parametrize("zone", ["Europe/Berlin", "Australia/Lord_Howe", "Pacific/Apia", "America/Sao_Paulo"])
@pytest.mark.parametrize(
    "how",
    [{}, {"lateness_ms": 3 * HOUR}, {"early": Early(rows=2)}, {"early": Early(every_ms=5 * HOUR, by=EveryBy.EVENT)}],
)
def test_windows_hold_the_rows_of_their_days_for_any_cut_and_after_every_restart(zone, how, seed):
    rng = random.Random(f"{seed} {zone} {how}")
    for size, slide in [("1 day", "1 day"), ("3 days", "1 day"), ("2 hours", "1 hour")]:
        window = sliding(size, slide, zone=zone)
        change = rng.choice(changes(zone, range(2010, 2040)) or [0])
        rows = sorted(rng.randrange(change - 4 * DAY, change + 4 * DAY) for _ in range(120))
        starts = window.starts_of(np.arange(window.frame_of(rows[0]) - 4, window.frame_of(rows[-1]) + 6)).tolist()
        expected = {}
        for start, end in zip(starts, starts[window.frames_each :], strict=False):
            if count := sum(start <= row < end for row in rows):
                expected[start, end] = count
        batches, at = [], 0
        while at < len(rows):
            behind = at + rng.choice([1, 5, 40])
            batches.append((rows[at:behind], min(rows[behind:], default=rows[-1]) - rng.choice([0, HOUR])))
            at = behind
        assert row_counts(plan_of(window, **how), [*batches, ([], rows[-1] + 9 * DAY)]) == expected


def test_a_plan_tells_its_zone_and_not_the_data_of_it():
    berlin, vienna = (plan_of(tumbling("1 day", zone=zone)) for zone in ("Europe/Berlin", "Europe/Vienna"))
    assert berlin.digest() != vienna.digest()
    assert berlin.description()["window"]["zone"] == "Europe/Berlin"
    assert plan_of(ZonedWindow("Europe/Berlin", DAY, rules=((0, 0),))).digest() == berlin.digest()


def test_stage_one_in_the_source_takes_the_zone_and_refuses_other_rules():
    window = sliding("3 months", "1 month", zone="Europe/Berlin")
    stage = frame_stage({"k": "key"}, {"n": agg.count()}, window).stage(SOURCE, [""], {})
    assert stage.shipped.plan.window == window
    other = frame_stage({"k": "key"}, {"n": agg.count()}, ZonedWindow("Europe/Berlin", DAY, rules=((0, 0),)))
    with pytest.raises(
        OptionError, match="rules of the time zone 'Europe/Berlin' differ between this machine and the driver"
    ):
        other.stage(SOURCE, [""], {})


@pytest.mark.parametrize(
    ("sentence", "make"),
    {
        "the time zone 'Europe/Berln' is unknown: did you mean 'Europe/Berlin'": lambda: tumbling(
            "1 day", zone="Europe/Berln"
        ),
        "the time zone '../etc' is unknown": lambda: tumbling("1 day", zone="../etc"),
        "zone=5: the name of a time zone is expected": lambda: tumbling("1 day", zone=5),
        "the time zone '' is unknown": lambda: tumbling("1 month", zone=""),
        "every 7 hours: whole days are expected, or a divisor of a day": lambda: tumbling("7 hours", zone="UTC"),
        "take a slide of whole days, or a size below a day": lambda: sliding("1 day", "1 hour", zone="UTC"),
        "7 months every 2 months: the slide must be above 0 and divide": lambda: sliding("7 months", "2 months"),
        "a window of '30 days' every '1 month': whole months, quarters or years are expected for both": lambda: sliding(
            "30 days", "1 month"
        ),
        "offset of a window is 2505600000 ms": lambda: tumbling("1 month", "29 days"),
        "offset of a window is -1 day, it must be nearer to 0": lambda: tumbling("1 day", "-1 day", zone="UTC"),
        "more than 1200 months": lambda: tumbling("101 years"),
        "hopping: zone='UTC': windows that keep their messages": lambda: hopping("1 day", "1 day", zone="UTC"),
    }.items(),
)
def test_what_cannot_be_is_one_sentence(sentence, make):
    with pytest.raises(OptionError) as error:
        make()
    assert sentence in str(error.value)
