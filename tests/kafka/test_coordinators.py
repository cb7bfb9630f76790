"""The hints about coordinators."""

from __future__ import annotations

from types import SimpleNamespace

from keyedwm.kafka.client.values import WireLimits
from keyedwm.kafka.requests.coordinators import TRANSACTION, Coordinators


def test_a_process_that_lives_long_keeps_a_bounded_number_of_transactional_ids(monkeypatch):
    monkeypatch.setattr(Coordinators, "_ask", lambda *_: 1)
    coordinators = Coordinators(SimpleNamespace(config=SimpleNamespace(limits=WireLimits(coordinators=3))))
    for n in range(100):
        assert coordinators.find(f"id-{n}", TRANSACTION, None) == 1
    assert sorted(coordinators._nodes) == [(TRANSACTION, f"id-{n}") for n in (97, 98, 99)]
