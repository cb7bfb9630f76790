"""The operator that `held_windows`, `held_messages` and `oldest_offsets` are asked about, opened on its blobs.

Rule: a join of windows is listed side by side. A bucket is opened from the description of the plan, as the operator
left it; what it was to compute need not be known.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from keyedwm.arrow.columns import contiguous
from keyedwm.core.errors import InputError, OptionError
from keyedwm.operators.messages import listing
from keyedwm.operators.messages.join.join_description import WINDOW_JOIN, plan_of
from keyedwm.operators.messages.join.plan import WindowJoinPlan
from keyedwm.operators.messages.join.session_content import PAYLOAD, topic_prefix
from keyedwm.operators.messages.join.window_join import join_operator
from keyedwm.operators.messages.read_only_store import (
    ALL,
    MESSAGES,
    Listed,
    ListedInput,
    ReadBlobs,
    kind_in,
    listed_store,
)
from keyedwm.operators.messages.store_description import STORE
from keyedwm.operators.messages.windows import WindowKind
from keyedwm.operators.state.description import KIND
from keyedwm.operators.state.store import BlobStore, MemoryStore
from keyedwm.savepoint_files import Files, OperatorState

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def side_of(description: Mapping[str, Any], number: int, store: BlobStore) -> Listed:
    """Return a side by its number; description: of the join's plan."""
    plan = plan_of(description)
    if plan.is_sessions:
        return _SessionSide(plan, number, store)
    return ListedInput(join_operator(plan, store), number)


class _SessionSide(ListedInput):
    """A side of sessions, which hold the messages of both."""

    def __init__(self, plan: WindowJoinPlan, number: int, store: BlobStore) -> None:
        super().__init__(join_operator(plan, store), number, of_keys=True)
        self._side = plan.sides[number]

    def windows(self, *, by_key: bool) -> pa.Table:  # noqa: ARG002 (a session is that of a key)
        """Return the windows of this side, with the columns of `Listed.windows`."""
        prefix = topic_prefix(self._number)
        all_windows = self._operator.windows(*ALL, by_key=True)
        all_windows = all_windows.filter(pc.starts_with(all_windows["topic"], prefix))
        topics = pc.utf8_slice_codeunits(all_windows["topic"], len(prefix))
        all_windows = all_windows.set_column(all_windows.column_names.index("topic"), "topic", topics)
        keys = [listing.shown_name(name, all_windows.column_names[len(self._side.on) + 1 :]) for name in self._side.on]
        _, *others = all_windows.column_names[len(keys) :]  # behind the keys, which record one without a key is
        by_key_names = all_windows.select([*all_windows.column_names[: len(keys)], *others]).rename_columns(
            [*keys, *others]
        )
        return by_key_names.drop_columns(
            [k for k, n in zip(keys, self._side.on, strict=True) if n in self._side.record[:2]]
        )

    def messages(self) -> pa.Table:
        """Return the messages of this side, with their own columns."""
        rows = super().messages()
        payloads = contiguous(rows.filter(pc.equal(rows["side"], self._number))[PAYLOAD[self._number]])
        return pa.Table.from_arrays(payloads.flatten(), schema=self._side.schema)


_Value = TypeVar("_Value")
_WITH_STORE = (STORE, WINDOW_JOIN)


@dataclass(frozen=True)
class SavedStore:
    """An operator with a store. who: the checkpoint and its name, for errors. blobs: rows of bucket, name and blob.

    number: of the side that is meant, None for an aggregate, and for a join before a side is chosen.
    """

    who: str
    operator: OperatorState
    blobs: DataFrame
    number: int | None = None

    @property
    def description(self) -> Mapping[str, Any]:
        """The description of the plan."""
        return self.operator.description or {}

    @property
    def windows(self) -> WindowKind:
        """The kind of the windows."""
        return kind_in(self.description)

    @property
    def sides(self) -> list[str | None]:
        """The names of the sides of a join; None stands for what has none."""
        return [side["name"] for side in self.description.get("sides", ())] or [None]

    def of(self, side: str | None) -> SavedStore:
        """Return it with this side chosen; raise OptionError if there is no such side."""
        if side is not None and not isinstance(side, str):
            raise OptionError(f"{self.who}: side={side!r}: the name of a side is expected, as text")
        if self.operator.kind != WINDOW_JOIN:
            if side is not None:
                raise OptionError(f"{self.who}: side={side!r}: it is an aggregate, which has none: leave it out")
            return self
        if side not in self.sides:
            known = " or ".join(map(repr, self.sides))
            raise OptionError(
                f"{self.who}: side={side!r}: it is a window_join: give the name of one of its sides, {known}"
            )
        return SavedStore(self.who, self.operator, self.blobs, self.sides.index(side))

    def each(self, of: Callable[[Listed], _Value]) -> list[_Value]:
        """Return the listing of each bucket without its messages, which are not read."""
        from pyspark.sql import functions as F

        by_bucket: list[dict[str, bytes]] = [{} for _ in self.operator.states]
        for row in self.blobs.where(~F.col("name").startswith(MESSAGES)).collect():
            by_bucket[row.bucket][row.name] = bytes(row.blob)
        opening = self._opening()
        return [of(opening.bucket(number, blobs)) for number, blobs in enumerate(by_bucket)]

    def frame(self, of: Callable[[Listed], pa.Table]) -> DataFrame:
        """Return the listing of all buckets; each is read where Spark has its state."""
        from pyspark.sql.pandas.types import from_arrow_schema

        opening = self._opening()
        schema = from_arrow_schema(of(opening.opened(MemoryStore())).schema)
        return self.blobs.select("bucket", "name", "blob").mapInArrow(_Buckets(opening, of), schema)

    def _opening(self) -> _Opening:
        sizes = [manifest["blobs"] for manifest in self.operator.manifests]
        return _Opening(self.description, self.number, sizes, list(self.operator.states))


@dataclass(frozen=True)
class _Opening:
    """Opens buckets. number: of the side; sizes, states: of each bucket its blobs, and its operator's manifest."""

    description: Mapping[str, Any]
    number: int | None
    sizes: list[Mapping[str, int]]
    states: list[Mapping[str, Any]]

    def bucket(self, number: int, blobs: Mapping[str, bytes]) -> Listed:
        """Open a bucket, of which these blobs were read."""
        return self.opened(ReadBlobs(self.sizes[number], blobs, self.states[number]))

    def opened(self, store: BlobStore) -> Listed:
        """Open a state."""
        if self.number is None:
            return listed_store(self.description, store)
        return side_of(self.description, self.number, store)


@dataclass(frozen=True)
class _Buckets:
    """Lists the buckets of a partition of Spark's state; a value for `mapInArrow`."""

    opening: _Opening
    of: Callable[[Listed], pa.Table]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        by_bucket: dict[int, dict[str, bytes]] = {}
        for batch in batches:
            for bucket, name, blob in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                by_bucket.setdefault(bucket, {})[name] = blob
        for bucket, blobs in sorted(by_bucket.items()):
            yield from self.of(self.opening.bucket(bucket, blobs)).combine_chunks().to_batches()


def saved_store(spark: SparkSession, checkpoint: str, name: str | None) -> SavedStore:
    """Return the operator with a store that is meant; see `chosen_operator`."""
    operator, blobs = chosen_operator(
        spark, checkpoint, name, kinds=_WITH_STORE, feature="a store",
        requirement="aggregate with a store: give aggregate(..., store=...) one",
    )  # fmt: skip
    return SavedStore(f"{checkpoint}, {operator.name}", operator, blobs)


def chosen_operator(
    spark: SparkSession, checkpoint: str, name: str | None, *, kinds: Collection[str], feature: str, requirement: str
) -> tuple[OperatorState, DataFrame]:
    """Return the operator of these kinds that is meant, and its blobs: rows of bucket, name and blob.

    name: of the operator, None for the only one. feature, requirement: the kinds in errors. Raises InputError or
    OptionError if it is not clear which operator is meant.
    """
    from keyedwm.spark.api.savepoint import read_operators
    from pyspark_wm_source.values.checkpoint import newest

    if name is not None and not isinstance(name, str):
        raise OptionError(f"{checkpoint}: name={name!r}: the name of an operator is expected, as text")
    files = Files(checkpoint)
    if files.names("state") is None:
        raise InputError(f"{checkpoint} is no checkpoint with state: that of a query with {feature} is expected")
    if newest(files.names("commits") or ()) is None:
        raise InputError(f"{checkpoint} has no batch that is committed, so there is nothing to look at: let one end")
    operators = list(read_operators(spark, files))
    if not operators:
        raise InputError(f"{checkpoint} has no state of an operator: its query has none, or parts of it are missing")
    by_name = {one.name: (one, blobs) for one, blobs in operators if (one.description or {}).get(KIND) in kinds}
    if not by_name:
        raise OptionError(f"{checkpoint}: the query has no {requirement}")
    if (name is None and len(by_name) > 1) or (name is not None and name not in by_name):
        known = ", ".join(f"{one} ({operator.kind})" for one, (operator, _) in sorted(by_name.items()))
        raise OptionError(f"{checkpoint}: name={name!r}: the operators with {feature} are called {known}: give one")
    return by_name[name or next(iter(by_name))]
