"""The hints about coordinators."""

from __future__ import annotations

from keyedwm.kafka.requests import coordinators as module
from keyedwm.kafka.requests.coordinators import TRANSACTION, Coordinators


def test_a_process_that_lives_long_keeps_a_bounded_number_of_transactional_ids(monkeypatch):
    monkeypatch.setattr(module, "_MOST_KEPT", 3)
    monkeypatch.setattr(Coordinators, "_ask", lambda *_: 1)
    found = Coordinators(None)
    for n in range(100):
        assert found.find(f"id-{n}", TRANSACTION, None) == 1
    assert sorted(found._nodes) == [(TRANSACTION, f"id-{n}") for n in (97, 98, 99)]
