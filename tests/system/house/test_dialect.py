"""Names and sentences of the shipped code say what they mean; what is left of the older dialect may only shrink.

`python -m tests.system.house.test_dialect` records the counts of today in `dialect.json`, after they have fallen.
"""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest

from tests.system.house import names, sentences

RECORD = Path(__file__).with_name("dialect.json")
COUNTS = {"names": names.counts, "sentences": sentences.counts}


@pytest.mark.parametrize("kind", COUNTS)
def test_the_dialect_of_a_room_only_shrinks(kind):
    most = json.loads(RECORD.read_text())[kind]
    grown = {room: count for room, count in COUNTS[kind]().items() if count > most.get(room, 0)}
    assert grown == {}, f"`python -m tests.system.house.{kind} FOLDER` prints the places"


def test_a_participle_alone_is_noticed_and_one_with_a_noun_is_not():
    code = "import ast\nfound = 1\nfound_rows = 2\nfor held in (): pass\ndef take(rows, *, wanted): self._told = 1\n"
    bound = {name for name, _ in names.bound(ast.parse(code)) if name.strip("_") in names.NAMES}
    assert bound == {"found", "held", "take", "wanted", "_told"}


if __name__ == "__main__":
    RECORD.write_text(json.dumps({kind: count() for kind, count in COUNTS.items()}, indent=2) + "\n")
