"""The arguments that calls of all operators share, checked in one place: name, buckets, savepoint, axis, columns, rows.

Rule: a wrong argument is an error of one sentence in the call: the call, the argument as it was written, the right one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from keyedwm.config.validation import whole
from keyedwm.core.errors import OptionError
from keyedwm.operators.buckets import bucket_ids
from keyedwm.operators.operator_spec import OperatorSpec
from keyedwm.spark.arguments import are_names, check_own_aggregates
from keyedwm.spark.hosting.bucket_batch import BucketLayout
from keyedwm.spark.hosting.build_plan import build_results
from keyedwm.spark.hosting.source_description import Source
from keyedwm.spark.setup.conf import PARTITIONS, check_provider

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class CommonArguments:
    """What every operator's call takes. caller: the function, for errors; the others as the user wrote them."""

    caller: str
    buckets: int | None = None
    name: str | None = None
    continue_from: str | None = None

    def __post_init__(self) -> None:
        if self.name is not None and not (isinstance(self.name, str) and self.name):
            raise OptionError(f"{self.caller}: name={self.name!r}: a text is expected, or leave it out")
        if self.continue_from is not None and not isinstance(self.continue_from, str):
            raise OptionError(
                f"{self.caller}: continue_from={self.continue_from!r}: the place of a savepoint is expected, or leave "
                "it out"
            )

    def bucket_ids(self, rows: DataFrame | Source, *, one: bool = False, why_one: str = "") -> list[int]:
        """Return the ids of the buckets: the user's number, else the session's shuffle partitions, or one.

        rows: the rows of any input; the state store of their session is checked, too. one: whether all rows go to one
        bucket. why_one: the reason; if it is set, another number of buckets is an error.
        """
        spark = rows.spark if isinstance(rows, Source) else rows.sparkSession
        check_provider(spark, self.caller)
        if one:
            if why_one and self.buckets not in (None, 1):
                raise OptionError(f"{self.caller}: buckets={self.buckets} {why_one}, there is one bucket: remove it")
            return bucket_ids(1)
        return bucket_ids(whole("buckets", str(spark.conf.get(PARTITIONS) if self.buckets is None else self.buckets)))

    def results(
        self, shipped: DataFrame, spec: OperatorSpec, ids: Sequence[int], axes: tuple[tuple[int, ...], ...],
        inputs: Sequence[DataFrame | Source], *, called: tuple[str, ...] = (),
    ) -> DataFrame:  # fmt: skip
        """Return the results. shipped: the rows of stage one; axes, inputs, called: see `BucketLayout`."""
        layout = BucketLayout.of(spec, self.name, ids, axes, called)
        return build_results(shipped, spec, layout, self.continue_from, inputs)


def column_names(argument: str, value: object, caller: str) -> tuple[str, ...]:
    """Return the names of columns, one or several; raise OptionError for anything else."""
    names = (value,) if isinstance(value, str) else value
    if not are_names(names):
        raise no_columns(argument, value, caller)
    return tuple(names)  # type: ignore[arg-type]  # checked above


def check_each(argument: str, names: Sequence[object], caller: str) -> None:
    """Raise OptionError for the first of `names` that is no text which can name a column."""
    for name in names:
        if not isinstance(name, str):
            raise no_columns(argument, name, caller)


def no_columns(argument: str, value: object, caller: str) -> OptionError:
    """Build the error for a value that names no columns."""
    return OptionError(f"{caller}: {argument}={value!r}: the names of columns are expected; compute others before")


def check_axis(axis: object, caller: str) -> None:
    """Raise OptionError unless a time axis is named by a text."""
    if not isinstance(axis, str):
        raise OptionError(f"{caller}: axis={axis!r}: the name of a time axis is expected, or leave it out")


def check_aggregates(aggs: object, caller: str) -> None:
    """Raise OptionError unless these are result columns and what is computed in each."""
    if not isinstance(aggs, Mapping) or not all(isinstance(name, str) for name in aggs):
        raise OptionError(f"{caller}: aggs={aggs!r}: a mapping is expected, such as {{'orders': count()}}")
    check_own_aggregates(aggs, caller)
