"""Answers of the peers' own classes to random operations, through the same code as `python -m conformance.replay`."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path

import pytest

from conformance.reading import replay_all
from conformance.verdict import Outcome
from tests.core.played import ORACLE, Played, outcomes_of_the_oracle, recorded_outcomes

PLAYED = Played(is_oracle=True)


@PLAYED.every_file
def test_the_core_answers_as_the_peer_or_a_rule_decides_otherwise(name: str) -> None:
    assert PLAYED.of(name)
    assert PLAYED.failures(name) == []


@pytest.mark.starts  # no process, but every vector is played
def test_the_lines_decided_otherwise_are_as_many_as_the_summary_says() -> None:
    replayed = Counter((one.path, one.verdict.outcome) for one in PLAYED.all())
    recorded: Counter = Counter()
    played: Counter = Counter()
    for path in ORACLE.glob("*.gz"):
        of_all, of_played = recorded_outcomes(path)
        recorded.update({(path, outcome): count for outcome, count in of_all.items()})
        played.update({(path, outcome): count for outcome, count in of_played.items()})
        assert all(of_played[outcome] for outcome in of_all)
    assert replayed == played
    assert recorded == Counter(outcomes_of_the_oracle())


@pytest.mark.starts  # no process, but every vector is played
def test_every_decision_names_its_reason() -> None:
    assert all(replayed.verdict.reason for replayed in PLAYED.all() if replayed.verdict.outcome is Outcome.OTHERWISE)


@pytest.mark.parametrize("name", sorted(path.name for path in ORACLE.glob("*.gz")))
def test_a_changed_answer_is_a_failure(name: str, tmp_path: Path) -> None:
    with gzip.open(ORACLE / name, "rt") as stream:
        lines = [json.loads(line) for line in stream]
    line = next(line for line in lines if line["normative"] and any(out and len(out[0]) > 1 for out in line["out"]))
    index, first = next((at, out[0]) for at, out in enumerate(line["out"]) if out and len(out[0]) > 1)
    number = next((at for at, part in enumerate(first) if type(part) is int), None)
    line["out"][index][0] = first[:1] if number is None else [*first[:number], first[number] + 1, *first[number + 1 :]]
    path = tmp_path / "changed.jsonl"
    path.write_text(json.dumps(line))
    assert [replayed.verdict.outcome for replayed in replay_all([path])] == [Outcome.FAIL]
