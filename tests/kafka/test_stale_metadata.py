"""A topic is missing when several answers in a row say so, however long each of them takes."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from keyedwm.kafka.client.errors import UnknownTopicError
from keyedwm.kafka.client.values import LIMITS
from keyedwm.kafka.requests import metadata as module
from keyedwm.kafka.requests.metadata import Metadata

THROTTLED_S = 5.0


@pytest.fixture
def partitions_after(monkeypatch):
    """Let each of these answers (None: no such topic) take as long as a throttled one; the last is repeated."""

    def partitions(*answers: tuple[int, ...] | None) -> tuple[int, ...]:
        pending_answers, now_s = list(answers), [0.0]
        clock = SimpleNamespace(monotonic=lambda: now_s[0], sleep=lambda _: None)
        monkeypatch.setattr(module, "time", clock)

        def refresh(_self, _topics):
            now_s[0] += THROTTLED_S
            answer = pending_answers.pop(0) if len(pending_answers) > 1 else pending_answers[0]
            return {} if answer is None else {"t": SimpleNamespace(leaders=dict.fromkeys(answer))}

        monkeypatch.setattr(Metadata, "_refresh", refresh)
        return Metadata(SimpleNamespace(config=SimpleNamespace(limits=LIMITS))).partitions(["t"])["t"]

    return partitions


def test_two_stale_answers_that_were_throttled_take_no_topic_away(partitions_after):
    assert partitions_after(None, None, (0, 1)) == (0, 1)


def test_a_topic_that_no_answer_knows_does_not_exist(partitions_after):
    with pytest.raises(UnknownTopicError, match="t"):
        partitions_after(None)
