"""Queries that the tests of `watch` and `plot` look at; their kit is loaded with the first of them."""

from __future__ import annotations

import pytest


@pytest.fixture
def planted(monkeypatch, tmp_path):
    """A query of two partitions: 10 offsets of A read up to its watermark of 50 s, 5 of B up to 20 s."""
    from keyedwm.core.axis import Counts
    from tests.cli.planted import T_MS, A, B, Planted
    from tests.source.scripted import Log

    it = Planted(monkeypatch, tmp_path, {A: Log.of(10), B: Log.of(5)}, idleTimeout="none")
    it.plan()
    it.driver.run_tasks({A: T_MS + 50_000, B: T_MS + 20_000}, Counts(late=3))
    return it


@pytest.fixture
def thousand(monkeypatch, tmp_path):
    """A query of 1,000 partitions of a topic with a long name; partition 617 is the slowest."""
    from keyedwm.kafka.client.values import TopicPartition
    from tests.cli.planted import T_MS, Planted
    from tests.source.scripted import Log

    places = [TopicPartition("a-topic-with-quite-a-long-name", number) for number in range(1_000)]
    it = Planted(monkeypatch, tmp_path, {tp: Log.of(10) for tp in places})
    it.plan()
    it.driver.run_tasks({tp: T_MS + 1_000 * ((tp.partition - 617) % 1_000) for tp in places})
    return it
