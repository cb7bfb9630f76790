"""The option stage: the first step of an operator inside the reading tasks, as values.

Rule: an operator describes its step by a `StageSpec`, which crosses Spark as JSON with its kind. A reading task runs
the `Stage`. Users never set the option: `aggregate`, joins and stores over `keyedwm.spark.source` set it.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa

from keyedwm.config.validation import wrong
from keyedwm.core.errors import OptionError
from keyedwm.core.places import Field
from keyedwm.operators.buckets import bucket_ids
from keyedwm.operators.shuffle import ExchangeInput

if TYPE_CHECKING:
    from keyedwm.arrow.places import FieldReader
    from keyedwm.arrow.rows import Events, RowBuilder
    from pyspark_wm_source.options.axes import TimeAxis

STAGE = "stage"
# The operators of the package have two inputs at most.
_INPUTS = (0, 1)


@dataclass(frozen=True, kw_only=True, slots=True)
class SourceColumns:
    """The columns that a stage may read.

    every: all columns of the source. selected: the columns of the option `columns`, None for all. fields: the columns
    that are fields of keys and values, with their places.
    """

    every: pa.Schema
    selected: pa.Schema | None
    axes: Mapping[str, TimeAxis]
    fields: Mapping[str, Field] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Stage(ABC):
    """The first step of an operator, which reading tasks run on their records.

    columns: the source columns that the step reads. shipped: the rows that the step returns. buckets: their number.
    number: the operator's input. readers: read the fields that the step needs out of `columns`.
    """

    columns: pa.Schema
    shipped: ExchangeInput
    buckets: int
    number: int = 0
    readers: tuple[FieldReader, ...] = ()

    @cached_property
    def ids(self) -> list[int]:
        """The ids of the buckets."""
        return bucket_ids(self.buckets)

    @abstractmethod
    def rows(self, events: Events, builder: RowBuilder) -> pa.RecordBatch:
        """Return the rows of `shipped` for some events. builder: builds rows of `columns`."""


@dataclass(frozen=True, kw_only=True)
class StageSpec(ABC):
    """An operator's first step in the reading tasks. buckets: their number; keys are hashed to them."""

    kind: ClassVar[str]
    buckets: int

    def as_options(self) -> dict[str, str]:
        """Return the option as name and JSON text. Raises OptionError for a step that JSON cannot hold."""
        return {STAGE: json.dumps({"kind": self.kind, **self.description()})}

    @abstractmethod
    def description(self) -> dict[str, Any]:
        """Return all but the kind, ready for JSON."""

    @classmethod
    @abstractmethod
    def of(cls, description: Mapping[str, Any], text: str) -> StageSpec:
        """Return the stage of a description. Raises OptionError with the option's text for a wrong description."""

    @abstractmethod
    def stage(self, source: SourceColumns) -> Stage:
        """Return the step of the reading tasks. Raises OptionError for columns that the source does not have."""


def check_fields(description: Mapping[str, Any], names: Sequence[str], text: str) -> None:
    """Check the fields of a description, its number of buckets, and its input. Raises OptionError with the text."""
    if set(description) != set(names):
        raise wrong(STAGE, text, f"exactly the fields {', '.join(names)} are expected")
    if not is_whole(description["buckets"]) or description["buckets"] < 1:
        raise wrong(STAGE, text, "a whole number of buckets from 1 up is expected")
    if "number" in description and not (is_whole(description["number"]) and description["number"] in _INPUTS):
        raise wrong(STAGE, text, "input 0 or 1 is expected")


def are_texts(values: object) -> bool:
    """Return whether a value is a list of texts."""
    return isinstance(values, list) and all(isinstance(one, str) for one in values)


def is_whole(value: object) -> bool:
    """Return whether a value is a whole number; JSON's true and false are none."""
    return type(value) is int


def axis_of(source: SourceColumns, name: object) -> TimeAxis:
    """Return the time axis of this name. Raises OptionError if the source has none."""
    if not isinstance(name, str) or name not in source.axes:
        raise OptionError(f"option {STAGE}: axis must be one of {', '.join(map(repr, source.axes))}, not {name!r}")
    return source.axes[name]
