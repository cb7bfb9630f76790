"""The driver dies at random points, and nothing of it is to be seen in the tables."""

from __future__ import annotations


def test_a_killed_driver_loses_nothing_and_doubles_nothing(kafka, tmp_path, seed, capsys):
    from tests.e2e.kill_campaign import Campaign

    outcome = Campaign(kafka.bootstrap, tmp_path, seed).run(kills=8)
    with capsys.disabled():
        print(f"\nseed {seed}: {outcome.told()}")
    assert (outcome.lost, outcome.doubled) == (0, 0)
    assert outcome.wrong_hours == []
    assert outcome.went_back == []
