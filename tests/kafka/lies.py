"""Answers that are well-formed and false: `python -m tests.kafka.lies --seconds 60 --seed 1`.

The fields of a hostile broker's honest answers are changed at random: numbers to others, names to ones that are none,
lists to none, twice or 300 times what was in them. Every call ends in a value or in an error for the user.
"""

from __future__ import annotations

import argparse
import random
import struct
import time
from collections import Counter
from typing import Any

from keyedwm.core.errors import KeyedwmError
from tests.kafka.test_hostile import CALLS, METADATA, MOST_REQUESTS, connected
from tests.support import hostile
from tests.support.hostile import HostileBroker, Lie, Request, framed, hostile_broker

NAMES = ("", "\x1b[2Jx", "a" * 70 + ".x", "x\x00y", "t", "u", "127.0.0.1", "é" * 100)
NUMBERS = (-32_768, -2, -1, 0, 1, 2, 3, 5, 6, 7, 16, 999, 32_767)
MOST_SAID = 1_000
_TRIES = 8  # not every change can be encoded


def altered_value(value: Any, chance: random.Random, share: float) -> Any:
    """A value of an answer in which about a share of the fields is another."""
    if isinstance(value, dict):
        return {name: altered_value(of, chance, share) for name, of in value.items()}
    if isinstance(value, list):
        return [altered_value(one, chance, share) for one in value] * _times(chance, share)
    if chance.random() > share:
        return value
    others = {bool: (not value,), int: NUMBERS, str: NAMES, bytes: (b"", bytes(61), chance.randbytes(80))}
    return chance.choice(others.get(type(value), (value,)))


def _times(chance: random.Random, share: float) -> int:
    return chance.choice((0, 2, 300)) if chance.random() < share else 1


def lie_of(seed: int, share: float) -> Lie:
    """A lie that is another at every request."""
    chance = random.Random(seed)

    def lie(request: Request, broker: HostileBroker) -> list[bytes]:
        for _ in range(_TRIES):
            try:
                return [framed(request, altered_value(hostile._ANSWERS[request.api](broker), chance, share))]
            except (ValueError, TypeError, AttributeError, OverflowError, KeyError, struct.error):  # noqa: PERF203
                continue
        return [broker.honest(request)]

    return lie


def one(broker: HostileBroker, seed: int) -> str:
    """One call against lies; what came of it, or an AssertionError."""
    chance = random.Random(seed)
    call = chance.choice(list(CALLS))
    api, act = CALLS[call]
    broker.lies.clear()
    cluster = connected(broker.bootstrap)
    share = chance.choice((0.05, 0.15, 0.4))
    for lying in {api, METADATA} if chance.random() < 0.3 else {api}:
        broker.lies[lying] = lie_of(seed, share)
    broker.counts.clear()
    try:
        act(cluster)
        return "answered"
    except KeyedwmError as error:
        error_text = str(error)
        assert error_text.isprintable(), f"{call}, seed {seed}: {error_text!r}"
        assert len(error_text) <= MOST_SAID, f"{call}, seed {seed}: {error_text[:MOST_SAID]}"
        return type(error).__name__
    except Exception as error:
        raise AssertionError(f"{call}, seed {seed}: {error!r} is no error for the user") from error
    finally:
        assert broker.counts.total() <= MOST_REQUESTS, f"{call}, seed {seed}: {broker.counts}"
        broker.lies.clear()
        cluster.close()


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--seconds", type=float, default=60)
    options.add_argument("--seed", type=int, default=1)
    arguments = options.parse_args()
    deadline_s, seed = time.monotonic() + arguments.seconds, arguments.seed
    outcomes: Counter[str] = Counter()
    with hostile_broker() as broker:
        while time.monotonic() < deadline_s:
            outcomes[one(broker, seed)] += 1
            seed += 1
    print(f"seeds {arguments.seed} to {seed - 1}, no finding: {dict(outcomes)}")


if __name__ == "__main__":
    main()
