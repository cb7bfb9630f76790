"""`keyedwm watch --topic`: the ends of a topic without a query, and who would hold a watermark."""

from __future__ import annotations

import io
import json

from keyedwm.cli.main import main
from keyedwm.cli.printable import PlainConsole
from keyedwm.cli.query.topic import TopicPicture, topic_picture
from keyedwm.cli.watch.topic_table import topic_layout, topic_page
from keyedwm.cli.watch.view import FIRST_VIEW, View
from keyedwm.kafka.client.values import TopicPartition
from pyspark_wm_source.options.source_options import SourceOptions
from tests.cli.planted import T_MS, A, B
from tests.source.scripted import Log, ScriptedCluster
from tests.tools import Record, produce

OPTIONS = SourceOptions.parse({"subscribe": "t", "kafka.bootstrap.servers": "x:1"})


def picture(logs: dict[TopicPartition, Log], taken_ms: int = T_MS) -> TopicPicture:
    return topic_picture(ScriptedCluster(logs), OPTIONS, "t", taken_ms)


def drawn_lines(drawn) -> list[str]:
    out = PlainConsole(file=io.StringIO(), width=80, markup=False)
    out.print(drawn)
    return [line.rstrip() for line in out.file.getvalue().splitlines()]


def test_the_partition_whose_newest_record_is_oldest_would_hold():
    it = picture({A: Log(2, 10, 12, newest_ms=T_MS - 5_000), B: Log(0, 5, 5, newest_ms=T_MS - 60_000)})
    facts = [(one.channel, one.first, one.end, one.uncommitted) for one in it.partitions]
    assert facts == [(B, 0, 5, 0), (A, 2, 12, 2)]
    assert [one.channel for one in it.holders] == [B]
    lines = drawn_lines(topic_layout(it, width=80))
    assert "  lowest of the partitions: 2023-11-14T22:12:20.000Z, 60 s behind the clock" in lines
    assert "  held by t-1, whose newest record is of 2023-11-14 22:12:20" in lines
    assert any(line.startswith("  highest of all, as one watermark has it: 2023-11-14T22:13:15.000Z") for line in lines)


def test_a_partition_without_a_record_holds_all():
    it = picture({A: Log(0, 1, 1, newest_ms=T_MS), B: Log.of(0)})
    assert [one.channel for one in it.holders] == [B]
    assert "  held by t-1, without any record" in drawn_lines(topic_layout(it, width=80))


def test_rows_a_second_are_those_between_two_looks_and_what_does_not_fit_is_counted():
    logs = {TopicPartition("t", n): Log(0, n, n, newest_ms=T_MS) for n in range(100)}
    before = picture(logs)
    logs[A] = Log(0, 50, 50, newest_ms=T_MS)
    drawn, rows = topic_page(picture(logs, T_MS + 5_000), before, width=80, height=24, view=FIRST_VIEW)
    lines = drawn_lines(drawn)
    assert len(lines) <= 24
    assert lines[-2] == f"partitions 1 to {rows} of 100"
    (a,) = (line.split() for line in lines if line.startswith("t-0 "))
    assert a[:5] == ["t-0", "50", "50", "0", "10"]
    drawn, _ = topic_page(picture(logs), None, width=80, height=24, view=View(needle="t-9"))
    assert sum(line.startswith("t-9") for line in drawn_lines(drawn)) == 11


def test_a_real_topic_is_told_and_a_missing_one_refused(kafka, topic_of, capsys):
    topic = topic_of(2, retention_ms="-1")
    produce(kafka.bootstrap, topic, [Record(0, T_MS), Record(0, T_MS + 1_000)])
    arguments = ["watch", "--bootstrap", kafka.bootstrap, "--once", "--topic"]
    assert main([*arguments, topic, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [(one["channel"], one["end"], one["newest_ms"]) for one in document["partitions"]] == [
        (f"{topic}-1", 0, None), (f"{topic}-0", 2, T_MS + 1_000),
    ]  # fmt: skip
    assert main([*arguments, f"{topic}x"]) == 2
    message = capsys.readouterr().err
    assert f"did you mean '{topic}'" in message
    assert message.count("\n") == 1
