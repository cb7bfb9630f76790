"""The planner's pause while nothing is new."""

from __future__ import annotations

import pytest

from pyspark_wm_source.driver import idle_pause
from pyspark_wm_source.driver.idle_pause import PAUSE_S, QUIET_PLANNINGS, IdlePause
from tests.tools import Record, produce


@pytest.fixture
def pauses(monkeypatch) -> list[float]:
    pauses_s: list[float] = []
    monkeypatch.setattr(idle_pause.time, "sleep", pauses_s.append)
    return pauses_s


def test_a_source_pauses_only_after_many_plannings_without_news(pauses):
    pause = IdlePause()
    for _ in range(QUIET_PLANNINGS):
        pause.after(is_new=False)
    assert pauses == []
    pause.after(is_new=False)
    assert pauses == [PAUSE_S]


def test_a_batch_ends_the_pauses(pauses):
    pause = IdlePause()
    for _ in range(QUIET_PLANNINGS + 1):
        pause.after(is_new=False)
    pause.after(is_new=True)
    pause.after(is_new=False)
    assert pauses == [PAUSE_S]


def test_an_idle_stream_pauses_and_a_record_ends_it(pauses, kafka, open_stream, topic_of):
    topic = topic_of()
    stream = open_stream(topic, idleTimeout="none")
    assert stream.plan()
    assert not any(stream.plan() for _ in range(QUIET_PLANNINGS + 1))
    assert pauses == [PAUSE_S]
    produce(kafka.bootstrap, topic, [Record(0, 1_700_000_000_000, b"a")])
    assert stream.plan()
    assert pauses == [PAUSE_S]
