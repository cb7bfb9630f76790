"""Names and sentences of the shipped code say what they mean: without exceptions."""

from __future__ import annotations

import ast

import pytest

from tests.system.house import names, sentences

COUNTS = {"names": names.counts, "sentences": sentences.counts}


@pytest.mark.parametrize("kind", COUNTS)
def test_no_name_and_no_sentence_must_be_read_twice(kind):
    assert COUNTS[kind]() == {}, f"`python -m tests.system.house.{kind} FOLDER` prints the places"


def test_a_participle_alone_is_noticed_and_one_with_a_noun_is_not():
    code = "import ast\nfound = 1\nfound_rows = 2\nfor held in (): pass\ndef take(rows, *, wanted): self._told = 1\n"
    bound = {name for name, _ in names.bound(ast.parse(code)) if name.strip("_") in names.NAMES}
    assert bound == {"found", "held", "take", "wanted", "_told"}
