"""The laws of watermarks of keys for as many seeds as are asked for.

    python -m tests.operators.per_key_laws 10000 [FIRST]

Each seed has a stream of its own, and the streams of eight seeds share an operator, which takes fewer calls; windows,
sessions, settings and watermarks take turns. Every operator is built anew from its state after each batch (of every
fourth eight also after every seventh batch alone), and running aggregates go on in other buckets halfway.
"""

from __future__ import annotations

import sys
from time import process_time

from tests.operators.test_per_key import keys_close, shared
from tests.operators.test_per_key_process import rows_leave

TOGETHER = 8
_SHOWN_EVERY = 80


def play(seeds: range) -> None:
    """Play the laws of some seeds together."""
    number, law = seeds.start // TOGETHER, "windows"
    try:
        keys_close(number, shared(seeds))
        if number % 4 == 0:
            law = "windows, restarted after every seventh batch"
            keys_close(number, shared(seeds), steps=7)
        law = "running aggregates"
        rows_leave(number, shared(seeds))
    except AssertionError:
        print(f"seeds {seeds.start} to {seeds.stop - 1} differ: {law}")
        raise


def main(seeds: int, first: int = 0) -> None:
    """Play the seeds; a difference ends it with the numbers of its seeds."""
    for seed in range(first, first + seeds, TOGETHER):
        seed_block = range(seed, min(seed + TOGETHER, first + seeds))
        play(seed_block)
        if (seed_block.stop - first) % _SHOWN_EVERY == 0:
            print(
                f"seeds {first} to {seed_block.stop - 1}, {process_time():.0f} s of CPU time, no difference", flush=True
            )
    print(f"{seeds} seeds from {first} on, no difference")


if __name__ == "__main__":
    main(int(sys.argv[1]), *map(int, sys.argv[2:3]))
