"""The examples are run, in one Spark and with one real Kafka, and print what their docstrings say."""

from __future__ import annotations

import ast
import contextlib
import io
import re
import runpy
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from examples.demo.flights import read_flights
from examples.demo.load import Step, closing, new_topic
from examples.test_visits import (  # its five tests run here, in the Spark of all tests
    day,  # noqa: F401
    test_a_partition_that_lags_loses_nothing,  # noqa: F401
    test_a_record_behind_the_watermark_is_late,  # noqa: F401
    test_a_restart_loses_no_open_window,  # noqa: F401
    test_an_idle_partition_is_not_waited_for,  # noqa: F401
    test_the_sentence_names_the_partition_that_is_waited_for,  # noqa: F401
)

FOLDER = Path(__file__).parents[2] / "examples"
MOST_LINES = 100
# The one that runs until it is stopped has a test of its own, and the one for pytest runs above.
EXAMPLES = [path for path in sorted(FOLDER.glob("*.py")) if path.stem not in {"flights", "test_visits"}]


@pytest.fixture(scope="module")
def keyedwm_spark(spark: SparkSession) -> SparkSession:
    return spark


def expected_output(path: Path) -> str:
    """The lines that the docstring says are printed."""
    text = ast.get_docstring(ast.parse(path.read_text())) or ""
    lines = re.search(r"[Ii]t prints:\n\n((?:    .*\n|\n)+)", f"{text}\n")
    assert lines, f"{path.name} does not say what it prints"
    return "".join(line.removeprefix("    ") for line in lines[1].splitlines(keepends=True)).strip("\n")


def printed(path: Path, arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> str:
    """What an example prints."""
    monkeypatch.setattr(sys, "argv", [str(path), *arguments])
    with contextlib.redirect_stdout(io.StringIO()) as out:
        runpy.run_path(str(path), run_name="__main__")
    return out.getvalue().strip("\n")


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_prints_what_its_docstring_says(path, request, spark, monkeypatch):
    needs_kafka = "HOST:PORT" in path.read_text()
    arguments = [request.getfixturevalue("kafka").bootstrap] if needs_kafka else []
    arguments += [request.getfixturevalue("schema_registry")] if "HOST:PORT REGISTRY" in path.read_text() else []
    assert printed(path, arguments, monkeypatch) == expected_output(path)


def test_the_example_that_runs_until_it_is_stopped_counts_flights_by_hour(kafka, spark, topic, tmp_path, monkeypatch):
    def stopped(query: StreamingQuery) -> None:
        query.processAllAvailable()
        query.stop()

    monkeypatch.setattr(StreamingQuery, "awaitTermination", stopped)
    flights = read_flights(days=1)
    with new_topic(kafka.bootstrap, topic) as destination:
        destination.write(Step(0, flights))
        destination.write(closing(flights))
        printed(FOLDER / "flights.py", [kafka.bootstrap, topic, str(tmp_path / "table")], monkeypatch)
    from deltalake import DeltaTable

    counts = DeltaTable(str(tmp_path / "table")).to_pyarrow_table()
    assert sum(counts["count"].to_pylist()) == len(flights)


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.py")), ids=lambda path: path.stem)
def test_an_example_fits_on_a_page_or_two(path):
    assert len(path.read_text().splitlines()) <= MOST_LINES
