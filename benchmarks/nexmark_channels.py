"""The channel and the URL of a bid, as Flink's generator has them beside Beam's fields: functions of the bid's number.

Rule: half of the bids are of four large channels with one URL each, the others of ten thousand channels. Nine in ten of
these name the channel in their URL. Flink's generator draws them at random; here an event's number decides, so that
each part of the stream can be made alone.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

LARGE = ("Google", "Facebook", "Baidu", "Apple")
OTHERS = 10_000
_LETTERS = np.array(list("abcdefghijklmnopqrstuvwxyz_"))
_DIRECTORIES, _LETTERS_EACH = 3, 4


def channels(numbers: np.ndarray) -> pa.Table:
    """The columns `channel` and `url` of the bids with these numbers."""
    names, urls = _channels()
    random_numbers = _mixed(numbers)
    is_large, large, other = random_numbers % 2 == 0, random_numbers // 2 % len(LARGE), random_numbers // 8 % OTHERS
    at = pa.array(np.where(is_large, large, len(LARGE) + other))
    return pa.table({"channel": names.take(at), "url": urls.take(at)})


@lru_cache(maxsize=1)
def _channels() -> tuple[pa.Array, pa.Array]:
    """The names of all channels, and their URLs."""
    numbers = np.arange(len(LARGE) + OTHERS)
    random_numbers = _mixed(numbers[:, None] * 100 + np.arange(_DIRECTORIES * _LETTERS_EACH)) % len(_LETTERS)
    letters = _LETTERS[random_numbers].reshape(len(numbers), _DIRECTORIES, _LETTERS_EACH)
    paths = pa.array(["/".join("".join(one) for one in path) for path in letters.tolist()])
    ids = pa.array((numbers * 2_654_435_761 % 2**31).astype(str))
    is_named = pa.array((numbers >= len(LARGE)) & (numbers % 10 != 0))
    ends = pc.if_else(is_named, pc.binary_join_element_wise("&channel_id=", ids, ""), "")
    urls = pc.binary_join_element_wise("https://auctions.example.com/", paths, "/item.htm?query=1", ends, "")
    return pa.array([*LARGE, *(f"channel-{number}" for number in range(OTHERS))]), urls


def _mixed(numbers: np.ndarray) -> np.ndarray:
    """A whole number of 62 bits for each number, without a pattern: two rounds of multiplication and shift."""
    mixed = numbers.astype(np.uint64)
    for factor in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9):
        mixed = (mixed + np.uint64(1)) * np.uint64(factor)
        mixed ^= mixed >> np.uint64(29)
    return (mixed >> np.uint64(2)).astype(np.int64)
