"""Mistyped topics, patterns and offsets are told with what there is."""

from __future__ import annotations

import logging

import pytest

from keyedwm.cli.inspect import print_checkpoint
from keyedwm.cli.printable import PlainConsole
from keyedwm.core.errors import OptionError, StartBeyondEndError, UnavailableError
from keyedwm.kafka.client.config import ClientConfig
from keyedwm.kafka.client.errors import UnknownTopicError
from keyedwm.kafka.client.values import TopicPartition
from keyedwm.savepoint_files import Files
from pyspark_wm_source.driver import planner as planner_module
from pyspark_wm_source.driver.resolve_offsets import assigned
from pyspark_wm_source.options.start_offsets import Topics
from tests.source.scripted import Driver, Log, ScriptedCluster

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.mark.parametrize(
    ("log", "holds"), [(Log.of(9, first=4), "the offsets 4 to 8"), (Log.of(9, first=9), "no records")]
)
def test_a_start_beyond_the_end_names_the_option_the_partition_and_what_there_is(monkeypatch, log, holds):
    settings = {"startingOffsets": '{"t":{"0":900}}'}
    driver = Driver(monkeypatch, ScriptedCluster({A: log}), **settings)
    with pytest.raises(
        StartBeyondEndError, match=rf"^option startingOffsets: t-0 is to start at offset 900.*{holds}"
    ) as error:
        driver.plan()
    assert "[fix the offset, or set failOnDataLoss=false to start at the log's end]" in str(error.value)
    loose = Driver(monkeypatch, ScriptedCluster({A: log}), failOnDataLoss="false", **settings)
    assert loose.plan().channels[A].next_offset == 9


def test_a_pattern_that_matches_nothing_is_told_once_and_shown(monkeypatch, caplog, tmp_path, capsys):
    driver = Driver(monkeypatch, ScriptedCluster({}), subscribePattern="vists-.*", startingOffsets="earliest")
    why = "option subscribePattern: 'vists-.*' matches no topic that this client may see, nothing is read until one is"
    with caplog.at_level(logging.WARNING, "keyedwm.source"):
        assert driver.plan()
        assert driver.planner.reported()["nothing_selected"].startswith(why)
        for _ in range(3):
            assert driver.plan() is None
    assert caplog.text.count(why) == 1
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "0").write_text(f"v1\n{{}}\n{planner_module.json.dumps(driver.offset)}\n")
    assert print_checkpoint(PlainConsole.open(), Files(str(tmp_path)))
    assert "no partition is selected: its topics, or those of its pattern, are not there" in capsys.readouterr().out
    driver.cluster.logs[TopicPartition("vists-1", 0)] = Log.of(1)
    assert driver.plan()
    assert "nothing_selected" not in driver.planner.reported()


class NamingCluster(ScriptedCluster):
    """A cluster that refuses topics which it does not have."""

    def partitions(self, topics, *, missing_ok=False):
        partitions_found = super().partitions(topics)
        if not missing_ok and (missing := sorted(set(topics) - set(partitions_found))):
            raise UnknownTopicError.of(missing[0])
        return partitions_found


@pytest.mark.parametrize(
    ("topic", "hint"),
    [("site-visit", "; did you mean 'site-visits'?"), ("Site-Visits", "; did you mean 'site-visits'?"),
     ("orders", ""), ("_consumer_offsets", "")],
)  # fmt: skip
def test_an_unknown_topic_is_told_with_the_one_that_was_likely_meant(topic, hint, monkeypatch):
    logs = {TopicPartition(name, 0): Log.of(1) for name in ("site-visits", "t", "__consumer_offsets")}
    with pytest.raises(UnknownTopicError) as error:
        assigned(NamingCluster(logs), Topics(names=("t", topic)), running=False)
    assert error.value.message.endswith(f"topic {topic!r} does not exist{hint}")


def test_where_the_list_of_topics_cannot_be_had_the_topic_is_told_all_the_same(monkeypatch):
    cluster = NamingCluster({A: Log.of(1)})

    def unavailable():
        raise UnavailableError("no")

    monkeypatch.setattr(cluster, "topics", unavailable)
    with pytest.raises(UnknownTopicError, match=r"topic 'tt' does not exist \(KWM-2002\) \[create"):
        assigned(cluster, Topics(names=("tt",)), running=False)


@pytest.mark.parametrize("mechanism", ["AWS_MSK_IAM", "aws_msk_iam"])
def test_the_login_of_amazon_is_refused_with_the_way_that_works(mechanism):
    settings = {"bootstrap.servers": "b:9098", "security.protocol": "SASL_SSL", "sasl.mechanism": mechanism}
    with pytest.raises(OptionError, match=r"AWS_MSK_IAM is a class of Java; .*OAUTHBEARER.*amazon-msk-with-iam"):
        ClientConfig.from_options(settings)
