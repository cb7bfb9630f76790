from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest

from keyedwm.kafka.records.partitioner import STICKY_RUN, murmur2, partition_of

# From the Java client's own UtilsTest.
JAVA = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


@pytest.mark.parametrize("kind", [pa.binary(), pa.string()])
def test_hashes_are_those_of_the_java_client(kind):
    hashed = murmur2(pa.array([key.decode() if kind == pa.string() else key for key in JAVA], kind))
    assert hashed.astype(np.int32).tolist() == list(JAVA.values())


def test_hashes_equal_kafka_pythons_for_any_bytes(seed):
    from kafka.partitioner.default import murmur2 as theirs

    rng = random.Random(f"{seed} murmur2")
    keys = [rng.randbytes(rng.randrange(40)) for _ in range(2_000)]
    assert murmur2(pa.array(keys, pa.binary())).tolist() == [theirs(key) & 0xFFFFFFFF for key in keys]


def test_a_slice_is_hashed_like_the_whole():
    keys = pa.array([b"zero", None, b"one", b"", b"two"], pa.binary())
    assert murmur2(keys)[2:].tolist() == murmur2(keys[2:]).tolist()


def test_a_key_always_goes_to_the_same_partition_and_never_to_a_missing_one():
    keys = pa.array([b"%d" % (i % 100) for i in range(10_000)], pa.binary())
    partitions = partition_of(keys, 10_000, 7, 0)
    assert (partitions[:100] == partitions[9_900:]).all()
    assert set(partitions.tolist()) == set(range(7))


def test_rows_without_a_key_stay_for_a_run_and_then_move_on():
    rows = 3 * STICKY_RUN
    assert partition_of(None, rows, 2, STICKY_RUN).tolist() == [1] * STICKY_RUN + [0] * STICKY_RUN + [1] * STICKY_RUN
    keys = pa.array([None, b"abc"] * STICKY_RUN, pa.binary())
    partitions = partition_of(keys, 2 * STICKY_RUN, 5, 0)
    assert set(partitions[::2].tolist()) == {0}
    assert set(partitions[1::2].tolist()) == {479470107 % 5}


def test_two_calls_go_on_where_the_first_ended():
    whole = partition_of(None, 2_500, 3, 0)
    parts = [partition_of(None, 1_300, 3, 0), partition_of(None, 1_200, 3, 1_300)]
    assert np.concatenate(parts).tolist() == whole.tolist()
