"""Keys as small whole numbers, by hashes of 64 bits, which stored rows have beside their keys.

Rule: the hash finds a number, and the key itself confirms it, so two keys with one hash stay two keys. Stored rows are
found by their hash, and only the keys of matching rows are read: a batch with few keys reads the keys of few rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from keyedwm.arrow.columns import Ints, contiguous, ints
from keyedwm.arrow.hashing import hashed_rows
from keyedwm.operators.results import HIDDEN_PREFIX
from keyedwm.operators.state.key_dictionary import KeyDictionary, KeyHolder, key_columns
from keyedwm.runtime.compiled import compiled

HASH = f"{HIDDEN_PREFIX}hash"  # the column of stored rows with the hash of their key
_FEWEST = 1024
_NO_MARKS = np.full(1, -1, np.int64)  # every hash has one
Places: TypeAlias = NDArray[np.int32]  # numbers by hash, -1 for a free place; there are 2**n places


class HashedKeys(KeyDictionary):
    """A dictionary of keys whose hashes are known; it is never compacted."""

    def _clear(self) -> None:
        super()._clear()
        self._hashes: Ints = np.empty(_FEWEST, np.int64)
        self._places: Places = np.full(4 * _FEWEST, -1, np.int32)
        self._one_hash = False  # two keys have one
        self._marked: tuple[int, Ints] | None = None  # the number of keys

    @property
    def fields(self) -> tuple[pa.Field, ...]:
        """The key columns."""
        return self._fields

    @property
    def hashes(self) -> Ints:
        """The hash of each key, by number."""
        return self._hashes[: self.count]

    def numbers(self, columns: Sequence[pa.Array], rows: int, hashes: Ints | None = None) -> Ints:
        """Return the number of each row's key; new keys get the next numbers.

        hashes: the hashes of the rows, if known.
        """
        if hashes is None:
            hashes = hash_of(columns, rows)
        self._make_room(rows)
        numbers, firsts = _insert(hashes, self._places, self._hashes, self.count)
        if len(firsts):
            self._learn_rows(columns, firsts, rows)
        is_known = np.ones(rows, np.bool_)
        is_known[firsts] = False
        again = np.flatnonzero(is_known)
        if len(again) and not same_keys(columns, again, self._columns, numbers[again]):
            numbers = self._by_key(columns, rows)
        return numbers

    def numbers_of(self, rows: pa.Table, *, is_hashed: bool = False) -> Ints:
        """Return the number of the key of each row; see `KeyDictionary`. is_hashed: the rows have the keys' `HASH`."""
        hashes = ints(contiguous(rows[HASH])) if is_hashed else None
        return self.numbers(key_columns([field.name for field in self._fields], rows), rows.num_rows, hashes)

    def find(self, columns: Sequence[pa.Array], hashes: Ints, first: int = 0) -> tuple[Ints, Ints]:
        """Return the rows whose key has a number of `first` or above, and these numbers; new keys get no number."""
        marks = self._marks() if len(hashes) > self.count else _NO_MARKS
        rows, numbers = _find_rows(hashes, marks, self._places, self._hashes, 0 if self._one_hash else first)
        if not self._one_hash and same_keys(columns, rows, self._columns, numbers):
            return rows, numbers
        rows, _ = _find_rows(hashes, marks, self._places, self._hashes, 0)
        among, places = self._plain(), pa.array(rows)
        key_rows = [column.take(places).cast(known.type) for column, known in zip(columns, self._columns, strict=True)]
        numbers = among.numbers(key_rows, len(rows))
        is_own = (numbers >= first) & (numbers < self.count)
        return rows[is_own], numbers[is_own]

    def ranks(self, numbers: Ints) -> Ints:
        """Return the rank of each number, as `KeyDictionary.ranks`.

        If texts differ in the eight bytes after their common prefix, only these bytes are compared.
        """
        column = self._columns[0]
        if self._order is not None or len(self._columns) > 1 or not _is_text(column.type) or column.null_count:
            return super().ranks(numbers)
        is_used = np.zeros(self.count, np.bool_)
        is_used[numbers] = True
        used_numbers = np.flatnonzero(is_used)
        prefixes = _prefix_numbers(*_text(column), used_numbers)
        order = np.argsort(prefixes)
        if (np.diff(prefixes[order]) == 0).any():
            return super().ranks(numbers)
        ranks = np.empty(self.count, np.int64)
        ranks[used_numbers[order]] = np.arange(len(used_numbers))
        return ranks[numbers]

    def compact(self, holders: Sequence[KeyHolder]) -> None:
        """Do nothing: other objects hold these numbers, too."""

    def _marks(self) -> Ints:
        """Return a bit for each hash, in about one word per key: most rows of other keys have no bit."""
        if self._marked is None or self._marked[0] != self.count:
            self._marked = self.count, _marked(self.hashes, 1 << max(4, self.count.bit_length()))
        return self._marked[1]

    def _plain(self) -> KeyDictionary:
        """Return a dictionary in which these keys have the same numbers."""
        among = KeyDictionary(self._fields)
        among.numbers(self._columns, self.count)
        return among

    def _by_key(self, columns: Sequence[pa.Array], rows: int) -> Ints:
        """Return numbers for rows, some of which have the hash of another key and cannot be found by it."""
        numbers = self._plain().numbers(columns, rows)
        _, firsts = np.unique(numbers, return_index=True)
        firsts = firsts[numbers[firsts] >= self.count]
        if len(firsts):
            self._one_hash = True
            self._hashes[self.count : self.count + len(firsts)] = hash_of(columns, rows)[firsts]
            self._learn_rows(columns, firsts, rows)
        return numbers

    def _learn_rows(self, columns: Sequence[pa.Array], firsts: Ints, rows: int) -> None:
        fresh = list(columns) if len(firsts) == rows else [column.take(pa.array(firsts)) for column in columns]
        if self.count:
            fresh = [pa.concat_arrays(pair) for pair in zip(self._columns, fresh, strict=True)]
        self._columns, self._order = fresh, None
        self.count += len(firsts)

    def _make_room(self, rows: int) -> None:
        """Make room for `rows` more keys."""
        if self.count + rows > len(self._hashes):
            more = np.empty(2 * (self.count + rows), np.int64)
            more[: self.count] = self._hashes[: self.count]
            self._hashes = more
        if 2 * (self.count + rows) > len(self._places):
            size = 1 << (2 * (self.count + rows) - 1).bit_length()
            self._places = _placed(self.hashes, size)


def hash_of(columns: Sequence[pa.Array], rows: int) -> Ints:
    """Return the hash of each row, as stored beside keys."""
    return hashed_rows(columns, rows).view(np.int64)


def by_hash(hashes: Ints) -> Ints:
    """Return the order of rows by their hash; rows of one hash keep their order.

    Then places, texts and stored rows of keys are in the same order, which is fast for caches.
    """
    order = np.argsort(hashes)
    return order if _keep_order(hashes, order) else np.argsort(hashes, kind="stable")


def same_keys(columns: Sequence[pa.Array], rows: Ints, others: Sequence[pa.Array], numbers: Ints) -> bool:
    """Return for each row whether it equals the row of other columns; nulls are equal."""
    return all(_same(*both, rows, numbers) for both in zip(columns, others, strict=True))


def _same(column: pa.Array, other: pa.Array, rows: Ints, numbers: Ints) -> bool:
    if _is_text(column.type) and _is_text(other.type):
        if column.null_count or other.null_count:
            valid, known = (one.is_valid().to_numpy(zero_copy_only=False) for one in (column, other))
            if not np.array_equal(valid[rows], known[numbers]):
                return False
            rows, numbers = rows[valid[rows]], numbers[valid[rows]]
        return bool(_same_texts(*_text(column), rows, *_text(other), numbers))
    one, two = (each.take(pa.array(places)) for each, places in ((column, rows), (other, numbers)))
    if one.type != two.type:
        one = one.cast(two.type)
    if pa.types.is_floating(one.type):  # NaN is one value
        whole = {16: pa.int16(), 32: pa.int32(), 64: pa.int64()}[one.type.bit_width]
        one, two = one.view(whole), two.view(whole)
    is_same = pc.fill_null(pc.equal(one, two), pa.scalar(value=False))
    if one.null_count or two.null_count:
        is_same = pc.or_(is_same, pc.and_(one.is_null(), two.is_null()))
    return bool(pc.all(is_same, min_count=0).as_py())


def _is_text(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_large_string(kind) or pa.types.is_large_binary(kind)
        or pa.types.is_string(kind) or pa.types.is_binary(kind)
    )  # fmt: skip


def _text(column: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """Return the bytes of texts, and the begin of each, with the end of the last one."""
    is_large = pa.types.is_large_string(column.type) or pa.types.is_large_binary(column.type)
    _, offsets, data = column.buffers()
    octets = np.empty(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
    if offsets is None or not len(column):
        return octets, np.zeros(1, np.int64)
    begins = np.frombuffer(offsets, np.int64 if is_large else np.int32)
    return octets, begins[column.offset : column.offset + len(column) + 1]


@compiled
def _same_texts(  # noqa: PLR0917  a loop over plain arrays
    octets: Ints, begins: Ints, rows: Ints, others: Ints, places: Ints, numbers: Ints
) -> bool:
    for at in range(rows.shape[0]):
        begin, place = begins[rows[at]], places[numbers[at]]
        end = begins[rows[at] + 1]
        if places[numbers[at] + 1] - place != end - begin:
            return False
        while begin + 8 <= end:  # one comparison of eight bytes
            differs = np.uint8(0)
            for step in range(8):
                differs |= octets[begin + step] ^ others[place + step]
            if differs:
                return False
            begin += 8
            place += 8
        while begin < end:
            if octets[begin] != others[place]:
                return False
            begin += 1
            place += 1
    return True


@compiled
def _prefix_numbers(octets: Ints, begins: Ints, rows: Ints) -> NDArray[np.uint64]:
    """Return eight bytes of each text as a number of the same order, from the first byte in which two differ."""
    shared = begins[rows[0] + 1] - begins[rows[0]] if rows.shape[0] else 0
    for row in rows:
        shared = min(shared, begins[row + 1] - begins[row])
        for at in range(shared):
            if octets[begins[row] + at] != octets[begins[rows[0]] + at]:
                shared = at
                break
    prefixes = np.empty(rows.shape[0], np.uint64)
    for at in range(rows.shape[0]):
        word = np.uint64(0)
        for place in range(begins[rows[at]] + shared, begins[rows[at]] + shared + 8):
            word <<= np.uint64(8)
            if place < begins[rows[at] + 1]:
                word |= np.uint64(octets[place])
        prefixes[at] = word
    return prefixes


@compiled
def _keep_order(hashes: Ints, order: Ints) -> bool:
    """Put rows of one hash in their original order; return whether each hash had only few rows."""
    begin = 0
    for at in range(1, order.shape[0]):
        row = order[at]
        if hashes[order[at - 1]] != hashes[row]:
            begin = at
            continue
        if at - begin > 64:
            return False
        place = at
        while place > begin and order[place - 1] > row:
            order[place] = order[place - 1]
            place -= 1
        order[place] = row
    return True


@compiled
def _shift(size: int) -> int:
    """Return the shift of a hash for its place among 2**n: keys in order of hash have places in order."""
    bits = 0
    while 1 << bits < size:
        bits += 1
    return 64 - bits


@compiled
def _insert(hashes: Ints, places: Places, known: Ints, count: int) -> tuple[Ints, Ints]:
    """Return the number of each hash, and the first row of each new hash; add the new hashes to both tables."""
    mask, shift = places.shape[0] - 1, _shift(places.shape[0])
    numbers, firsts = np.empty(hashes.shape[0], np.int64), np.empty(hashes.shape[0], np.int64)
    fresh = 0
    for row in range(hashes.shape[0]):
        key_hash = hashes[row]
        place = (key_hash >> shift) & mask
        while places[place] >= 0 and known[places[place]] != key_hash:
            place = (place + 1) & mask
        if places[place] < 0:
            places[place] = count + fresh
            known[count + fresh] = key_hash
            firsts[fresh] = row
            fresh += 1
        numbers[row] = places[place]
    return numbers, firsts[:fresh].copy()


@compiled
def _placed(hashes: Ints, size: int) -> Places:
    """Return the numbers of hashes in a table of this size; equal hashes have the first number."""
    places = np.full(size, -1, np.int32)
    shift = _shift(size)
    for number in range(hashes.shape[0]):
        place = (hashes[number] >> shift) & (size - 1)
        while places[place] >= 0 and hashes[places[place]] != hashes[number]:
            place = (place + 1) & (size - 1)
        if places[place] < 0:
            places[place] = number
    return places


@compiled
def _marked(hashes: Ints, size: int) -> Ints:
    """Return words of 64 bits, 2**n of them, with a bit for each hash."""
    marks = np.zeros(size, np.int64)
    for one in hashes:
        marks[(one >> 6) & (size - 1)] |= np.int64(1) << (one & 63)
    return marks


@compiled
def _find_rows(hashes: Ints, marks: Ints, places: Places, known: Ints, first: int) -> tuple[Ints, Ints]:
    """Return the rows whose hash has a number from `first` on, and these numbers; marks: see `_marked`."""
    mask, mask_of_words, shift = places.shape[0] - 1, marks.shape[0] - 1, _shift(places.shape[0])
    count = 0
    rows, numbers = np.empty(hashes.shape[0], np.int64), np.empty(hashes.shape[0], np.int64)
    for row in range(hashes.shape[0]):
        key_hash = hashes[row]
        if not (marks[(key_hash >> 6) & mask_of_words] >> (key_hash & 63)) & 1:
            continue
        place = (key_hash >> shift) & mask
        while places[place] >= 0 and known[places[place]] != key_hash:
            place = (place + 1) & mask
        if places[place] >= first and places[place] >= 0:
            rows[count], numbers[count] = row, places[place]
            count += 1
    return rows[:count].copy(), numbers[:count].copy()
