"""Writers to Kafka die at random points; a read_committed reader sees each record once, in order."""

from __future__ import annotations


def test_a_killed_commit_loses_doubles_and_reorders_nothing(kafka, topic_of, tmp_path, seed, capsys):
    """The sink alone, without Spark around it: most kills fall into the few milliseconds of a commit."""
    from tests.e2e.kafka_loop import killed

    told = killed(kafka.bootstrap, topic_of(3), tmp_path, seed, kills=12)
    with capsys.disabled():
        print(f"\nseed {seed}: {told}")
    assert told.endswith("lost 0, doubled 0, reordered 0")


def test_a_killed_driver_loses_doubles_and_reorders_nothing_in_kafka(kafka, tmp_path, seed, capsys):
    from tests.e2e.kafka_campaign import KafkaCampaign

    campaign = KafkaCampaign(kafka.bootstrap, tmp_path, seed)
    outcome = campaign.run(kills=2)
    with capsys.disabled():
        print(f"\nseed {seed}: {campaign.told()}")
    assert (outcome.lost, outcome.doubled, campaign.reordered) == (0, 0, 0)
