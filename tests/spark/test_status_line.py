"""One line says where a query stands, and comes when there is something to say."""

from __future__ import annotations

import json

import pytest

from keyedwm.spark.inspect.progress import StatusLines
from tests.metrics.told import Told
from tests.source.plans import Simulation

HOUR_MS = 3_600_000


def facts_of(told: Told) -> dict:
    return json.loads(told.progress().sources[0].latestOffset)


@pytest.fixture
def told() -> Told:
    return Told(Simulation({0: [HOUR_MS], 1: [2 * HOUR_MS]}, idle_timeout_ms=None))


def test_the_line_names_the_watermark_its_delay_the_holder_and_the_backlog(told):
    told.progress()
    told.simulation.logs[0] += [HOUR_MS + 1]
    line = StatusLines(300).line("orders", 0, facts_of(told), now_s=3 * 3_600)
    assert line == (
        "query orders: watermark 1970-01-01T01:00:00.000Z, 2 h behind the clock, "
        "held by t-0 at 1970-01-01T01:00:00.000Z: backlog 1; backlog 0"
    )


def test_a_line_comes_once_in_an_interval_although_the_slowest_partition_changes(told):
    lines, found = StatusLines(300), []
    for second in range(0, 900, 10):
        told.simulation.logs[second // 10 % 2].append(HOUR_MS * (3 + second))
        found.append(lines.line("orders", 0, facts_of(told), now_s=float(second)) is not None)
    assert [10 * at for at, line in enumerate(found) if line] == [0, 300, 600]


def test_a_line_comes_when_the_watermark_has_stood_for_a_minute_and_when_it_moves_again(told):
    lines = StatusLines(3_600)
    told.progress()
    found = {}
    for second in range(0, 180, 10):
        told.simulation.logs[1].append(3 * HOUR_MS + second)
        if second == 120:
            told.simulation.logs[0].append(2 * HOUR_MS)
        if line := lines.line("orders", 0, facts_of(told), now_s=7_200.0 + second):
            found[second] = line
    assert list(found) == [0, 60, 130]
    assert ", unmoved for 60 s, held by t-0 at 1970-01-01T01:00:00.000Z: no record since " in found[60]
    assert "unmoved" not in found[130]


def test_each_source_and_query_has_lines_of_its_own_and_a_query_that_ended_begins_anew(told):
    lines, facts = StatusLines(300), facts_of(told)
    first = [lines.line(query, source, facts, now_s=0.0) for query in ("a", "b") for source in (0, 1)]
    assert [line.partition(":")[0] for line in first if line] == [
        "query a", "query a, source 1", "query b", "query b, source 1",
    ]  # fmt: skip
    lines.forget("a")
    assert lines.line("b", 0, facts, now_s=1.0) is None
    assert lines.line("a", 0, facts, now_s=1.0) is not None


def test_a_watermark_ahead_of_the_clock_is_not_called_late(told):
    told.progress()
    told.simulation.logs[0] += [HOUR_MS + 1]
    line = StatusLines(300).line("orders", 0, facts_of(told), now_s=3_000.0)
    assert "10 min ahead of the clock" in str(line)
