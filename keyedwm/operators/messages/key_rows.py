"""What is known of each key in each topic and partition, where windows count a key's messages: a log of small rows.

Rule: a key that goes on as a new one does is not known, so closed windows leave nothing behind.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from keyedwm.arrow.columns import Flags, Ints, contiguous, ints
from keyedwm.operators.names import HIDDEN
from keyedwm.operators.state.key_dictionary import KeyDictionary, key_columns

FACTS = tuple(f"{HIDDEN}{name}" for name in ("channel", "count", "first", "last", "bytes"))
_CHANNELS = 2**20


@dataclass(frozen=True, slots=True)
class KeyPlaces:
    """Keys on channels, by code: how many messages came, first and last offset held, and bytes held."""

    codes: Ints
    counts: Ints
    first: Ints
    last: Ints
    sizes: Ints

    def columns(self) -> list[Ints]:
        """The columns."""
        return [self.codes, self.counts, self.first, self.last, self.sizes]

    def take(self, chosen: Ints | Flags) -> KeyPlaces:
        """Return some of them."""
        return KeyPlaces(*(column[chosen] for column in self.columns()))


class OpenKeys:
    """What is known of each key on each channel; keys that go on as new ones do are not known.

    A code is the number of the key and that of the channel; codes mean nothing outside this instance.
    """

    def __init__(self, fields: Sequence[pa.Field], tables: Sequence[pa.Table] = ()) -> None:
        """fields: the by columns. tables: of the log, oldest first."""
        self._fields = tuple(fields)
        self.keys = KeyDictionary(self._fields)
        self.places = KeyPlaces(*(np.empty(0, np.int64),) * 5)
        if tables:
            table = pa.concat_tables(tables)
            channels, *facts = (ints(contiguous(table[name])) for name in FACTS)
            for_codes = self.codes(table, channels)[::-1]  # of equal ones the newest row counts
            self.put(KeyPlaces(for_codes, *(column[::-1] for column in facts)))

    def codes(self, rows: pa.Table, channels: Ints) -> Ints:
        """Return the codes of rows that have the by columns."""
        columns = key_columns([one.name for one in self._fields], rows)
        return self.keys.numbers(columns, rows.num_rows) * _CHANNELS + channels

    def found(self, codes: Ints) -> KeyPlaces:
        """Return what is known of these; nothing came of the others."""
        if not len(self.places.codes):
            return KeyPlaces(codes, *(np.zeros(len(codes), np.int64),) * 4)
        at = np.minimum(np.searchsorted(self.places.codes, codes), len(self.places.codes) - 1)
        known = self.places.codes[at] == codes
        return KeyPlaces(codes, *(np.where(known, column[at], 0) for column in self.places.columns()[1:]))

    def put(self, places: KeyPlaces) -> None:
        """Know this from now on; of equal codes the first counts, and a count of 0 is forgotten."""
        pairs = zip(places.columns(), self.places.columns(), strict=True)
        both = KeyPlaces(*(np.concatenate(pair) for pair in pairs))
        _, newest = np.unique(both.codes, return_index=True)
        chosen = both.take(newest)
        self.places = chosen.take(chosen.counts > 0)

    def compact(self) -> None:
        """Forget the keys of which nothing is known, now and then."""
        self.keys.compact([self])

    def used_keys(self) -> list[Ints]:
        """See KeyHolder."""
        return [keys_of(self.places.codes)]

    def renumber(self, renumbered: Ints) -> None:
        """See KeyHolder."""
        codes = renumbered[keys_of(self.places.codes)] * _CHANNELS + channels_of(self.places.codes)
        self.places = KeyPlaces(codes, *self.places.columns()[1:]).take(np.argsort(codes))

    def table(self, places: KeyPlaces) -> pa.Table:
        """Return what is known of some as a table of the log."""
        schema = pa.schema([*self._fields, *((name, pa.int64()) for name in FACTS)])
        facts = [places.codes % _CHANNELS, *places.columns()[1:]]
        columns = [*self.keys.columns(places.codes // _CHANNELS), *map(pa.array, facts)]
        return pa.Table.from_arrays(columns, schema=schema)

    def live(self, codes: Ints, offsets: Ints, held: Flags) -> Flags:
        """Return which messages are held still; held: which of the known keys hold any."""
        some = self.places.take(held)
        if not len(some.codes):
            return np.zeros(len(codes), np.bool_)
        at = np.minimum(np.searchsorted(some.codes, codes), len(some.codes) - 1)
        return (some.codes[at] == codes) & (offsets >= some.first[at])


def channels_of(codes: Ints) -> Ints:
    """Return the number of the channel of each code."""
    return codes % _CHANNELS


def keys_of(codes: Ints) -> Ints:
    """Return the number of the key of each code."""
    return codes // _CHANNELS


def merged(fields: Sequence[pa.Field], tables: Sequence[pa.Table]) -> pa.Table:
    """Merge parts of the log: of each key and channel the newest row, also if it says that nothing is known."""
    table = pa.concat_tables(tables)
    keys = OpenKeys(fields)
    codes = keys.codes(table, ints(contiguous(table[FACTS[0]])))
    _, newest = np.unique(codes[::-1], return_index=True)
    return table.take(pa.array(np.sort(len(codes) - 1 - newest)))
