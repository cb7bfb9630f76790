"""Damaged record batches: `python -m tests.kafka.fuzz --count 100000 --seed 1`.

Every one must end in the rows that a plain reader gives, or in a CorruptRecordError that says where, and in no more
memory than MOST_BYTES. Half of them get a fitting checksum, so that the damage reaches the decoder; every other one is
read in tiny pieces, as a batch is that decompresses to a great deal. With NUMBA_BOUNDSCHECK=1 a read out of bounds is
an error, too.
"""

from __future__ import annotations

import argparse
import random
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterator
from typing import TypeVar

from keyedwm.kafka.client.config import ClientConfig
from keyedwm.kafka.client.errors import CorruptRecordError, RecordTooLargeError
from keyedwm.kafka.client.values import LIMITS, Codec, WireLimits
from keyedwm.kafka.records import read as records
from keyedwm.kafka.records.batches import find_batches
from tests.kafka.reference import EVERYTHING, WHERE, Record, read_by_us, read_plainly, signed, write

T = TypeVar("T")

HEADER = 61
MOST_BYTES = 2 * ClientConfig(bootstrap_servers=()).fetch_bytes
SMALL = WireLimits(first_bytes=64, next_bytes=32, rows=3)  # so that what is decoded comes in many pieces


def seeds() -> list[bytes]:
    """Sound batches of every codec: nulls, empty values, headers with duplicates, offsets with holes."""
    plain = [Record(7 + i, 1_700_000_000_000 + i, b"k%d" % i, b"value " * i) for i in range(20)]
    odd = [
        Record(0, 5, None, None),
        Record(1, 3, b"", b"", (("a", b"1"), ("a", None), ("", b""))),
        Record(5, 2**40, b"k" * 70, b"v" * 9_000, (("name", b"x" * 200),)),
        Record(900, 0, None, b"\xff"),
    ]
    return [write(records, codec) for codec in Codec for records in (plain, odd)]


def damaged(batch: bytes, chance: random.Random) -> bytes:
    """One mutation: bytes changed, set, cut, doubled or moved; half of them signed anew."""
    batch_bytes = bytearray(batch)
    for _ in range(chance.choice((1, 1, 1, 2, 5))):
        at = chance.randrange(len(batch_bytes))
        kind = chance.randrange(5)
        if kind == 0:
            batch_bytes[at] ^= 1 << chance.randrange(8)
        elif kind == 1:
            batch_bytes[at] = chance.choice((0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)))
        elif kind == 2:
            del batch_bytes[at : at + chance.randrange(1, 9)]
        elif kind == 3:
            batch_bytes[at:at] = batch_bytes[at : at + chance.randrange(1, 9)]
        else:
            batch_bytes[at : at + 4] = chance.choice((b"\xff\xff\xff\x7f", b"\xff\xff\xff\xff", b"\x80\x00\x00\x00"))
        if len(batch_bytes) <= HEADER:
            break
    if chance.random() < 0.5 and len(batch_bytes) > HEADER:
        if chance.random() < 0.8:
            batch_bytes[8:12] = (len(batch_bytes) - 12).to_bytes(4, "big")
        return signed(batch_bytes)
    return bytes(batch_bytes)


def outcome(batch: bytes, limits: WireLimits = LIMITS) -> str:
    """What became of one batch; raises AssertionError if it is anything else than allowed."""
    try:
        own_records = read_by_us(batch, limits=limits)
    except CorruptRecordError as error:
        names_place = error.topic == "t" and error.partition == 3 and f"offset {error.offset} of t-3 " in str(error)
        return "refused" if names_place else "refused without saying where"
    except RecordTooLargeError as error:
        return "refused" if "offset " in str(error) and " of t-3 " in str(error) else "refused without saying where"
    if not own_records:
        return "no rows"
    assert own_records == read_plainly(batch)
    return "read"


def read_batch(batch: bytes, columns: records.ColumnSelection) -> Iterator[records.Records]:
    """The records of one batch."""
    return records.read_records(find_batches(WHERE, batch, 0), EVERYTHING, columns)


def taken_by(act: Callable[[], T]) -> tuple[T, int]:
    """What `act` returns, and the most memory in bytes that Python's objects and arrays took at once meanwhile."""
    tracemalloc.start()
    try:
        return act(), tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def run(count: int, seed: int) -> Counter[str]:
    """Mutate `count` batches; what became of them, by kind."""
    chance = random.Random(seed)
    sound = seeds()
    outcomes: Counter[str] = Counter()
    for batch in sound:  # what compiles takes memory too, once
        outcome(batch)
        outcome(batch, SMALL)
    for number in range(count):
        batch = damaged(chance.choice(sound), chance)
        try:
            limits = SMALL if number % 2 else LIMITS
            became, taken_bytes = taken_by(lambda batch=batch, limits=limits: outcome(batch, limits))
            assert taken_bytes <= MOST_BYTES, f"{taken_bytes} bytes were taken"
            outcomes[became] += 1
        except Exception as error:
            message = f"mutation {number} of seed {seed}: {batch.hex()}"
            raise AssertionError(message) from error
    return outcomes


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--count", type=int, default=100_000)
    options.add_argument("--seed", type=int, default=1)
    options_given = options.parse_args()
    print(dict(run(options_given.count, options_given.seed)))


if __name__ == "__main__":
    main()
