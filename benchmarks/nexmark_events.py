"""Nexmark's events as Apache Beam's generator makes them: each is a pure function of its number.

Rule: a fresh `java.util.Random(number)` for every event, drawn from in Beam's order, so any part of the stream can be
made alone and results can be compared row by row. Of 50 events one is a person, three are auctions, the rest bids. Bids
of a stream with channels have Flink's two further fields.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.nexmark_channels import channels
from keyedwm.runtime.compiled import compiled, inlined

PERSON, AUCTION, BID = range(3)
KINDS = (b"person", b"auction", b"bid")
FIRST_MS = 1_436_918_400_000
_STEP = 953  # of the disorder inside a group
_FIRST_NAMES = ["Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate", "Julie", "Sarah", "Deiter", "Walter"]
_LAST_NAMES = ["Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones", "Noris"]
_CITIES = [
    "Phoenix", "Los Angeles", "San Francisco", "Boise", "Portland", "Bend", "Redmond", "Seattle", "Kent", "Cheyenne",
]  # fmt: skip
_STATES = ["AZ", "CA", "ID", "OR", "WA", "WY"]
_NAMES = [f"{first} {last}" for first in _FIRST_NAMES for last in _LAST_NAMES]
_NAME_BYTES = np.array([len(name) for name in _NAMES])
_CITY_BYTES = np.array([len(city) for city in _CITIES])
# What can be the length of a text: a person's user and domain, an auction's name and description, a filling.
_LONGEST = ((7, 5, 320), (20, 100, 1_000), (0, 0, 160))
_MASK = (1 << 48) - 1


@dataclass(frozen=True, slots=True)
class Stream:
    """How the events follow each other: events/s of event time, and the size of the groups that they are mixed in.

    channels: whether bids have a channel and a URL, which Beam's have not.
    """

    rate: int = 10_000
    group: int = 1
    channels: bool = False

    def numbers(self, first: int, count: int) -> np.ndarray:
        """The event numbers in the order in which they are sent."""
        at = np.arange(first, first + count)
        base = at // self.group * self.group
        return base + at * _STEP % self.group

    def times(self, numbers: np.ndarray) -> np.ndarray:
        """Event times in ms."""
        return FIRST_MS + numbers * self.delay_us // 1_000

    @property
    def delay_us(self) -> int:
        """From one event to the next."""
        return (1_000_000 + self.rate // 2) // self.rate


def kinds(numbers: np.ndarray) -> np.ndarray:
    """PERSON, AUCTION or BID of each event."""
    place = numbers % 50
    return np.where(place == 0, PERSON, np.where(place < 4, AUCTION, BID))


def persons(stream: Stream, numbers: np.ndarray) -> pa.Table:
    """The rows of these persons; `numbers` are those of persons."""
    fields, texts = _random_fields(PERSON, numbers, stream)
    user, domain, extra = texts
    groups = [pc.utf8_lpad(pa.array(fields[:, 3 + at]).cast(pa.string()), 4, "0") for at in range(4)]
    return pa.table({
        "id": fields[:, 0],
        "name": pa.array(_NAMES).take(pa.array(fields[:, 2])),
        "emailAddress": pc.binary_join_element_wise(user, "@", domain, ".com", ""),
        "creditCard": pc.binary_join_element_wise(*groups, " "),
        "city": pa.array(_CITIES).take(pa.array(fields[:, 7])),
        "state": pa.array(_STATES).take(pa.array(fields[:, 8])),
        "dateTime": fields[:, 1],
        "extra": extra,
    })  # fmt: skip


def auctions(stream: Stream, numbers: np.ndarray) -> pa.Table:
    """The rows of these auctions."""
    fields, (item, description, extra) = _random_fields(AUCTION, numbers, stream)
    return pa.table({
        "id": fields[:, 0], "itemName": item, "description": description, "initialBid": fields[:, 2],
        "reserve": fields[:, 3], "dateTime": fields[:, 1], "expires": fields[:, 4], "seller": fields[:, 5],
        "category": fields[:, 6], "extra": extra,
    })  # fmt: skip


def bids(stream: Stream, numbers: np.ndarray) -> pa.Table:
    """The rows of these bids."""
    fields, (_, _, extra) = _random_fields(BID, numbers, stream)
    channel_columns = channels(numbers) if stream.channels else None
    return pa.table({
        "auction": fields[:, 2], "bidder": fields[:, 3], "price": fields[:, 4],
        **({} if channel_columns is None else {name: channel_columns[name] for name in channel_columns.column_names}),
        "dateTime": fields[:, 1], "extra": extra,
    })  # fmt: skip


MAKERS = (persons, auctions, bids)


def records(stream: Stream, first: int, count: int) -> pa.Table:
    """Kafka records of some events in the order of sending: kind as key, JSON object as value, event time in ms."""
    numbers = stream.numbers(first, count)
    kind = kinds(numbers)
    places = [np.flatnonzero(kind == one) for one in range(len(KINDS))]
    values = [as_json(make(stream, numbers[at])) for make, at in zip(MAKERS, places, strict=True) if len(at)]
    back = np.argsort(np.concatenate(places))
    return pa.table({
        "key": pa.array(KINDS, pa.binary()).take(pa.array(kind)),
        "value": pa.concat_arrays(values).take(pa.array(back)),
        "timestamp": stream.times(numbers),
    })  # fmt: skip


def as_json(rows: pa.Table) -> pa.Array:
    """One JSON object for each row, names in the order of the columns."""
    parts: list = []
    columns = [column.combine_chunks() for column in rows.columns]
    for name, column in zip(rows.column_names, columns, strict=True):
        is_text = pa.types.is_string(column.type)
        quote = '"' if is_text else ""
        text = pc.replace_substring(column, "\\", "\\\\") if is_text else column.cast(pa.string())
        parts += [f'{", " if parts else "{"}"{name}": {quote}', text, quote]
    return pc.binary_join_element_wise(*parts, "}", "")


def _random_fields(kind: int, numbers: np.ndarray, stream: Stream) -> tuple[np.ndarray, list[pa.Array]]:
    """Draw a kind's numbers (own id and time first) and its three texts."""
    rows = np.zeros((len(numbers), 9), np.int64)
    ends = np.zeros((3, len(numbers) + 1), np.int32)
    texts = [np.empty(len(numbers) * longest, np.uint8) for longest in _LONGEST[kind]]
    numbers = np.ascontiguousarray(numbers, np.int64)
    _draw_all(kind, numbers, stream.delay_us, _NAME_BYTES, _CITY_BYTES, rows, ends, *texts)
    arrays = [
        pa.StringArray.from_buffers(len(numbers), pa.py_buffer(end), pa.py_buffer(text))
        for end, text in zip(ends, texts, strict=True)
    ]
    return rows, arrays


@compiled
def _draw_all(kind, numbers, delay_us, name_bytes, city_bytes, rows, ends, one, two, three):  # type: ignore[no-untyped-def]  # noqa: PLR0917 (compiled: no keywords)
    for at in range(len(numbers)):
        number = numbers[at]
        state = np.array([(number ^ 0x5DEECE66D) & _MASK])
        person = number // 50
        auction = person * 3 + min(max(number % 50 - 1, -1), 2)
        time = FIRST_MS + number * delay_us // 1_000
        row = rows[at]
        row[1] = time
        used_bytes = 32
        if kind == PERSON:
            row[0] = 1_000 + person
            row[2] = _below(state, 11) * 9
            row[2] += _below(state, 9)
            ends[0, at + 1] = _text(state, 7, one, ends[0, at])
            ends[1, at + 1] = _text(state, 5, two, ends[1, at])
            for group in range(4):
                row[3 + group] = _below(state, 10_000)
            row[7], row[8] = _below(state, 10), _below(state, 6)
            mail = ends[0, at + 1] - ends[0, at] + ends[1, at + 1] - ends[1, at] + 5
            used_bytes = 8 + name_bytes[row[2]] + mail + 19 + city_bytes[row[7]] + 2
        elif kind == AUCTION:
            row[0] = 1_000 + auction
            row[5] = 1_000 + (person // 100 * 100 if _below(state, 4) > 0 else _person(state, person))
            row[6] = 10 + _below(state, 5)
            row[2] = _price(state)
            horizon = FIRST_MS + (number + 100 * 50 // 3) * delay_us // 1_000 - time
            row[4] = time + 1 + _below(state, max(2 * horizon, 1))
            ends[0, at + 1] = _text(state, 20, one, ends[0, at])
            ends[1, at + 1] = _text(state, 100, two, ends[1, at])
            row[3] = row[2] + _price(state)
            used_bytes = 48 + ends[0, at + 1] - ends[0, at] + ends[1, at + 1] - ends[1, at]
        else:
            row[2] = 1_000 + (auction // 100 * 100 if _below(state, 2) > 0 else _auction(state, auction))
            row[3] = 1_000 + (person // 100 * 100 + 1 if _below(state, 4) > 0 else _person(state, person))
            row[4] = _price(state)
        average = 200 if kind == PERSON else 500 if kind == AUCTION else 100
        ends[2, at + 1] = _filling(state, used_bytes, average, three, ends[2, at])


@inlined
def _bits(state, count):  # type: ignore[no-untyped-def]
    """`Random.next(count)`, unsigned."""
    state[0] = (state[0] * 0x5DEECE66D + 0xB) & _MASK
    return state[0] >> (48 - count)


@compiled
def _below(state, bound):  # type: ignore[no-untyped-def]
    """`nextInt(bound)`."""
    random_bits = _bits(state, 31)
    if bound & -bound == bound:
        return bound * random_bits >> 31
    while random_bits - random_bits % bound + bound - 1 >= 1 << 31:
        random_bits = _bits(state, 31)
    return random_bits % bound


@compiled
def _price(state):  # type: ignore[no-untyped-def]
    """From 1 to a million, in hundredths."""
    high = _bits(state, 26) << 27
    fraction = (high + _bits(state, 27)) / (1 << 53)
    return np.int64(np.floor(10.0 ** (6.0 * fraction) * 100.0 + 0.5))


@compiled
def _person(state, last):  # type: ignore[no-untyped-def]
    """One of the last thousand persons, or of the ten to come."""
    active = min(last + 1, 1_000)
    return last + 1 - active + _below(state, active + 10)


@compiled
def _auction(state, last):  # type: ignore[no-untyped-def]
    """One of the last hundred auctions, or of the ten to come."""
    low = max(last - 100, 0)
    return low + _below(state, last - low + 1 + 10)


@compiled
def _text(state, longest, letters, start):  # type: ignore[no-untyped-def]
    """Letters and blanks, none at either end; returns where it ends."""
    at = start
    for _ in range(3 + _below(state, longest - 3)):
        letter = 32 if _below(state, 13) == 0 else 97 + _below(state, 26)
        if letter != 32 or at > start:
            letters[at] = letter
            at += 1
    while at > start and letters[at - 1] == 32:
        at -= 1
    return at


@compiled
def _filling(state, used_bytes, average, letters, start):  # type: ignore[no-untyped-def]
    """What an event lacks of its size, as letters drawn six at a time, some below `a`; returns where it ends."""
    if used_bytes > average:
        return start
    rest = average - used_bytes
    spread = int(np.floor(rest * 0.2 + 0.5))
    length = rest - spread + (0 if spread == 0 else _below(state, 2 * spread))
    random_bits = 0
    for at in range(length):
        if at % 6 == 0:
            random_bits = _bits(state, 32)
            random_bits -= (random_bits >> 31) << 32
        size = abs(random_bits)
        sign = 1 if random_bits >= 0 else -1
        letters[start + at] = 97 + sign * (size % 26)
        random_bits = sign * (size // 26)
    return start + length
