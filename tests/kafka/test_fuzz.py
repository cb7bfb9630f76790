from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from keyedwm.kafka.codecs import compress
from keyedwm.kafka.errors import CorruptRecordError
from keyedwm.kafka.records import LARGEST_BATCH_BYTES
from keyedwm.kafka.values import Codec
from tests.kafka import fuzz
from tests.kafka.reference import Record, read_by_us, signed, write

MUTATIONS = int(os.environ.get("KEYEDWM_MUTATIONS", "4000"))


def test_a_damaged_batch_ends_in_the_reference_rows_or_in_an_error_that_says_where(seed: int) -> None:
    seen = fuzz.run(MUTATIONS, seed)
    assert set(seen) == {"refused", "read", "no rows"}
    assert seen["refused"] > MUTATIONS // 4
    assert seen["read"] > MUTATIONS // 100, "mutations too wild: nothing gets as far as rows"


def test_no_damage_makes_the_compiled_loops_leave_their_bounds(seed: int, tmp_path: Path) -> None:
    environment = os.environ | {"NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-m", "tests.kafka.fuzz", "--count", str(MUTATIONS), "--seed", str(seed + 1)]
    done = subprocess.run(
        command, env=environment, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("codec", [codec for codec in Codec if codec is not Codec.NONE])
def test_a_small_batch_that_would_fill_the_memory_is_refused(codec: Codec) -> None:
    head = write([Record(5, 0, None, bytes(1_000))], codec)[:61]
    bomb = head + compress(codec, bytes(LARGEST_BATCH_BYTES + 1))
    bomb = signed(bomb[:8] + (len(bomb) - 12).to_bytes(4, "big") + bomb[12:])
    with pytest.raises(CorruptRecordError, match=r"offset 5 of t-3 decompresses .* to more than") as caught:
        read_by_us(bomb)
    assert caught.value.next_offset == 6
