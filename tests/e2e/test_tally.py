"""The campaign's own eyes: each kind of wrong output is seen and counted."""

from __future__ import annotations

import random

import pytest

from tests.e2e.feed import Feed, Findings, Tally


@pytest.fixture
def feed():
    made = Feed("nowhere", "nothing", random.Random(1))
    made.grown(5, 5)
    return made


def told(feed: Feed, values: list[bytes]) -> tuple[str, list[str]]:
    findings = Findings()
    tally = Tally(feed, findings)
    for value in values:
        tally.take(value)
    findings.lost = tally.missing()
    return findings.told(), findings.other


def test_the_exact_output_is_clean_however_partitions_mix(feed):
    values = [record.value for row in zip(*feed.sent, strict=True) for record in row]
    assert told(feed, values) == ("lost 0, doubled 0, reordered 0", [])


@pytest.mark.parametrize(
    ("spoilt", "said"),
    [
        (lambda v: v[:2] + v[3:], "lost 1, doubled 0, reordered 0"),
        (lambda v: [*v, v[2]], "lost 0, doubled 1, reordered 0"),
        (lambda v: [v[1], v[0], *v[2:]], "lost 0, doubled 0, reordered 1"),
    ],
)
def test_a_record_too_few_too_many_or_too_early_is_counted(feed, spoilt, said):
    values = [record.value for part in feed.sent for record in part]
    assert told(feed, spoilt(values)) == (said, [])


def test_a_record_that_was_never_sent_is_named(feed):
    values = [record.value for part in feed.sent for record in part]
    assert told(feed, [*values, b"0:9:9"])[1] == ["b'0:9:9' came and was never sent"]
