"""`keyedwm watch` in a terminal: what fits, what moves, which keys it takes, and the example in its page."""

from __future__ import annotations

import io
import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from keyedwm.cli import watch
from keyedwm.cli.main import main
from keyedwm.cli.plot.read import histories_of
from keyedwm.cli.printable import PlainConsole
from keyedwm.cli.query.picture import Holder, PartitionPicture, Picture, SourcePicture, WatermarkPicture, as_json
from keyedwm.cli.query.tables import Reach
from keyedwm.cli.watch.live import show_live
from keyedwm.cli.watch.table import page
from keyedwm.cli.watch.view import FIRST_VIEW, Sort, View, pressed
from keyedwm.core.axis import Counts
from keyedwm.core.watermark import Status
from keyedwm.formats.faults import Fault
from keyedwm.kafka.client.values import TopicPartition
from pyspark_wm_source.values.holding import Cause
from tests.cli.planted import T_MS, A, B, Planted, draw_text
from tests.source.scripted import Log


def test_a_terminal_of_80_by_24_shows_the_slowest_of_1000_partitions_and_counts_the_rest(thousand):
    before = thousand.picture()
    thousand.driver.clock += 2_000
    lines = draw_text(thousand.picture(), height=24, before=before).splitlines()
    assert len(lines) == 24
    assert max(map(len, lines)) <= 80
    head = next(number for number, line in enumerate(lines) if line.startswith("partition"))
    rows = [line.split() for line in lines[head + 1 : -2]]
    assert [row[0].rpartition("-")[2] for row in rows] == [str(617 + number) for number in range(len(rows))]
    assert lines[head].split() == ["partition", "backlog", "behind", "rows/s", "watermark", "idle", "late", "bad"]
    assert lines[-2] == f"partitions 1 to {len(rows)} of 1000, slowest first"
    assert lines[-1] == "q end  s sort: slowest  / filter  a active only: off  ↑↓ PgUp PgDn Home"
    assert all(row[3] == "0" and row[4:6] == ["2023-11-14", f"22:13:{20 + n}"] for n, row in enumerate(rows))


def test_a_wide_terminal_shows_positions_and_every_partition_without_a_height(thousand):
    lines = draw_text(thousand.picture(), width=200).splitlines()
    assert sum("a-topic-with-quite-a-long-name-" in line for line in lines) == 1_002 - 1  # and the line of the holder
    assert any(line.split()[:4] == ["a-topic-with-quite-a-long-name-617", "10", "10", "0"] for line in lines)


def test_a_watermark_outside_of_the_calendar_is_shown_with_all_its_digits(monkeypatch, tmp_path):
    it = Planted(monkeypatch, tmp_path, {A: Log.of(10)}, idleTimeout="none")
    it.plan()
    it.driver.run_tasks({A: -(2**62)})
    assert f"{-(2**62)} ms no" in draw_text(it.picture())


def test_rows_a_second_are_those_between_two_pictures(planted):
    before = planted.picture()
    planted.cluster.logs[A] = Log.of(110)
    planted.driver.clock += 5_000
    planted.plan()
    planted.driver.run_tasks({A: T_MS + 70_000})
    a = next(line for line in draw_text(planted.picture(), before=before).splitlines() if line.startswith("t-0"))
    assert a.split()[:4] == ["t-0", "0", "0", "20"]


def test_bad_values_are_counted_by_reason_where_there_are_any(planted):
    assert "bad values" not in draw_text(planted.picture())
    planted.plan()
    planted.cluster.logs.update({A: Log.of(11), B: Log.of(6)})
    planted.plan()
    planted.driver.run_tasks({A: T_MS + 51_000, B: T_MS + 21_000}, Counts(bad_values=((2, 3), (7, 1))))
    assert "bad values 8: cut 2, no_head 6" in draw_text(planted.picture()).splitlines()
    assert as_json(planted.picture())["sources"][0]["partitions"][0]["bad_values"] == {"no_head": 3, "cut": 1}


def test_no_rate_is_shown_where_a_position_went_back(planted):
    before = planted.picture()
    away = planted.reader().picture_without_broker(planted.driver.clock + 2_000, "no broker answers")
    earlier = replace(away.sources[0].partitions[0], position=before.sources[0].partitions[0].position - 1)
    (source,) = away.sources
    away = replace(away, sources=(replace(source, partitions=(earlier, *source.partitions[1:])),))
    assert "-0" not in draw_text(away, before=before).split()


def test_the_cause_is_not_cut_off_behind_long_names(monkeypatch, tmp_path):
    topic = "quarterly.departures.of.new.york.airports" * 5
    logs = {TopicPartition(topic, number): Log.of(5) for number in range(9)}
    it = Planted(monkeypatch, tmp_path, logs, idleTimeout="none")
    it.plan()
    it.driver.run_tasks(T_MS)
    it.driver.clock += 60_000
    lines = draw_text(it.picture(), height=24).splitlines()
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 80
    text = " ".join(line.strip() for line in lines)
    assert "and 6 more: no record, since 2023-11-14 22:13:20 (60 s ago)" in text
    assert draw_text(it.picture(), width=3, height=3)


def in_a_terminal(monkeypatch, planted, typed: list[bytes]) -> tuple[str, int]:
    """The live view while keys are typed, one piece after each look; what was shown, and how often it looked."""
    master, slave = os.openpty()
    looks = 0
    out = PlainConsole(file=io.StringIO(), width=80, height=24, force_terminal=True)

    def look() -> Picture:
        nonlocal looks
        looks += 1
        planted.driver.clock += 1_000
        os.write(master, typed.pop(0))
        return planted.picture()

    def lay(picture: Picture, before: Picture | None, view: View):
        return page(picture, before, width=80, height=24, view=view)

    with os.fdopen(slave) as terminal:
        monkeypatch.setattr("sys.stdin", terminal)
        show_live(out, planted.picture(), look, 0.05, lay)
    os.close(master)
    return out.file.getvalue(), looks


def plan_three_uses(planted: Planted) -> None:
    """A topic with three uses, and one with another watermark lag; source 1 is behind the others."""
    planted.uses = [{"group": "a"}, {"group": "b"}, {"group": "c"}, {"group": "d", "settings": "other"}]
    planted.cluster.logs[A] = Log.of(12)
    planted.plan()
    watermarks = json.dumps({name: planted.driver.offset[name] for name in ("coalesced", "channels")})
    planted.uses[1] |= json.loads(watermarks.replace(str(T_MS + 20_000), str(T_MS + 7_000)))
    planted.write()


def test_a_topic_with_several_uses_is_shown_once_by_its_slowest_source(planted, tmp_path, capsys):
    plan_three_uses(planted)
    text = draw_text(planted.reader().picture_without_broker(planted.driver.clock, "away"))
    heads = [line.rstrip() for line in text.splitlines() if line.startswith("source")]
    assert [head.split(":")[0] for head in heads] == [
        "sources 0, 1 and 2 (t) read the same; the slowest, source 1, is shown", "source 1",
        "source 3 (t)", "source 3",
    ]  # fmt: skip
    assert draw_text(planted.picture(), height=24).count("\n") <= 24
    assert [one.alike for one in planted.picture().sources] == [(0, 1, 2)] * 3 + [(3,)]
    assert main(["inspect", str(tmp_path)]) == 0
    inspected = capsys.readouterr().out
    assert inspected.count("sources 0, 1 and 2 (t) read the same; the slowest, source 1, is shown") == 1
    assert inspected.count("Channels at the start of batch") == 2
    drawn = histories_of(str(tmp_path), Reach(), 10)
    assert [one.name for one in drawn.each] == [
        "sources 0, 1 and 2 (t) read the same; the slowest, source 1, is shown", "source 3 (t)",
    ]  # fmt: skip


def test_the_live_view_waits_for_the_first_batch_of_a_query(tmp_path, monkeypatch, capsys):
    """From a checkpoint that does not exist on: the query comes to its first batch between two looks."""
    place, pictures = tmp_path / "checkpoint", []

    def begin() -> None:
        (place / "metadata").write_text("{}")

    def plan() -> None:
        Planted(monkeypatch, place, {A: Log.of(5)}).plan(committed=False)

    steps = iter([place.mkdir, begin, plan])

    def show(out, first, look, every_s, lay, *, is_over=lambda _picture: False):
        picture = first
        while not isinstance(picture, Picture):
            pictures.append("".join(str(line) for line in lay(picture, None, FIRST_VIEW)[0].renderables))
            next(steps)()
            picture = look()
            if is_over(picture):
                return True
        pictures.append(picture.planned_batch)
        return False

    monkeypatch.setattr(watch, "show_live", show)
    monkeypatch.setattr(PlainConsole, "open", lambda: PlainConsole(file=io.StringIO(), width=200, force_terminal=True))
    assert main(["watch", str(place)]) == 0
    waits = "waiting for the first batch of its query, a look every 2 s"
    pictures[:3] = [" ".join(line.split()) for line in pictures[:3]]  # lines are cut where a path is long
    assert pictures[0].startswith(f"{place} does not exist; {waits}")
    assert pictures[1].startswith(f"{place} is no checkpoint; {waits}")
    assert pictures[2].startswith(f"the query of {place} has planned no batch yet: there is nothing to see; {waits}")
    assert pictures[3:] == [0]


def test_the_live_view_shows_new_pictures_until_q(planted, monkeypatch):
    text, looks = in_a_terminal(monkeypatch, planted, [b"x", b"xq"])
    assert looks == 2
    assert "22:13:22" in text


def test_a_key_changes_the_view_before_the_next_look(planted, monkeypatch):
    text, _ = in_a_terminal(monkeypatch, planted, [b"s", b"/-1\r", b"q"])
    assert "sort: backlog" in text
    assert "filter '-1'" in text
    assert text.rindex("t-0 ") < text.rindex("t-1 ")


def test_keys_sort_filter_and_turn_pages(thousand):
    partitions = thousand.source().partitions
    view = pressed(FIRST_VIEW, b"sssss", 10)
    assert view.sort is Sort.NAME
    assert [one.channel.partition for one in view.selected(partitions)[:3]] == [0, 1, 2]
    assert pressed(view, b"S", 10).sort is Sort.SILENT
    view = pressed(view, b"\x1b[6~\x1b[B\x1b[B\x1b[A", 10)
    assert view.window(1_000, 10) == slice(11, 21)
    assert pressed(view, b" " * 200, 10).window(1_000, 10) == slice(990, 1_000)
    assert pressed(view, b"\x1b[H", 10).first == 0
    view = pressed(view, b"/-61\x7f1x\x7f", 10)
    assert (view.needle, view.is_typing) == ("-61", True)
    assert [one.channel.partition for one in view.selected(partitions)] == [61, *range(610, 620)]
    assert pressed(view, b"q", 10).needle == "-61q"
    filtered = pressed(view, b"\r", 10)
    assert (filtered.needle, filtered.is_typing) == ("-61", False)
    assert pressed(view, b"\x1b", 10).needle == pressed(filtered, b"\x1b", 10).needle == ""
    assert pressed(filtered, b"\x1b[1;5C", 10) == filtered  # a key that is none of ours
    assert pressed(filtered, b"q", 10).is_over
    assert pressed(filtered, b"", 10).is_over


def test_what_is_filtered_away_is_counted(thousand):
    text = draw_text(thousand.picture(), view=View(needle="-61"))
    assert text.splitlines()[-1] == "partitions 1 to 11 of 11 of 1000, slowest first"


def test_idle_partitions_can_be_left_out(monkeypatch, tmp_path):
    it = Planted(monkeypatch, tmp_path, {A: Log.of(1), B: Log.of(1)}, idleTimeout="10 seconds")
    it.plan()
    it.driver.run_tasks({A: T_MS, B: T_MS})
    it.driver.clock += 11_000
    it.cluster.logs[A] = Log.of(2)
    it.plan()
    it.driver.run_tasks({A: T_MS + 1})
    partitions = it.source().partitions
    assert [one.channel for one in pressed(FIRST_VIEW, b"a", 10).selected(partitions)] == [A]


def test_the_page_shows_what_the_view_shows():
    """The example of docs/how-to/watch.md, from the picture that it tells of."""
    now_ms = 1_795_692_000_000

    def partition(
        number: int, position: int, backlog: int, behind_s: int, watermark_s: int, **more
    ) -> PartitionPicture:
        facts = {
            "log_end": position + backlog, "status": Status.ACTIVE, "last_record_ms": None, "last_news_ms": now_ms,
            "idle_since_ms": None, "late": 0, "unreadable": 0, "future": 0, "bad_values": {}, "control": 0, "resets": 0,
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
        holder = Holder(
            channel=partitions[0].channel, watermark_ms=now_ms - 439_000, cause=Cause.BACKLOG, since_ms=None
        )  # fmt: skip
        source = SourcePicture(
            source=0, group="g", batch=118, planned_ms=now_ms - 2_000, partitions=partitions, coordinator=None,
            alike=(0,), watermarks=(
                WatermarkPicture(
                    key=0, watermark_ms=now_ms - 439_000, unmoved_since_ms=now_ms - 40_000, held_by=(holder,)
                ),
            ),
        )  # fmt: skip
        return Picture(
            checkpoint="/data/visits.checkpoint", taken_ms=now_ms - 1_000 * (2 - seconds), planned_batch=118,
            committed_batch=117, committed_ms=now_ms - 3_000, publication=None, trouble=None, sources=(source,),
        )  # fmt: skip

    lines = [line.rstrip() for line in draw_text(picture(2), before=picture(0)).splitlines()]
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "watch.md").read_text()
    assert lines == page.partition("```text\n")[2].partition("\n```")[0].splitlines()


@pytest.mark.parametrize(("name", "place"), [("avro-confluent", "avro"), ("protobuf-confluent", "proto")])
def test_a_query_of_values_with_a_schema_is_watched_and_inspected_while_its_registry_is_away(
    monkeypatch, tmp_path, capsys, name, place
):
    options = {
        "value.format": name, "schemaRegistry.url": "http://127.0.0.1:9", "schemaRegistry.cache": "none",
        "eventTime": f"{place}:$.at", "columns": f"{place}:$.shop, event_time", "onBadValue": "null",
    }  # fmt: skip
    it = Planted(monkeypatch, tmp_path, {A: Log.of(10), B: Log.of(5)}, idleTimeout="none", **options)
    it.plan()
    it.driver.run_tasks({A: T_MS + 50_000, B: T_MS + 20_000}, Counts(bad_values=((Fault.CUT, 2),)))
    assert "bad values 4: cut 4" in draw_text(it.picture())
    it.plan()
    assert main(["watch", str(it.directory), "--once"]) == 0
    assert "bad values 4: cut 4" in capsys.readouterr().out
    assert main(["inspect", str(it.directory)]) == 0
    assert capsys.readouterr().out.count("cut 2") == 2
