"""Conditions over large numbers, decimals and odd types mean what they mean in Spark; what is too deep is refused."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from typing import Any

import pyarrow as pa
import pytest

from keyedwm.core.errors import InputError, OptionError
from keyedwm.expressions.condition import Condition

SCHEMA = pa.schema(
    [
        ("n", pa.int64()), ("x", pa.float64()), ("d", pa.decimal128(10, 2)), ("wide", pa.decimal128(38, 10)),
        ("zoned", pa.timestamp("us", "UTC")), ("plain", pa.timestamp("us")), ("f", pa.float32()), ("i", pa.int32()),
        ("b", pa.int8()), ("w", pa.decimal128(38, 0)), ("u", pa.uint64()),
    ]
)  # fmt: skip
TRUE = {
    "n < 1.5": {"n": 1},
    "n > 0.5": {"n": 2**63 - 1},
    "n < x": {"n": 2**53 + 1, "x": 1e300},
    "n = x": {"n": 2**53 + 1, "x": 2.0**53},
    "n < 99999999999999999999": {"n": 2**63 - 1},
    "n = -9223372036854775808": {"n": -(2**63)},
    "d + 0.1 = 0.3": {"d": Decimal("0.20")},
    "x + 0.1 <> 0.3": {"x": 0.2},
    "x = 0.1": {"x": 0.1},
    "wide * d > 1": {"wide": Decimal(2), "d": Decimal(1)},
    "wide + n > 0.5": {"wide": Decimal(2), "n": 2**62},
    "f + 2147483647 = 2147483647.5": {"f": 0.5},
    "f + n > 9007199254740992": {"f": 2.0, "n": 2**53 + 1},
    "n * d = 18014398509481986": {"n": 2**53 + 1, "d": Decimal("2.00")},
    "n * x > 9007199254740992": {"n": 2**53 + 3, "x": 1.0},
    "d = x": {"d": Decimal("0.29"), "x": 0.29},
    "i = 2147483647 OR i + i < 0": {"i": 2**31 - 1},
    "n IS NULL AND i + i > 0 OR i > 0": {"i": 2**31 - 1, "n": 1},
    "n < i + i OR i > 0": {"i": 2**31 - 1},
    "b * 2 = 254": {"b": 127},
    "w * 10 > 0": {"w": Decimal(10**36)},
    "u > n": {"u": 2**64 - 1, "n": 5},
    "w > wide": {"w": Decimal(10**38 - 1), "wide": Decimal(10**27)},
    "n IN (3, -1.0, 7)": {"n": -1},
    "n NOT IN (3, 7)": {"n": 1},
    "n + 1 in (2)": {"n": 1},
    "NOT (n IN (3)) AND x IN (0.5)": {"n": 1, "x": 0.5},
    " OR ".join(["n = 0"] * 5_000 + ["n = 1"]): {"n": 1},
}


def holds(text: str, row: dict[str, Any]) -> bool:
    columns = {field.name: pa.array([row.get(field.name)], field.type) for field in SCHEMA}
    return bool(Condition.parse(text, ("v", SCHEMA)).holds(columns)[0])


@pytest.mark.parametrize("text", TRUE, ids=lambda text: text[:30])
def test_numbers_are_compared_as_spark_does_it(text):
    assert holds(text, TRUE[text])


@pytest.mark.parametrize(
    "text", ["n IN ()", "n IN (1", "n IN (1,)", "n IN 1", "n IN (i)", "n IN (1 + 1)", "n IN ((1, 2))"]
)
def test_a_list_is_of_literals_in_brackets(text):
    with pytest.raises(OptionError, match="cannot be read at"):
        holds(text, {"n": 1})


@pytest.mark.parametrize("wrap", ["({} IN (true, false))", "({} BETWEEN false AND true)", "(NOT {})"])
def test_nested_conditions_are_read_once(wrap):
    text = "(n = 1)"
    for _ in range(60):
        text = wrap.format(text)
    assert holds(text, {"n": 1})


def test_a_long_list_is_one_lookup():
    condition = Condition.parse(
        f"k IN ({', '.join(repr(str(n)) for n in range(50_000))})", ("", pa.schema([("k", pa.string())]))
    )
    assert condition.holds({"k": pa.array(["49999", "x", None])}).tolist() == [True, False, False]


@pytest.mark.parametrize(
    ("kind", "list_text", "values", "expected"),
    [
        (pa.binary(), "'a', 'é'", [b"a", "é".encode(), b"\xff", None], [True, True, False, None]),
        (pa.int8(), "1, 300", [1, 44, None], [True, False, None]),
        (pa.uint64(), "1, 18446744073709551615", [1, 2**64 - 1, 2], [True, True, False]),
        (pa.int64(), "1, 2.5", [1, 2, None], [True, False, None]),
        (pa.float64(), "1, 2.5", [1.0, 2.5, float("nan")], [True, True, False]),
        (pa.bool_(), "true", [True, False, None], [True, False, None]),
        (pa.int64(), "1, 99999999999999999999", [1, 2], [True, False]),
    ],
)  # fmt: skip
def test_a_list_is_compared_as_each_of_it_is(kind, list_text, values, expected):
    condition = Condition.parse(f"c IN ({list_text})", ("", pa.schema([("c", kind)])))
    assert condition.truth({"c": pa.array(values, kind)}).to_pylist() == expected
    assert condition.truth({"c": pa.array(values, kind).slice(1)}).to_pylist() == expected[1:]


NINES = 10**38 - 1
PRODUCTS = [  # scales of the factors and the product, digits of the factors
    (30, 30, 21, 12345678123456789012345678901234567891, -87654321987654321098765432109876543219),
    (38, 38, 37, NINES, NINES),  # the product carries into a digit before the point
    (10, 38, 9, NINES - 8, 10**37 + 7), (33, 21, 15, NINES, 5 * 10**37 + 1), (22, 22, 6, 10**37 + 1, -(10**37) - 9),
    (30, 30, 21, 10**36, NINES), (3, 4, 6, 12345, 6789),
]  # fmt: skip


@pytest.mark.parametrize(("left", "right", "scale", "one", "other"), PRODUCTS)
def test_a_product_of_decimals_of_38_digits_is_rounded_once_as_in_spark(left, right, scale, one, other):
    types = [pa.decimal128(38, one_scale) for one_scale in (left, right, scale)]
    factors = [Decimal(f"{one}E-{left}"), Decimal(f"{other}E-{right}")]
    exact = Fraction(*factors[0].as_integer_ratio()) * Fraction(*factors[1].as_integer_ratio())
    rounded = int(abs(exact) * 10**scale + Fraction(1, 2)) * (1 if exact > 0 else -1)
    row = [*factors, Decimal(f"{rounded}E-{scale}")]
    condition = Condition.parse("a * b = c", ("", pa.schema(zip("abc", types, strict=True))))
    columns = {name: pa.array([value], kind) for name, value, kind in zip("abc", row, types, strict=True)}
    assert condition.holds(columns).tolist() == [True]


def test_a_list_of_another_type_is_refused():
    for text in ("c IN (true)", "c IN ('a')", "c IN (1, 'a')"):
        with pytest.raises(OptionError, match=r"cannot be evaluated: = does not take int64 and (boolean|string)"):
            Condition.parse(text, ("", pa.schema([("c", pa.int64())])))


def test_a_null_is_neither_in_a_list_nor_outside():
    assert not holds("n IN (1)", {}) | holds("n NOT IN (1)", {}) | holds("n IN (1, 2) OR n NOT IN (3)", {})


FAILING = {
    "i + 1 > 0": ({"i": 2**31 - 1}, "the sum of int32 and int32 does not fit in int32"),
    "n * n > 0": ({"n": 2**62}, "the product of int64 and int64 does not fit in int64"),
    "-b > 0": ({"b": -128}, "the negative of int8 does not fit in int8"),
    "w * w > 0": ({"w": Decimal(10**38 - 1)}, "does not fit in decimal128\\(38, 0\\)"),
    "w - d > 0": ({"w": Decimal(10**38 - 1), "d": Decimal(1)}, "does not fit in decimal128\\(38, 2\\)"),
    "i + i > 0 OR i > 0": ({"i": 2**31 - 1}, "does not fit in int32"),
}


@pytest.mark.parametrize("text", FAILING)
def test_an_overflow_is_told_with_its_types_and_how_many_rows_it_is_in(text):
    row, why = FAILING[text]
    with pytest.raises(InputError, match=f"failed: overflow in 1 rows, where .*{why}; cast a column to a wider type"):
        holds(text, row)


@pytest.mark.parametrize("text", ["n < 2147483647 + 1", f"x < {'9' * 39}", "n = 'a'", "zoned + plain > 1"])
def test_what_fails_in_every_row_is_refused_before_there_are_rows(text):
    with pytest.raises(OptionError, match="cannot be evaluated: "):
        Condition.parse(text, ("v", SCHEMA))


@pytest.mark.parametrize("text", ["(" * 3_000 + "n = 1" + ")" * 3_000, "n" + " + 1" * 900 + " > 0"])
def test_a_condition_that_is_too_deep_is_refused_in_one_sentence(text):
    with pytest.raises(OptionError, match="nested more than 200 levels deep"):
        holds(text, {"n": 1})


def test_types_that_cannot_be_compared_are_refused_before_there_are_rows():
    with pytest.raises(OptionError, match="cannot be evaluated: Cannot compare timestamp with timezone"):
        Condition.parse("zoned < plain", ("v", SCHEMA))


def test_a_date_beside_an_instant_is_refused_as_it_depends_on_a_time_zone():
    schema = pa.schema([("day", pa.date32()), ("at", pa.timestamp("us", "UTC")), ("local", pa.timestamp("us"))])
    for text in ("at >= day", "day < at"):
        with pytest.raises(OptionError, match=r"compared by a session's time zone in Spark.* cast the date"):
            Condition.parse(text, ("", schema))
    Condition.parse("local >= day", ("", schema))


@pytest.mark.parametrize(
    ("text", "value"),
    [(r"k = 'a\tb'", "a\tb"), (r"k = 'a\\tb'", "a\\tb"), (r"k = 'it\'s'", "it's"), ("k = 'it''s'", "it's")],
)
def test_a_backslash_in_a_text_means_what_it_means_in_spark(text, value):
    condition = Condition.parse(text, ("", pa.schema([("k", pa.string())])))
    assert condition.holds({"k": pa.array([value, "a", r"a\tb" if value != r"a\tb" else "x"])}).tolist() == [
        True,
        False,
        False,
    ]


def test_an_escape_that_is_not_read_is_refused():
    with pytest.raises(OptionError, match="a backslash is written as two"):
        Condition.parse(r"k = '\d'", ("", pa.schema([("k", pa.string())])))
