"""The texts of the mutants, which `make mutants` alone would find missing."""

from __future__ import annotations

from pathlib import Path

from tests.mutants.mutants import MUTANTS

ROOT = Path(__file__).parents[2]


def test_the_text_of_each_mutant_stands_exactly_once_in_its_file() -> None:
    wrong = []
    for mutant in MUTANTS:
        path = ROOT / mutant.path if mutant.path.startswith("conformance/") else ROOT / "keyedwm" / mutant.path
        if (count := path.read_text(encoding="utf-8").count(mutant.before)) != 1:
            wrong.append(f"{mutant.path} has {count} times {mutant.before!r}")
    assert not wrong
