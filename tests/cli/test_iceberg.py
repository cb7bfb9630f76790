"""`inspect`, `plot` and `watch` read an Iceberg table as they read a Delta table: by its records."""

from __future__ import annotations

import json
import re

import pytest

pytest.importorskip("pyiceberg")

from keyedwm.cli.main import main
from keyedwm.cli.plot.read import histories_of
from keyedwm.cli.query.tables import Reach
from pyspark_wm_sink.options.sink_options import SnapshotMode
from pyspark_wm_sink.tables.publish import publish
from tests.sink.iceberg_sink import NAME, foreign_append, how, stage_rows, table_of
from tests.sink.table_sink import barrier


@pytest.fixture
def lake(tmp_path):
    """A table with two batches of query `mine`, a row of another program, and a batch of query `other`."""
    place = tmp_path / "lake"
    to = how(place, SnapshotMode.BARRIER)
    publish(to, [stage_rows(to, [1, 2], 0, "mine", control=(barrier(0),))], batch=0)
    publish(to, [stage_rows(to, [3], 1, "mine", control=(barrier(1, 7),))], batch=1)
    foreign_append(place, 9)
    other = how(place, SnapshotMode.BATCH, sharedTable="true")
    publish(other, [stage_rows(other, [4, 5, 6], 0, "other")], batch=0)
    return place


def catalog(place) -> list[str]:
    return [
        "--catalog",
        "type=sql",
        "--catalog",
        f"uri=sqlite:///{place}/catalog.db",
        "--catalog",
        f"warehouse={place}",
    ]


def reach(place) -> Reach:
    return Reach(catalog={"type": "sql", "uri": f"sqlite:///{place}/catalog.db", "warehouse": str(place)})


def test_inspect_prints_the_snapshots_of_each_query(lake, capsys):
    assert main(["inspect", NAME, *catalog(lake)]) == 0
    text = capsys.readouterr().out
    newest = table_of(lake).current_snapshot().snapshot_id
    assert f"Iceberg table {NAME}: branch main, snapshot {newest}, partitioned by nothing" in text
    assert re.findall(r"^query (\w+)", text, re.MULTILINE) == ["mine", "other"]
    assert str(newest) in text
    assert "Channels after batch 1" in text


def test_plot_draws_its_batches_at_the_times_of_its_snapshots(lake, tmp_path, capsys):
    assert main(["plot", NAME, *catalog(lake), "-o", str(tmp_path / "out.html")]) == 0
    assert "query mine, 2 batches" in capsys.readouterr().out
    history, other = histories_of(NAME, reach(lake), 1_000).each
    assert (history.name, history.batches, history.bars[0].values) == ("query mine", (0, 1), (2, 1))
    assert history.at_ms[0] < history.at_ms[1] < other.at_ms[0]
    assert histories_of(NAME, reach(lake), 1).each == (other,)


def test_watch_tells_the_last_batch_of_its_query(lake, planted, capsys):
    planted.plan()
    (planted.directory / "metadata").write_text('{"id":"mine"}')
    arguments = ["watch", str(planted.directory), "--once", "--target", NAME, *catalog(lake)]
    assert main([*arguments, "--json"]) == 0
    published = json.loads(capsys.readouterr().out)["publication"]
    snapshots = [one.snapshot_id for one in table_of(lake).snapshots()]
    assert (published["kind"], published["batch"], published["rows"], published["version"]) == (
        "Iceberg table",
        1,
        1,
        snapshots[1],
    )
    assert main(arguments) == 0
    assert f"published batch 1 with snapshot 1, 1 rows, table snapshot {snapshots[1]}, " in capsys.readouterr().out


def test_the_tables_property_tells_of_a_query_whose_snapshots_have_expired(lake, planted, capsys):
    table = table_of(lake)
    expired = [one.snapshot_id for one in table.snapshots()][:3]
    table.maintenance.expire_snapshots().by_ids(expired).commit()
    (planted.directory / "metadata").write_text('{"id":"mine"}')
    arguments = ["watch", str(planted.directory), "--once", "--json", "--target", NAME, *catalog(lake)]
    assert main(arguments) == 0
    published = json.loads(capsys.readouterr().out)["publication"]
    assert (published["batch"], published["at_ms"]) == (1, None)
    assert [one.name for one in histories_of(NAME, reach(lake), 1_000).each] == ["query other"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["db.none"], "db.none is no table of that catalog"),
        (["orders"], "option table: 'orders' is wrong; the name of an Iceberg table with its namespace is expected"),
        ([NAME, "--branch", "audit"], f"--branch audit: the Iceberg table {NAME} has main"),
        ([NAME, "--storage", "aws_region=x"], "--storage is of a Delta table and --catalog of an Iceberg table"),
    ],
)
@pytest.mark.parametrize("command", ["inspect", "plot"])
def test_what_cannot_be_read_is_one_sentence(lake, tmp_path, command, arguments, sentence, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main([command, *arguments, *catalog(lake)]) == 2
    message = capsys.readouterr().err
    assert sentence in message
    assert message.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["plot", NAME], "or the name of an Iceberg table and its --catalog"),
        (["inspect", NAME], "or the name of an Iceberg table and its --catalog"),
        (["inspect", NAME, "--branch", "x"], "--branch is of an Iceberg table: give its --catalog as well"),
        (["inspect", NAME, "--catalog", "uri=x"], "option catalog.type is missing"),
        (["watch", "x", "--once", "--catalog", "type=sql"], "--catalog needs --target: the Iceberg table"),
        (["inspect", NAME, "--catalog", "token=abc"], "would stand in the list of processes"),
    ],
)
def test_a_catalog_that_is_missing_or_half_given_is_one_sentence(arguments, sentence, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    assert sentence in capsys.readouterr().err
