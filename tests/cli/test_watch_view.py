"""`keyedwm watch` in a terminal: what fits, what moves, which keys it takes, and the example in its page."""

from __future__ import annotations

import io
import os
from pathlib import Path

from keyedwm.cli.printable import PlainConsole
from keyedwm.cli.query.picture import Holder, PartitionPicture, Picture, SourcePicture, WatermarkPicture
from keyedwm.cli.watch.live import show_live
from keyedwm.core.watermark import Status
from keyedwm.kafka.client.values import TopicPartition
from pyspark_wm_source.values.holding import Cause
from tests.cli.planted import T_MS, A, shown
from tests.source.scripted import Log


def test_a_terminal_of_80_by_24_shows_the_slowest_of_1000_partitions_and_counts_the_rest(thousand):
    before = thousand.picture()
    thousand.driver.clock += 2_000
    lines = shown(thousand.picture(), height=24, before=before).splitlines()
    assert len(lines) == 24
    assert max(map(len, lines)) <= 80
    head = next(number for number, line in enumerate(lines) if line.startswith("partition"))
    rows = [line.split() for line in lines[head + 1 : -1]]
    assert [row[0].rpartition("-")[2] for row in rows] == [str(617 + number) for number in range(len(rows))]
    assert lines[head].split() == ["partition", "backlog", "behind", "rows/s", "watermark", "idle", "late", "bad"]
    assert lines[-1].startswith(f"{1_000 - len(rows)} more partitions")
    assert all(row[3] == "0" and row[4:6] == ["2023-11-14", f"22:13:{20 + n}"] for n, row in enumerate(rows))


def test_a_wide_terminal_shows_positions_and_every_partition_without_a_height(thousand):
    lines = shown(thousand.picture(), width=200).splitlines()
    assert sum("a-topic-with-quite-a-long-name-" in line for line in lines) == 1_002 - 1  # and the line of the holder
    assert any(line.split()[:4] == ["a-topic-with-quite-a-long-name-617", "10", "10", "0"] for line in lines)


def test_rows_a_second_are_those_between_two_pictures(planted):
    before = planted.picture()
    planted.cluster.logs[A] = Log.of(110)
    planted.driver.clock += 5_000
    planted.plan()
    planted.driver.run_tasks({A: T_MS + 70_000})
    a = next(line for line in shown(planted.picture(), before=before).splitlines() if line.startswith("t-0"))
    assert a.split()[:4] == ["t-0", "0", "0", "20"]


def test_the_live_view_shows_new_pictures_until_q(planted, monkeypatch):
    master, slave = os.openpty()
    taken = []
    with os.fdopen(slave) as terminal:
        monkeypatch.setattr("sys.stdin", terminal)

        def look() -> Picture:
            planted.driver.clock += 1_000
            taken.append(planted.picture())
            os.write(master, b"xq" if len(taken) == 2 else b"x")
            return taken[-1]

        out = PlainConsole(file=io.StringIO(), width=80, height=24, force_terminal=True)
        show_live(out, planted.picture(), look, 0.05)
    os.close(master)
    assert len(taken) == 2
    assert "22:13:22" in out.file.getvalue()


def test_the_page_shows_what_the_view_shows():
    """The example of docs/watch.md, from the picture that it tells of."""
    now_ms = 1_795_692_000_000

    def partition(
        number: int, position: int, backlog: int, behind_s: int, watermark_s: int, **more
    ) -> PartitionPicture:
        facts = {
            "log_end": position + backlog, "status": Status.ACTIVE, "last_record_ms": None, "last_news_ms": now_ms,
            "idle_since_ms": None, "late": 0, "unreadable": 0, "future": 0, "control": 0, "resets": 0,
            "is_current": True,
        }  # fmt: skip
        return PartitionPicture(
            channel=TopicPartition("visits", number), position=position, backlog=backlog, behind_ms=1_000 * behind_s,
            watermarks_ms={0: now_ms - 1_000 * watermark_s}, **facts | more,
        )  # fmt: skip

    def picture(seconds: int) -> Picture:
        idle = {"status": Status.IDLE, "idle_since_ms": now_ms - 8_320_000}
        partitions = (
            partition(2, 870 * seconds, 5210, 405, 439, late=12),
            partition(0, 95 * seconds, 0, 0, 16),
            partition(1, 102 * seconds, 0, 0, 15),
            partition(3, 0, 0, 0, 8_327, **idle),
        )
        held = Holder(
            channel=partitions[0].channel, watermark_ms=now_ms - 439_000, cause=Cause.BACKLOG, since_ms=None
        )  # fmt: skip
        source = SourcePicture(
            source=0, group="g", batch=118, planned_ms=now_ms - 2_000, partitions=partitions, coordinator=None,
            watermarks=(
                WatermarkPicture(
                    key=0, watermark_ms=now_ms - 439_000, unmoved_since_ms=now_ms - 40_000, held_by=(held,)
                ),
            ),
        )  # fmt: skip
        return Picture(
            checkpoint="/data/visits.checkpoint", taken_ms=now_ms - 1_000 * (2 - seconds), planned_batch=118,
            committed_batch=117, committed_ms=now_ms - 3_000, publication=None, trouble=None, sources=(source,),
        )  # fmt: skip

    said = [line.rstrip() for line in shown(picture(2), before=picture(0)).splitlines()]
    page = (Path(__file__).parents[2] / "docs" / "watch.md").read_text()
    assert said == page.partition("```text\n")[2].partition("\n```")[0].splitlines()
