"""Bugs planted in the product fall: the world sees what it is there to see."""

from __future__ import annotations

import pytest

from tests.system.world.planted import BUGS, Bug, falls_at
from tests.system.world.simulate import quiet

SEEDS = 12
# Those that fall within a few seeds; `python -m tests.system.world --planted --seeds 200` looks for all of them.
SOON = {
    "a backlog does not keep a channel from being idle",
    "the coalesced watermark is too high",
    "the last record of a range is passed over",
    "a channel's watermark is above its promise",
    "aborted records are read",
    "open transactions of dead tasks stay",
    "nothing is decided before it is committed",
    "a batch is decided although a transaction has expired",
    "a batch that was half committed goes on",
    "a decision counts as published at once",
    "nothing is committed",
    "a task begins no transaction of its own",
    "no table property holds the record of a batch",
}


@pytest.mark.starts  # no process, but it takes long
@pytest.mark.parametrize("bug", [bug for bug in BUGS if bug.name in SOON], ids=lambda bug: bug.name)
def test_a_planted_bug_falls(bug: Bug) -> None:
    with quiet():
        assert falls_at(bug, 1, SEEDS) is not None


def test_every_bug_that_falls_soon_is_planted() -> None:
    assert {bug.name for bug in BUGS} >= SOON
