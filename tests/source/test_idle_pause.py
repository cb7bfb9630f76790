"""The planner's pause while nothing is new."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest

from pyspark_wm_source.driver import idle_pause
from pyspark_wm_source.driver.idle_pause import INTERVAL_S, PAUSE_S, QUIET_PLANNINGS, IdlePause
from tests.tools import Record, produce


@dataclass(slots=True)
class Clock:
    """A clock that moves by pauses, and by hand."""

    now_s: float = 1_000.0
    pauses_s: list[float] = field(default_factory=list)

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, pause_s: float) -> None:
        self.pauses_s.append(pause_s)
        self.now_s += pause_s


@pytest.fixture
def clock(monkeypatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(idle_pause, "time", clock)
    return clock


def plan_quietly(pause: IdlePause, clock: Clock, plannings: int, *, between_s: float = 0.01) -> None:
    for _ in range(plannings):
        clock.now_s += between_s
        pause.after(is_new=False)


def test_a_source_pauses_only_after_many_plannings_without_news(clock):
    pause = IdlePause()
    plan_quietly(pause, clock, QUIET_PLANNINGS)
    assert clock.pauses_s == []
    plan_quietly(pause, clock, 3)
    assert clock.pauses_s == [PAUSE_S] * 3


def test_a_batch_ends_the_pauses(clock):
    pause = IdlePause()
    plan_quietly(pause, clock, QUIET_PLANNINGS + 1)
    pause.after(is_new=True)
    plan_quietly(pause, clock, QUIET_PLANNINGS)
    assert clock.pauses_s == [PAUSE_S]


def test_an_idle_source_of_a_query_that_reads_another_source_never_pauses(clock):
    """A batch of the other source lies between two plannings."""
    pause = IdlePause()
    for _ in range(3 * QUIET_PLANNINGS):
        plan_quietly(pause, clock, 1, between_s=0.1)
    assert clock.pauses_s == []


def test_several_idle_sources_of_a_query_plan_every_interval_not_one_pause_after_another(clock):
    pauses = [IdlePause() for _ in range(4)]
    for _ in range(QUIET_PLANNINGS + 1):
        for pause in pauses:
            plan_quietly(pause, clock, 1, between_s=0.003)
    began_s, rounds = clock.now_s, 10
    for _ in range(rounds):
        clock.now_s += 0.01
        for pause in pauses:
            pause.after(is_new=False)
    assert (clock.now_s - began_s) / rounds <= INTERVAL_S + 0.01


def test_an_idle_stream_pauses_and_a_record_ends_it(monkeypatch, kafka, open_stream, topic_of):
    pauses: list[float] = []
    # Not the module's own function: threads of other tests sleep, too.
    monkeypatch.setattr(idle_pause, "time", SimpleNamespace(monotonic=time.monotonic, sleep=pauses.append))
    topic = topic_of()
    stream = open_stream(topic, idleTimeout="none")
    assert stream.plan()
    assert not any(stream.plan() for _ in range(QUIET_PLANNINGS + 1))
    assert pauses == [PAUSE_S]
    produce(kafka.bootstrap, topic, [Record(0, 1_700_000_000_000, b"a")])
    assert stream.plan()
    assert pauses == [PAUSE_S]
