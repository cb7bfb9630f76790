"""Where a query stands can be seen from its checkpoint alone, whatever its sink is."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from keyedwm.cli.main import main
from keyedwm.core.axis import AxisState, Counts
from keyedwm.core.coalescer import CommonState
from keyedwm.core.watermark import Status
from keyedwm.kafka.client.values import TopicPartition
from pyspark_wm_source.values.offsets import Channel, QueryOffset
from tests.source.scripted import Driver, Log, ScriptedCluster


def channel(watermark_ms: int | None, status: Status = Status.ACTIVE, bad: int = 0) -> Channel:
    axes = {} if watermark_ms is None else {0: AxisState((watermark_ms,), watermark_ms)}
    return Channel(next_offset=9, read=2, status=status, since_ms=5_000, counts=Counts(bad, 1), axes=axes)


def written(home: Path, channels: dict[int, Channel], *, committed: bool = True) -> Path:
    planned = QueryOffset(
        batch=3, group="keyedwm-1", state_key="ab", now_ms=9_000, coalesced=CommonState(emitted={0: 1_000}),
        channels={TopicPartition("orders", number): one for number, one in channels.items()},
    )  # fmt: skip
    (home / "offsets").mkdir(parents=True)
    (home / "commits").mkdir()
    (home / "offsets" / "3").write_text("\n".join(["v1", "{}", '{"logOffset":1}', json.dumps(planned.to_json())]))
    if committed:
        (home / "commits" / "3").write_text("v1\n{}")
    return home


def inspected(capsys: pytest.CaptureFixture[str], home: Path) -> str:
    assert main(["inspect", str(home)]) == 0
    return re.sub(r"[ │┃]+", " ", capsys.readouterr().out)


def test_a_checkpoint_without_a_ledger_shows_every_channel_and_all_that_hold_the_watermark(capsys, tmp_path):
    home = written(tmp_path, {0: channel(1_000), 1: channel(4_000), 2: channel(1_000), 10: channel(2_000, Status.IDLE)})
    said = inspected(capsys, home)
    assert f"checkpoint {home}: batch 3, committed; source 1, group keyedwm-1" in said
    assert "watermark: 1970-01-01T00:00:01.000Z, held by orders-0, orders-2, which are lowest" in said
    assert "orders-1 7 active 1970-01-01T00:00:04.000Z 1970-01-01T00:00:05.000Z 0 1" in said
    assert "orders-10 7 idle" in said


def test_channels_without_a_watermark_hold_before_all_others(capsys, tmp_path):
    said = inspected(capsys, written(tmp_path, {0: channel(1_000), 1: channel(None, bad=3)}, committed=False))
    assert "batch 3, planned, not committed yet" in said
    assert "held by orders-1, which has none" in said
    assert "orders-1 7 active none 1970-01-01T00:00:05.000Z 3 1" in said


@pytest.mark.parametrize(("count", "more"), [(1, ""), (5, ""), (7, "; 2 more likewise")])
def test_progress_names_all_partitions_that_hold_the_watermark_up_to_five(monkeypatch, count, more):
    logs = {TopicPartition("t", number): Log.of(3) for number in range(count)}
    driver = Driver(monkeypatch, ScriptedCluster(logs), startingOffsets="earliest")
    assert driver.plan()
    named = [f"t-{number} without a watermark: backlog 3" for number in range(min(count, 5))]
    assert driver.planner.reported()["held_by"] == {"0": "; ".join(named) + more}


def test_progress_names_no_partition_that_only_follows_the_slowest(monkeypatch):
    logs = {TopicPartition("t", number): Log.of(3) for number in range(3)}
    driver = Driver(monkeypatch, ScriptedCluster(logs), startingOffsets="earliest")
    driver.plan()
    driver.run_tasks({TopicPartition("t", 0): 500, TopicPartition("t", 1): 900, TopicPartition("t", 2): 500})
    driver.plan()
    held = driver.planner.reported()["held_by"]["0"].split("; ")
    assert [one.partition(":")[0] for one in held] == ["t-0 at 1970-01-01T00", "t-2 at 1970-01-01T00"]


def test_a_checkpoint_of_other_sources_is_refused_in_one_sentence(capsys, tmp_path):
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "0").write_text('v1\n{}\n{"orders":{"0":1}}')
    assert main(["inspect", str(tmp_path)]) == 2
    assert "nor has it a source of keyedwm" in capsys.readouterr().err
