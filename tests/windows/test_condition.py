"""Conditions over large numbers, decimals and odd types mean what they mean in Spark; what is too deep is refused."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from keyedwm.core.errors import OptionError
from keyedwm.windows.condition import Condition

SCHEMA = pa.schema(
    [
        ("n", pa.int64()), ("x", pa.float64()), ("d", pa.decimal128(10, 2)), ("wide", pa.decimal128(38, 10)),
        ("zoned", pa.timestamp("us", "UTC")), ("plain", pa.timestamp("us")),
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
    " OR ".join(["n = 0"] * 5_000 + ["n = 1"]): {"n": 1},
}


def holds(text: str, row: dict[str, Any]) -> bool:
    columns = {field.name: pa.array([row.get(field.name)], field.type) for field in SCHEMA}
    return bool(Condition.parse(text, ("v", SCHEMA)).holds(columns)[0])


@pytest.mark.parametrize("text", TRUE, ids=lambda text: text[:30])
def test_numbers_are_compared_as_spark_does_it(text):
    assert holds(text, TRUE[text])


@pytest.mark.parametrize("text", ["(" * 3_000 + "n = 1" + ")" * 3_000, "n" + " + 1" * 900 + " > 0"])
def test_a_condition_that_is_too_deep_is_refused_in_one_sentence(text):
    with pytest.raises(OptionError, match="nested more than 200 levels deep"):
        holds(text, {"n": 1})


def test_types_that_cannot_be_compared_are_refused_before_there_are_rows():
    with pytest.raises(OptionError, match="cannot be evaluated: Cannot compare timestamp with timezone"):
        Condition.parse("zoned < plain", ("v", SCHEMA))
