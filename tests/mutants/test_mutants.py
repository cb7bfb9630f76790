"""Every mutant still stands in the code: a rename that loses one fails here, not in the next `make mutants`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mutants.mutants import MUTANTS
from tests.mutants.run import file_of

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("path", sorted({mutant.path for mutant in MUTANTS}))
def test_the_text_of_each_mutant_stands_exactly_once_in_its_file(path: str) -> None:
    text = file_of(ROOT, path).read_text()
    counts = {one.before: text.count(one.before) for one in MUTANTS if one.path == path}
    assert {before: count for before, count in counts.items() if count != 1} == {}


def test_a_mutant_changes_its_text() -> None:
    assert [mutant for mutant in MUTANTS if mutant.before == mutant.after] == []
