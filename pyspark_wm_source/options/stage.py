"""The option stage: the first step of an operator inside the reading tasks, as values.

Rule: a `StageSpec` is what an operator asks for, and crosses Spark as JSON that says its kind; a `Stage` is what a
reading task does. Users never write the option: `aggregate`, joins and stores over `keyedwm.spark.source` do.
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

    every: of the source. chosen: of the option columns, None for all. fields: of them those that are read out of keys
    and values.
    """

    every: pa.Schema
    chosen: pa.Schema | None
    axes: Mapping[str, TimeAxis]
    fields: Mapping[str, Field] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Stage(ABC):
    """The steps of the reading tasks on their records.

    columns: what they read of the source. shipped: what stage one makes of it. number: of the operator's input.
    readers: of the fields that it reads out of these columns by itself.
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
        """Return the rows that are shipped of some events; builder: of `columns`."""


@dataclass(frozen=True, kw_only=True)
class StageSpec(ABC):
    """An operator's first step in the reading tasks. buckets: how many its keys are spread over."""

    kind: ClassVar[str]
    buckets: int

    def as_options(self) -> dict[str, str]:
        """Return the option. Raises OptionError for what has no text."""
        return {STAGE: json.dumps({"kind": self.kind, **self.description()})}

    @abstractmethod
    def description(self) -> dict[str, Any]:
        """Return all but the kind, ready for JSON."""

    @classmethod
    @abstractmethod
    def of(cls, description: Mapping[str, Any], text: str) -> StageSpec:
        """Return the stage of a description. Raises OptionError, which shows the text, for a wrong one."""

    @abstractmethod
    def stage(self, source: SourceColumns) -> Stage:
        """Return the step of the reading tasks. Raises OptionError for what the source does not have."""


def check_fields(description: Mapping[str, Any], names: Sequence[str], text: str) -> None:
    """Refuse a text with other fields than these, without a whole number of buckets, or with another input than two."""
    if set(description) != set(names):
        raise wrong(STAGE, text, f"it must have {', '.join(names)} and nothing else")
    if not is_whole(description["buckets"]) or description["buckets"] < 1:
        raise wrong(STAGE, text, "a whole number of buckets from 1 up is expected")
    if "number" in description and not (is_whole(description["number"]) and description["number"] in _INPUTS):
        raise wrong(STAGE, text, "input 0 or 1 is expected")


def are_texts(values: object) -> bool:
    """Return whether something is a list of texts."""
    return isinstance(values, list) and all(isinstance(one, str) for one in values)


def is_whole(value: object) -> bool:
    """Return whether something is a whole number, which true and false are not."""
    return type(value) is int


def axis_of(source: SourceColumns, name: object) -> TimeAxis:
    """Return the time axis of this name. Raises OptionError if the source has none."""
    if not isinstance(name, str) or name not in source.axes:
        raise OptionError(f"option {STAGE}: axis must be one of {', '.join(map(repr, source.axes))}, not {name!r}")
    return source.axes[name]
