"""Sketches: the bytes and estimates of Apache DataSketches for the same values, however these are cut and ordered."""

from __future__ import annotations

import math
import random
import struct
import subprocess
import sys
from collections.abc import Callable, Iterable

import datasketches
import numpy as np
import pyarrow as pa
import pytest

from keyedwm.arrow.columns import values_at
from keyedwm.core.errors import OptionError
from keyedwm.operators.aggregates import functions as agg
from keyedwm.operators.aggregates.aggregate_function import Groups, RowOrder, Spans
from keyedwm.operators.aggregates.sketches.quantile_sketch import MAX_DISTINCT
from tests.operators.test_more_aggregates import one

HLL_8 = datasketches.tgt_hll_type.HLL_8


def sketched(spec: agg.AggregateSpec, values: pa.Array, parts: int = 1, seed: int = 0):
    """The result over all values, of parts that are merged in any order, in two ways that must agree."""
    rng = np.random.default_rng(seed)
    function = spec.bind(pa.schema([("v", values.type)]), ())
    ids = rng.permutation(np.arange(len(values)) % parts)
    columns = function.gather(values, RowOrder(np.zeros(len(values), np.int64), ()), Groups(ids, parts))
    order = rng.permutation(parts)
    columns = [values_at(column, order) for column in columns]
    few = Groups(np.arange(parts) % (parts // 2 + 1), min(parts, parts // 2 + 1))
    columns = function.merge(columns, few)
    merged = function.merge(columns, Groups(np.zeros(few.count, np.int64), 1))
    spanned = function.spans(columns, Spans(np.array([0]), np.array([few.count])))
    (result,) = function.finish(merged, np.ones(1, np.int64)).to_pylist()
    assert function.finish(spanned, np.ones(1, np.int64)).to_pylist() == [result]
    return result


def random_values(kind: pa.DataType, count: int, seed: int) -> pa.Array:
    """Values with repetitions, nulls, zeros of both signs, NaNs, empty and long texts; bytes are of ASCII."""
    rng = random.Random(seed)
    if pa.types.is_integer(kind):
        values: list = [rng.randrange(-(2**31), 2**31) for _ in range(count)]
    elif pa.types.is_floating(kind):
        values = [rng.choice([0.0, -0.0, math.nan, math.inf, rng.uniform(-1, 1)]) for _ in range(count)]
    elif pa.types.is_string(kind):
        values = ["é" * rng.randrange(3) + "x" * rng.randrange(20) + str(rng.randrange(10**6)) for _ in range(count)]
    else:
        values = [bytes(rng.randrange(128) for _ in range(rng.randrange(40))) for _ in range(count)]
    empty = values[0][:0] if isinstance(values[0], (str, bytes)) else None
    return pa.array([*values, *values[: count // 3], None, empty], kind)


def sketch_of(sketch, values: pa.Array):
    """The library's sketch, to which each value is given."""
    for value in values.drop_null().to_pylist():
        sketch.update(value.decode() if isinstance(value, bytes) else value)
    return sketch


def union_of(*sketches) -> datasketches.hll_sketch:
    union = datasketches.hll_union(21)
    for sketch in sketches:
        union.update(sketch)
    return union.get_result(HLL_8)


def coupons(sketch: bytes) -> tuple[bytes, Iterable[int]]:
    """What stands before the coupons of a list or set of coupons, and these; the library's set is a hash table."""
    start = 8 if sketch[0] == 2 else 12
    return sketch[:start], sorted(struct.unpack(f"<{(len(sketch) - start) // 4}I", sketch[start:]))


KINDS = [pa.int64(), pa.int32(), pa.float64(), pa.string(), pa.binary()]
COUNTS = [1, 6, 7, 24, 25, 300, 385, 8_000]


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("lg_k", [7, 8, 12])
def test_an_hll_sketch_holds_what_the_library_holds(kind, lg_k, seed):
    for count in COUNTS:
        values = random_values(kind, count, seed + count)
        own_bytes = sketched(agg.hll_sketch("v", lg_k), values, 5, seed)
        library_sketch = sketch_of(datasketches.hll_sketch(lg_k, HLL_8), values)
        bytes_of_theirs = library_sketch.serialize_compact()
        if own_bytes[0] == 10:  # registers: their number of zeros, their sums and themselves; an estimate stands before
            assert (bytes_of_theirs[:5], bytes_of_theirs[24:]) == (own_bytes[:5], own_bytes[24:])
        else:
            assert coupons(bytes_of_theirs) == coupons(own_bytes)
        read = datasketches.hll_sketch.deserialize(own_bytes)
        assert union_of(read, library_sketch).get_estimate() == union_of(library_sketch, library_sketch).get_estimate()
        assert read.get_estimate() == pytest.approx(union_of(library_sketch, library_sketch).get_estimate(), rel=1e-9)


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("lg_k", [5, 8, 12])
def test_a_theta_sketch_has_the_bytes_of_the_librarys_union(kind, lg_k, seed):
    for count in COUNTS:
        values = random_values(kind, count, seed + count)
        own_bytes = sketched(agg.theta_sketch("v", lg_k), values, 5, seed)
        union = datasketches.theta_union(lg_k)
        union.update(sketch_of(datasketches.update_theta_sketch(lg_k), values))
        library_bytes = union.get_result().serialize()
        if (
            own_bytes[5] & 32
        ):  # one hash alone is marked as such by Java's library, which Spark uses, and not by this one
            own_bytes = own_bytes[:5] + bytes([own_bytes[5] & ~32]) + own_bytes[6:]
        assert own_bytes == library_bytes


def skewed(count: int, seed: int) -> list[float]:
    rng = random.Random(seed)
    return [rng.choice([-1.0, 1.0]) * rng.lognormvariate(0, 2) for _ in range(count)]


@pytest.mark.parametrize("k", [8, 200, 1_000])
@pytest.mark.parametrize("count", [1, 2, 199, 200, 201, 1_000, 20_000])
def test_a_kll_sketch_is_read_by_the_library_with_no_rank_off_by_more_than_one_kth(k, count, seed):
    values = skewed(count, seed)
    read = datasketches.kll_doubles_sketch.deserialize(sketched(agg.kll_sketch("v", k), pa.array(values), 1))
    assert (read.n, read.k) == (count, k)
    assert (read.get_min_value(), read.get_max_value()) == (min(values), max(values))
    sorted_values = np.sort(values)
    for share in np.linspace(0.01, 0.99, 21):
        quantile = read.get_quantile(share, inclusive=True)
        near = sorted([quantile * 0.99, quantile * 1.01])
        low, high = (np.searchsorted(sorted_values, edge) / count for edge in near)
        assert low - 1 / k - 1e-9 <= share <= high + 1 / k + 1e-9
    other = datasketches.kll_doubles_sketch(k)
    other.update(np.array(values))
    other.merge(read)
    assert other.n == 2 * count


def test_few_values_of_a_kll_sketch_are_the_bytes_of_the_library():
    for count in (0, 1, 2, 150):
        library_sketch = datasketches.kll_doubles_sketch(200)
        values = [float(count - at) for at in range(count)]
        for value in values:
            library_sketch.update(value)
        own_bytes = sketched(agg.kll_sketch("v"), pa.array([None, *sorted(values)], pa.float64()))
        items = 32 if count > 1 else 8
        assert own_bytes[:items] == library_sketch.serialize()[:items]
        assert sorted(own_bytes[items:]) == sorted(library_sketch.serialize()[items:])


@pytest.mark.parametrize("share", [0, 0.1, 0.5, 0.99, 1])
def test_a_quantile_is_exact_for_few_values_and_rounded_for_many(share, seed):
    for count in (1, 7, MAX_DISTINCT, 20 * MAX_DISTINCT):
        values = skewed(count, seed)
        quantile = sketched(agg.approx_quantile("v", share), pa.array([*values, None]))
        exact = sorted(values)[max(math.ceil(share * count), 1) - 1]
        octaves = len({math.frexp(value)[1] * math.copysign(1, value) for value in values})
        # half of what the dropped bits stand for: less than one in MAX_DISTINCT for each power of two
        # (and sign) that occurs
        assert quantile == (
            exact if count <= MAX_DISTINCT or share in (0, 1) else pytest.approx(exact, rel=octaves / MAX_DISTINCT)
        )


def test_a_zero_stays_zero_among_many_values_of_both_signs(seed):
    values = pa.array([*skewed(9_000, seed), *[0.0] * 9_000])
    assert sketched(agg.approx_quantile("v", 0.5), values, 7) == 0
    assert datasketches.kll_doubles_sketch.deserialize(sketched(agg.kll_sketch("v"), values, 7)).get_quantile(0.5) == 0


def test_a_kll_sketch_takes_space_for_the_items_that_it_has_and_not_for_those_that_it_may_have():
    program = (
        "import resource, numpy as np, pyarrow as pa\n"
        "from keyedwm.operators.aggregates.sketches.kll_sketch import KllSketch\n"
        "from keyedwm.operators.aggregates.sketches.quantile_sketch import SketchItems\n"
        "few = np.arange(200_000)\n"
        "resource.setrlimit(resource.RLIMIT_DATA, (4 << 30, 4 << 30))\n"
        "entries = SketchItems(few * 1.0, np.ones_like(few), np.arange(200_001), np.zeros_like(few))\n"
        "assert len(KllSketch(65_535).results(entries)) == 200_000"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=300)


def test_values_far_from_zero_and_close_together_keep_the_digits_that_tell_them_apart(seed):
    rng = random.Random(seed)
    times = [1_700_000_000_000.0 + rng.randrange(3_600_000) for _ in range(50_000)]
    quantile = sketched(agg.approx_quantile("v", 0.9), pa.array(times), 7)
    assert quantile == pytest.approx(sorted(times)[45_000], abs=3_600_000 / MAX_DISTINCT * 2)


SKETCHES: dict[str, Callable[[], agg.AggregateSpec]] = {
    "hll": lambda: agg.hll_sketch("v", 8), "theta": lambda: agg.theta_sketch("v", 6),
    "kll": lambda: agg.kll_sketch("v", 20), "quantile": lambda: agg.approx_quantile("v", 0.7),
}  # fmt: skip


@pytest.mark.parametrize("name", SKETCHES)
def test_no_cut_and_no_order_changes_a_byte(name, seed):
    rng = random.Random(seed)
    for values in (
        skewed(9_000, seed),
        [rng.choice([1e300, -1e300, 1e-300, math.inf, -math.inf, math.nan]) * rng.random() for _ in range(5_000)],
        [2.0 ** rng.randrange(-1_070, 1_020) * rng.choice([-1, 1]) * rng.uniform(1, 2) for _ in range(9_000)],
    ):
        whole = sketched(SKETCHES[name](), pa.array(values))
        for parts in (2, 30, 400):
            rng.shuffle(values)
            assert sketched(SKETCHES[name](), pa.array(values), parts, seed) == whole


def test_without_values_sketches_are_empty_and_a_quantile_is_null():
    nothing = [None, None]
    assert datasketches.hll_sketch.deserialize(one(agg.hll_sketch("v"), nothing)).is_empty()
    assert datasketches.compact_theta_sketch.deserialize(one(agg.theta_sketch("v"), nothing)).is_empty()
    assert datasketches.kll_doubles_sketch.deserialize(one(agg.kll_sketch("v"), [None, math.nan])).is_empty()
    assert one(agg.approx_quantile("v", 0.5), nothing) is None


def test_a_nan_is_above_every_number():
    assert one(agg.approx_quantile("v", 0.5), [math.nan, 1.0, 2.0, 3.0]) == 2.0
    assert math.isnan(one(agg.approx_quantile("v", 0.9), [math.nan, 1.0, 2.0, 3.0]))
    assert one(agg.approx_quantile("v", 1), [-math.inf, math.inf]) == math.inf


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: agg.hll_sketch("v", 22), r"hll_sketch\('v'\): lg_k=22: a whole number of 4 to 21 is expected"),
        (lambda: agg.hll_sketch("v", lg_k=True), r"hll_sketch\('v'\): lg_k=True: a whole number of 4 to 21"),
        (lambda: agg.theta_sketch("v", 4), r"theta_sketch\('v'\): lg_k=4: a whole number of 5 to 26 is expected"),
        (lambda: agg.kll_sketch("v", 7), r"kll_sketch\('v'\): k=7: a whole number of 8 to 65535 is expected"),
        (lambda: agg.approx_quantile("v", 90), r"approx_quantile\('v', 90\): a share from 0 to 1 is expected"),
        (lambda: agg.hll_sketch(3), r"hll_sketch\(3\): the name of a column is expected"),
    ],
)
def test_a_size_or_share_out_of_range_is_refused(make, sentence):
    with pytest.raises(OptionError, match=sentence):
        make()


@pytest.mark.parametrize(
    "kind", [pa.timestamp("us"), pa.decimal128(9, 2), pa.bool_(), pa.list_(pa.int64()), pa.uint64()]
)
def test_values_for_which_other_sketches_have_no_hash_are_refused(kind):
    for spec in (agg.hll_sketch("v"), agg.theta_sketch("v", 10)):
        with pytest.raises(OptionError, match=r"_sketch\(v\) needs whole numbers, floats, text or bytes, not "):
            spec.bind(pa.schema([("v", kind)]), ())


def test_quantiles_of_texts_are_refused():
    for spec in (agg.kll_sketch("v"), agg.approx_quantile("v", 0.5)):
        with pytest.raises(OptionError, match=r"\(v\) needs numbers, not string; cast the column"):
            spec.bind(pa.schema([("v", pa.string())]), ())
