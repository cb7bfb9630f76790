from __future__ import annotations

import json
import os

import pytest

from pyspark_wm_source.values.offsets import QueryOffset
from tests.fuzzing import corpus, targets

EXAMPLES = int(os.environ.get("KEYEDWM_FUZZ_EXAMPLES", "200"))


@pytest.mark.parametrize("name", targets.TARGETS)
def test_made_up_bytes_end_in_a_value_or_in_an_error_for_the_user(name: str, seed: int) -> None:
    assert targets.check(name, EXAMPLES, seed) >= EXAMPLES // 2


@pytest.mark.parametrize("name", targets.TARGETS)
def test_what_the_fuzzer_kept_ends_so_too(name: str) -> None:
    for data in corpus.kept(name):
        targets.TARGETS[name][0](data)


def test_the_sound_samples_are_read() -> None:
    targets.committed_metadata(targets._SOUND_METADATA.encode())
    cut = targets.decode_cut(targets.VERSION, targets._CUT, "here")
    assert cut is not None
    assert cut.promise() == ({0: 1_000}, True)
    assert QueryOffset.from_json(json.loads(targets.TARGETS["offsets"][1][0])) == targets._OFFSET
    assert targets._read_ledger(targets._sealed(targets.TARGETS["ledger"][1][0])) == targets._ENTRY
