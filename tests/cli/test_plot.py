"""`keyedwm plot` draws what the offset log, the commit log and the sink's record tell, and no more."""

from __future__ import annotations

import json
import os
import re
from dataclasses import replace

import numpy as np
import pytest
from matplotlib.figure import Figure

from keyedwm.cli import plot
from keyedwm.cli.main import main
from keyedwm.cli.plot import page_of
from keyedwm.cli.plot.history import Histories, Track, Unit, bounds_of, spans
from keyedwm.cli.plot.image import Line, draw
from keyedwm.cli.plot.read import histories_of
from keyedwm.cli.query.tables import Reach
from keyedwm.core.axis import Counts
from keyedwm.kafka.client.values import TopicPartition
from keyedwm.kafka.requests.transactions import Transaction
from pyspark_wm_sink.batch.record import ChannelRecord, Record
from pyspark_wm_sink.kafka.ledger import Entry, Ledger
from pyspark_wm_sink.options.sink_options import SnapshotMode
from tests.cli.planted import T_MS, A, B, Planted
from tests.sink.delta_sink import how, stage_rows
from tests.source.scripted import Log


@pytest.fixture
def past(monkeypatch, tmp_path):
    """A query whose partition B falls silent and idle, and whose A has two late rows in the second of four batches."""
    it = Planted(monkeypatch, tmp_path, {A: Log.of(10), B: Log.of(5)}, idleTimeout="10 seconds")
    for number, (a, late) in enumerate(((10, 0), (14, 2), (20, 2), (21, 2))):
        it.cluster.logs[A] = Log.of(a)
        it.driver.clock = T_MS + 8_000 * number
        it.plan()
        it.driver.run_tasks({A: T_MS + 1_000 * a, B: T_MS + 500}, Counts(late=late))
    for number in range(4):
        set_time(tmp_path / "offsets" / str(number), T_MS + 8_000 * number + 5)
        set_time(tmp_path / "commits" / str(number), T_MS + 8_000 * number + 705)
    return it


def set_time(path, time_ms: int) -> None:
    os.utime(path, ns=(time_ms * 1_000_000, time_ms * 1_000_000))


def of(it: Planted, most: int = 1_000) -> Histories:
    return histories_of(str(it.directory), Reach(), most)


def bars(histories: Histories) -> dict[str, tuple]:
    return {one.title: one.values for one in histories.each[0].bars}


def test_watermarks_are_those_at_the_start_of_each_batch_and_the_highest_is_that_of_spark(past):
    (one,) = of(past).each
    assert (one.name, one.batches) == ("source 0", (0, 1, 2, 3))
    assert one.at_ms == tuple(T_MS + 8_000 * number for number in range(4))
    a, b = one.tracks
    assert (a.name, a.watermarks_ms) == ("t-0", (None, T_MS + 10_000, T_MS + 14_000, T_MS + 20_000))
    assert (b.name, b.watermarks_ms) == ("t-1", (None, T_MS + 500, T_MS + 500, T_MS + 500))
    assert one.coalesced_ms[:2] == (None, T_MS + 500)
    assert one.coalesced_ms == tuple(past_watermark(past, number) for number in range(4))
    assert one.highest_ms == a.watermarks_ms
    assert one.lowest_ms == b.watermarks_ms


def past_watermark(it: Planted, number: int) -> int | None:
    line = (it.directory / "offsets" / str(number)).read_text().splitlines()[2]
    emitted = json.loads(line)["coalesced"]["emitted"]
    return emitted[0][1] if emitted else None


def test_late_rows_belong_to_the_batch_that_read_them_and_the_last_one_cannot_tell(past):
    assert bars(of(past))["Late rows of each batch"] == (0, 2, 0, None)
    assert bars(of(past))["Offsets read by each batch"] == (15, 4, 6, 1)
    assert "Unreadable event times of each batch" not in bars(of(past))
    past.cluster.logs[A] = Log.of(22)
    past.plan()
    past.driver.run_tasks({A: T_MS + 22_000}, Counts(late=2, bad_values=((2, 3), (7, 1))))
    past.cluster.logs[A] = Log.of(23)
    past.plan()
    assert bars(of(past))["Bad values of each batch"] == (0, 0, 0, 0, 4, None)


def test_an_idle_spell_lasts_until_the_batch_that_ends_it(past):
    (one,) = of(past).each
    assert [track.name for track in one.idle_tracks()] == ["t-1"]
    assert list(spans(one.tracks[1].idle, one.at_ms)) == [(T_MS + 16_000, T_MS + 24_000)]
    assert list(spans((True, False, True), (1, 2, 3))) == [(1, 2), (3, 3)]


def test_a_batch_lasted_from_its_planning_to_its_commit(past):
    (past.directory / "commits" / "3").unlink()
    assert bars(of(past))["Duration of each batch"] == (700, 700, 700, None)


def test_a_copied_checkpoint_tells_no_durations(past):
    for number in range(4):
        for log in ("offsets", "commits"):
            set_time(past.directory / log / str(number), T_MS + 10**9)
    assert bars(of(past))["Duration of each batch"] == (None,) * 4


def test_the_ledger_tells_the_rows_that_were_published(past):
    ledger = Ledger(past.directory / "keyedwm")
    record = Record(
        query="q", run="r", batch=1, attempt="a", snapshot=1, rows=9, ignored=0, channels={}, coalesced={}
    )  # fmt: skip
    entry = Entry(batch=1, record=record, transactions=(Transaction("t", 1, 0),))
    with ledger.locked():
        ledger.decide(entry)
        assert bars(of(past)).get("Rows published by each batch") is None
        ledger.mark_published(entry)
    assert bars(of(past))["Rows published by each batch"] == (None, 9, None, None)


def test_only_the_newest_batches_are_read(past):
    assert of(past, 2).each[0].batches == (2, 3)


def test_the_slowest_partitions_have_lines_and_the_others_a_band(past):
    whole = of(past)
    (one,) = whole.slowest(1).each
    assert ([track.name for track in one.tracks], one.left_out) == (["t-1"], 1)
    assert (one.lowest_ms, one.highest_ms) == (whole.each[0].lowest_ms, whole.each[0].highest_ms)
    assert whole.slowest(1).summary() == "source 0, 4 batches, 1 partitions and the band of 1 more"


def test_one_watermark_for_all_never_goes_back():
    tracks = [
        Track(name=str(n), watermarks_ms=of, idle=(False,) * 3) for n, of in enumerate(((5, 6, None), (9, 4, None)))
    ]
    assert bounds_of(tracks, 3) == ((5, 4, None), (9, 9, 9))


def test_a_table_tells_the_rows_of_its_batches_at_the_times_of_its_commits(tmp_path, capsys):
    from pyspark_wm_sink.tables.publish import publish

    to = how(tmp_path / "table", SnapshotMode.BATCH)
    for batch in (0, 1):
        publish(to, [stage_rows(to, [1, 2], batch, "q")], batch=batch)
    publish(replace(to, is_shared=True), [stage_rows(to, [3], 0, "p")], batch=0)
    first, second = histories_of(str(tmp_path / "table"), Reach(), 1_000).each
    assert [(one.name, one.batches) for one in (first, second)] == [("query p", (0,)), ("query q", (0, 1))]
    assert second.bars[0].values == (2, 2)
    assert second.at_ms[0] < second.at_ms[1] < first.at_ms[0]
    for ending in ("html", "svg"):  # rows without control rows tell no watermark
        assert main(["plot", str(tmp_path / "table"), "-o", str(tmp_path / f"x.{ending}")]) == 0
    assert "query q, 2 batches, 0 partitions" in capsys.readouterr().out


def test_a_record_of_an_aggregate_gives_the_lowest_watermark_of_its_active_channels(tmp_path):
    from keyedwm.cli.plot.read import _of_query
    from pyspark_wm_sink.batch.record import Published

    def at(batch: int, idle: bool) -> Published:
        channels = {
            "window#10": ChannelRecord(idle=idle, watermarks={0: 4_000 + batch}),
            "window#2": ChannelRecord(watermarks={0: 9_000}),
        }
        record = Record(
            query="q", run="r", batch=batch, attempt="a", snapshot=batch, rows=10, ignored=0, channels=channels,
            coalesced={},
        )  # fmt: skip
        return Published(batch, T_MS + batch, record)

    one = _of_query("q", 0, [at(0, idle=False), at(1, idle=True)])
    assert [track.name for track in one.tracks] == ["window#10", "window#2"]
    assert one.coalesced_ms == (4_000, 9_000)
    assert one.bars[0].values == (10, 10)
    assert one.bars[0].unit is Unit.ROWS
    # Its buckets have seen the coalesced watermark only, so that of one query in Spark is not known.
    histories = Histories(title="t", about="", each=(one,))
    assert not one.has_spark_watermark
    assert not figures_of(page_of(histories))["charts"][0]["hasSpark"]
    draw(histories, tmp_path / "x.svg")
    assert "Spark: one watermark" not in (tmp_path / "x.svg").read_text()


def figures_of(page: str) -> dict:
    return json.loads(re.search(r'id="figures">(.*?)</script>', page, re.DOTALL)[1])


def test_the_page_holds_all_that_it_shows_and_asks_no_network(past, tmp_path, capsys):
    out = tmp_path / "out.html"
    assert main(["plot", str(past.directory), "-o", str(out)]) == 0
    assert capsys.readouterr().out == f"{out}: source 0, 4 batches, 2 partitions\n"
    page = out.read_text()
    assert not re.search(
        r"""(?:src|href)=["'](?!data:)|@import|url\((?!#)|fetch\(|https?://(?!www\.w3\.org/2000/svg)""", page
    )
    (chart,) = figures_of(page)["charts"]
    assert chart["tracks"][1] == {
        "name": "t-1", "values": [None, T_MS + 500, T_MS + 500, T_MS + 500], "idle": [[T_MS + 16_000, T_MS + 24_000]],
    }  # fmt: skip
    assert chart["coalesced"] == list(of(past).each[0].coalesced_ms)
    assert [bar["title"] for bar in chart["bars"]] == list(bars(of(past)))


def test_a_name_that_others_chose_does_nothing_in_the_page(monkeypatch, tmp_path):
    it = Planted(monkeypatch, tmp_path, {TopicPartition("t", 0): Log.of(1)})
    it.plan()
    histories = of(it)
    page = page_of(
        Histories(title="</script><script>alert(1)</script>\x1b<!--\u2028", about=histories.about, each=histories.each)
    )
    assert "<script>alert" not in page
    assert page.count("</script>") == 2
    assert figures_of(page)["title"].startswith("</script><script>alert(1)")


@pytest.mark.parametrize(("ending", "begins"), [(".png", b"\x89PNG"), (".svg", b"<?xml")])
def test_a_picture_is_drawn_of_the_same(past, tmp_path, ending, begins):
    out = tmp_path / f"out{ending}"
    assert main(["plot", str(past.directory), "-o", str(out)]) == 0
    drawn = out.read_bytes()
    assert drawn.startswith(begins)
    if ending == ".svg":
        for text in (
            "t-1",
            "keyedwm: the coalesced watermark",
            "Spark: one watermark for all",
            "Late rows of each batch",
            "Idle partitions",
        ):
            assert text in drawn.decode()


@pytest.mark.parametrize(
    ("values", "dots"),
    [([None, 5], [1]), ([5], [0]), ([1, 2, None, 4], [3]), ([None, 1, 2], []), ([None, None], [])],
)
def test_a_watermark_without_a_batch_beside_it_is_a_dot_of_the_picture(values, dots):
    panel = Figure().subplots()
    at = np.arange(len(values), dtype=np.float64)
    Line("red", width=1.0, style="-", label=None, layer=2).draw(panel, at, np.array(values, np.float64))
    drawn = [x for line in panel.lines if line.get_marker() == "o" for x in line.get_xdata()]
    assert drawn == dots


def test_many_partitions_are_a_band_in_both(thousand, tmp_path):
    for ending in ("html", "svg"):
        assert main(["plot", str(thousand.directory), "-o", str(tmp_path / f"out.{ending}")]) == 0
    assert figures_of((tmp_path / "out.html").read_text())["charts"][0]["leftOut"] == 970
    assert "970 more partitions" in (tmp_path / "out.svg").read_text()


FOREIGN = 'v1\n{}\n{"t":{"0":5}}\n'


@pytest.mark.parametrize(
    ("files", "arguments", "sentence"),
    [
        ({}, [], "is neither the checkpoint of a query nor a Delta table"),
        ({"metadata": "{}"}, [], "has planned no batch yet"),
        ({"offsets/0": ""}, [], "offsets/0 is damaged: a version, the settings of the batch and a line for each"),
        ({"offsets/0": 'v1\n{}\n{"batch": 1, "chan'}, [], "offsets/0 is damaged: the line of source 0"),
        ({"offsets/0": FOREIGN}, [], "is the checkpoint of a query without a keyedwm source"),
        (
            {"offsets/0": "v1\n{}\n" + '{"state_key":"", "version":99}'},
            [],
            "offsets/0: the checkpoint's offset has version 99",
        ),
        ({}, ["-o", "x.pdf"], "-o x.pdf: a file that ends in .html, .png or .svg is expected"),
        ({}, ["-o", "/no/such/x.html"], "there is no directory /no/such"),
        ({}, ["-o", ""], "-o is empty"),
        ({}, ["--last", "0"], "--last: '0' is wrong"),
        ({}, ["--partitions", "x"], "--partitions: 'x' is wrong"),
        ({}, ["--storage", "a"], "--storage: NAME=VALUE is expected"),
    ],
)
def test_what_cannot_be_drawn_is_one_sentence(tmp_path, capsys, files, arguments, sentence):
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert main(["plot", str(tmp_path), *arguments]) == 2
    message = capsys.readouterr().err
    assert sentence in message
    assert message.count("\n") == 1


def test_a_place_that_is_not_there_and_one_with_a_login_are_one_sentence(tmp_path, capsys):
    assert main(["plot", str(tmp_path / "none")]) == 2
    assert "does not exist" in capsys.readouterr().err
    assert main(["plot", "s3://key:secret@bucket/x"]) == 2
    assert "secret" not in capsys.readouterr().err.replace("a login", "")


def test_a_picture_without_matplotlib_names_what_to_install(monkeypatch, capsys):
    monkeypatch.setattr(plot, "find_spec", lambda _name: None)
    assert main(["plot", "x", "-o", "x.png"]) == 2
    message = capsys.readouterr().err
    assert "-o x.png: a PNG needs matplotlib, which is not installed (KWM-7004) [pip install 'keyedwm[plot]'" in message
