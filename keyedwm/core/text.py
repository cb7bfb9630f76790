"""Texts in messages: foreign values made printable and short, lists cut, the nearest known name.

Rule: a value in a message is on one line, sends no control characters to a terminal, and is cut if it is long: it must
neither forge nor fill a log.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence

MOST_SHOWN = 120  # characters of a value
MOST_WORDS = 400  # characters of an error's words
MOST_LISTED = 5  # names of a list
_BETWEEN_WORDS = re.compile(r"[\W_]+|(?<=[a-z0-9])(?=[A-Z])")


def printable(text: str) -> str:
    r"""Return a text with unprintable characters escaped (`\x1b`), except line ends."""
    if text.isprintable():
        return text
    return "".join(c if c == "\n" or c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def one_line(text: str) -> str:
    r"""Return a printable text with line ends escaped, too, so that a foreign name cannot begin a line of ours."""
    return printable(text).replace("\n", "\\n")


def shortened(text: str, most: int = MOST_SHOWN) -> str:
    """Return a text, or its beginning if it is long."""
    return text if len(text) <= most else f"{text[:most]}..."


def short_repr(value: object, most: int = MOST_SHOWN) -> str:
    """Return a value as Python writes it, on one line, and its beginning if it is long."""
    if isinstance(value, str):
        return repr(shortened(value, most))
    return printable(shortened(" ".join(repr(value).split()), most))


def words_of(error: BaseException, most: int = MOST_WORDS) -> str:
    """Return the words of an error on one line, and their beginning if they are long."""
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 (its class may be a user's)
        text = "it cannot say more"
    return printable(shortened(" ".join(text.split()), most))


def error_text(error: BaseException, most: int = MOST_WORDS) -> str:
    """Return the kind of an error and its words, if it has any, as `words_of` does."""
    return ": ".join(filter(None, (type(error).__name__, words_of(error, most))))


def listed(names: Sequence[object], most: int = MOST_LISTED) -> str:
    """Return names as a list; if they are many, the first names and the number of the others."""
    more = len(names) - most
    return ", ".join(map(str, names[:most])) + (f" and {more} more" if more > 0 else "")


def offsets_text(first: int, end: int) -> str:
    """Return the offsets from `first` up to the end offset `end` (exclusive) as text that names both ends."""
    if first >= end:
        return f"no records, its end offset is {end}"
    return f"the offset {first}" if first + 1 == end else f"the offsets {first} to {end - 1}"


def nearest(name: str, known: Iterable[str], *, similarity: float = 0.6) -> str | None:
    """Return the known name with the same words in any order, else the name with the most similar letters, or None.

    similarity: the least similarity of the letters, 1 for equal names.
    """
    by_lower = {k.lower(): k for k in sorted(known)}
    word_list = _word_list(name)
    same_words = [k for k in by_lower.values() if word_list and _word_list(k) == word_list]
    close = difflib.get_close_matches(name.lower(), sorted(by_lower), n=1, cutoff=similarity)
    return same_words[0] if same_words else by_lower[close[0]] if close else None


def _word_list(name: str) -> list[str]:
    return sorted(word.lower() for word in _BETWEEN_WORDS.split(name) if word)


def about_span(span_ms: int) -> str:
    """Return a length of time in the largest unit of which it has at least two: 150,000 ms are `2 min`."""
    for unit_ms, name in ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s")):
        if span_ms >= 2 * unit_ms:
            return f"{span_ms // unit_ms} {name}"
    return f"{span_ms} ms" if span_ms else "0"


def span_text(ms: int) -> str:
    """Return a length of time in the largest unit that makes it a whole number: 540,000 ms are `9 minutes`."""
    for unit, unit_ms in (("day", 86_400_000), ("hour", 3_600_000), ("minute", 60_000), ("second", 1_000)):
        if ms and ms % unit_ms == 0:
            return f"{ms // unit_ms} {unit}" + ("" if abs(ms) == unit_ms else "s")
    return f"{ms} ms"
