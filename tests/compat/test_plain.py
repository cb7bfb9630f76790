"""The present code reads what an earlier version wrote at rest and continues it, without Kafka and without Spark."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path

import pytest

from tests.compat.operators import continue_operator
from tests.compat.plain import PLANS, continue_buckets, read_back, read_later_texts, read_ledger, read_texts

FIXTURES = Path(__file__).parent / "fixtures"
VERSIONS = sorted(path.parent for path in FIXTURES.glob("*/plain"))
BUCKETS = [(version, name) for version in VERSIONS for name in PLANS]
# Of 0.3.0 and later.
OPERATORS = sorted(FIXTURES.glob("*/plain/operator-*.json.gz"))
LATER = sorted(path.parent for path in FIXTURES.glob("*/plain/later_texts.json"))


def test_fixtures_are_there():
    assert "0.2.0" in {version.name for version in VERSIONS}


@pytest.mark.parametrize("version", VERSIONS, ids=lambda path: path.name)
def test_offsets_committed_states_records_and_barriers_are_read_and_planning_goes_on(version):
    saved = json.loads((version / "plain" / "texts.json").read_text())
    assert read_texts(saved["texts"]) == saved["expected"]


@pytest.mark.parametrize("version", VERSIONS, ids=lambda path: path.name)
def test_a_ledger_is_read(version, tmp_path):
    shutil.copytree(version / "plain" / "ledger", tmp_path / "ledger")
    assert read_ledger(tmp_path / "ledger") == json.loads((version / "plain" / "ledger.json").read_text())


@pytest.mark.parametrize(("version", "name"), BUCKETS, ids=lambda value: getattr(value, "name", value))
def test_buckets_go_on_row_for_row(version, name):
    saved = json.loads(gzip.decompress((version / "plain" / f"buckets-{name}.json.gz").read_bytes()))
    results = continue_buckets(name, saved)
    assert any(results)
    assert results == saved["expected"]


@pytest.mark.parametrize("saved", OPERATORS, ids=lambda path: f"{path.parts[-3]}-{path.name.partition('.')[0]}")
def test_operators_go_on_row_for_row(saved):
    state = json.loads(gzip.decompress(saved.read_bytes()))
    results = continue_operator(saved.name.partition(".")[0].removeprefix("operator-"), state)
    assert any(results)
    assert results == state["expected"]


@pytest.mark.parametrize("plain", LATER, ids=lambda path: path.parent.name)
def test_savepoints_long_records_and_counts_of_future_times_are_read(plain):
    saved = json.loads((plain / "later_texts.json").read_text())
    assert read_later_texts(saved["texts"]) == saved["expected"]
    assert read_back(plain / "savepoint") == json.loads((plain / "savepoint.json").read_text())
