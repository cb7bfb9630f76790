"""What a page says in a way that must be read twice: long sentences, long paragraphs, words of the house.

`python -m tests.docs.style [PAGE ...]` prints each place; without pages, the count of each page. Code and the addresses
of links do not count. A code span is one word.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
MOST_WORDS_OF_A_SENTENCE = 25
MOST_WORDS_OF_A_PARAGRAPH = 60
# Words and forms that readers stumbled over → what the field says.
HOUSE_WORDS = {
    r"\banew\b": "again",
    r"\b(tells?|told)\b": "shows, reports",
    r"\bwhoever\b": "a user who",
    r"(?<!::)\bdoubled?\b": "duplicate",
    r"\b(goes|go|going|went) on\b": "continue, resume",
    r"\bbeg[iau]ns? anew\b": "restart",
    r"\bleft out\b|\bleaves? out\b|\bleave out\b": "omit, drop, ignore",
    r"\bholds? (it|them|the others|the watermark)( back)?\b": "block",
    r"\brefus(e|es|ed|ing)\b": "reject with an error",
    r"\blaggard\b": "slow partition",
    r"\bparted\b": "split",
    r"\bof others\b": "third-party",
    r"\bfound out\b": "detected",
    r"\bput off\b": "postponed",
    r"\bof use any more\b": "needed",
    r"\b(is|are|was|were) (said|spoken) (of|by)\b": "describe",
    r"\bcomes? again\b|\bcame again\b": "is replayed",
    r"\bcome to the end\b": "end",
    r"\btakes? part\b|\btake no part\b": "ignored, included",
}
_ANY_HOUSE_WORD = re.compile("|".join(HOUSE_WORDS), re.IGNORECASE)
_CODE = re.compile(r"^```.*?^```|(?:^ {4}[^\n]*\n)+|<!--.*?-->", re.MULTILINE | re.DOTALL)
_SPAN = re.compile(r"``.+?``|`[^`]+`")
_LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
_ENDS = re.compile(r"(?<=[.!?:;])\s+(?=[\w*\"'(])|\s+→\s+")
_ABBREVIATED = re.compile(r"\b(e\.g|i\.e|vs|etc)\.")


class Place(NamedTuple):
    """One place of a page: its kind, how much is too much, and the text."""

    kind: str
    word_count: int
    text: str


def blocks(page: str) -> Iterator[tuple[str, str]]:
    """Yield the texts of a page with their kind: paragraph, bullet or cell."""
    text = _SPAN.sub("code", _CODE.sub("\n\n", page))
    text = _ABBREVIATED.sub(r"\1", _LINK.sub(r"\1", text))
    for block in re.split(r"\n\s*\n", text):
        lines = block.strip().splitlines()
        if not lines or lines[0].startswith("#"):
            continue
        if lines[0].startswith("|"):
            for line in lines:
                if not re.fullmatch(r"[|\s:-]+", line):
                    yield from (("cell", cell.strip()) for cell in line.strip("|").split("|"))
            continue
        for item in re.split(r"\n(?=\s*(?:[-*]|\d+\.)\s)", "\n".join(lines)):
            kind = "bullet" if re.match(r"\s*(?:[-*]|\d+\.)\s", item) else "paragraph"
            yield kind, " ".join(re.sub(r"^\s*(?:[-*]|\d+\.)\s", "", item).split())


def places(page: str) -> list[Place]:
    """Return what must be read twice."""
    hits = []
    for kind, text in blocks(page):
        word_count = len(text.split())
        if word_count > MOST_WORDS_OF_A_PARAGRAPH:
            hits.append(Place(f"long {kind}", word_count, text))
        for sentence in _ENDS.split(text):
            count = len(sentence.split())
            if count > MOST_WORDS_OF_A_SENTENCE:
                hits.append(Place("long sentence", count, sentence))
        for pattern, better in HOUSE_WORDS.items() if _ANY_HOUSE_WORD.search(text) else ():
            for match in re.finditer(pattern, text, re.IGNORECASE):
                around = text[max(0, match.start() - 40) : match.end() + 40]
                hits.append(Place(f"house word, say {better!r}", 0, around))
    return hits


def pages() -> list[Path]:
    """Return the pages that users read: README and docs, without the design but for the rules."""
    docs = sorted((ROOT / "docs").rglob("*.md"))
    return [ROOT / "README.md", *(page for page in docs if page.parent.name != "design" or page.name == "rules.md")]


def main(names: list[str]) -> None:
    """Print the places of the named pages, or the count of each page."""
    if names:
        for name in names:
            for place in places(Path(name).read_text()):
                print(f"{name}: {place.kind} ({place.word_count}): {place.text[:160]}")
        return
    total = 0
    for page in pages():
        count = len(places(page.read_text()))
        total += count
        print(f"{count:5} {page.relative_to(ROOT)}")
    print(f"{total:5} in all")


if __name__ == "__main__":
    main(sys.argv[1:])
