"""The laws of watermarks of keys for as many seeds as are asked for.

    python -m tests.operators.per_key_laws 10000 [FIRST]

Each seed has a stream of its own; windows, sessions, settings and watermarks take turns. Every operator is built anew
from its state after each batch, and running aggregates go on in other buckets halfway.
"""

from __future__ import annotations

import sys
from time import process_time

from tests.operators import test_per_key as windows
from tests.operators import test_per_key_process as process

_LAWS = (
    windows.test_a_key_closes_by_its_own_watermark,
    windows.test_an_operator_goes_on_after_its_state_was_written,
    process.test_a_row_leaves_when_the_watermark_of_its_key_has_passed_it,
)
_SHOWN_EVERY = 100


def play(seed: int) -> None:
    """Play the laws of one seed."""
    law = _LAWS[0]
    try:
        for law in _LAWS:
            law(seed)
    except AssertionError:
        print(f"seed {seed} differs: {law.__name__}")
        raise


def main(seeds: int, first: int = 0) -> None:
    """Play the seeds; a difference ends it with the seed's number."""
    for seed in range(first, first + seeds):
        play(seed)
        if (seed - first + 1) % _SHOWN_EVERY == 0:
            print(f"seeds {first} to {seed}, {process_time():.0f} s of CPU time, no difference", flush=True)
    print(f"{seeds} seeds from {first} on, {len(_LAWS)} laws each, no difference")


if __name__ == "__main__":
    main(int(sys.argv[1]), *map(int, sys.argv[2:3]))
