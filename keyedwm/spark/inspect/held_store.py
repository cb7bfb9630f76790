"""Which operator of a checkpoint `held_windows`, `held_messages` and `oldest_offsets` speak of, and its blobs.

Rule: a join of windows is looked at side by side, each as an aggregate with a store that holds that side alone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from keyedwm.core.errors import InputError, OptionError
from keyedwm.operators.messages.join import held
from keyedwm.savepoint import Files, OperatorState

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class HeldStore:
    """An operator with a store. who: the checkpoint and its name, for errors. blobs: rows of bucket, name and blob."""

    who: str
    operator: OperatorState
    blobs: DataFrame

    @property
    def is_join(self) -> bool:
        """Whether it is a `window_join`."""
        return self.operator.kind == "window_join"

    @property
    def sides(self) -> tuple[str | None, ...]:
        """The names of the sides of a join; None stands for what has none."""
        return tuple(held.sides_of(self.operator.told or {}, self.who)) if self.is_join else (None,)

    def of(self, side: str | None) -> tuple[OperatorState, DataFrame]:
        """Return it with its blobs, of a join those of one side; raise OptionError if there is no such side."""
        from pyspark.sql import functions as F

        if side is not None and not isinstance(side, str):
            raise OptionError(f"{self.who}: side={side!r}: the name of a side is expected, as text")
        if not self.is_join:
            if side is not None:
                raise OptionError(f"{self.who}: side={side!r}: it is an aggregate, which has none: leave it out")
            return self.operator, self.blobs
        told = held.told_of(self.operator.told or {}, side, self.who)
        mine = replace(self.operator, told=told, facts=[held.facts_of(told, facts) for facts in self.operator.facts])
        if held.is_half(told):
            return mine, self.blobs
        axis = F.regexp_extract("name", held.AXIS, 1).try_cast("int")
        return mine, self.blobs.where(axis % len(self.sides) == told[held.NUMBER])


def held_store(spark: SparkSession, checkpoint: str, name: str | None) -> HeldStore:
    """Return the operator with a store that is meant; raise InputError or OptionError if it is not clear which."""
    from keyedwm.spark.api.savepoint import read_operators
    from pyspark_wm_source.values.checkpoint import newest

    if name is not None and not isinstance(name, str):
        raise OptionError(f"{checkpoint}: name={name!r}: the name of an operator is expected, as text")
    files = Files(checkpoint)
    if files.names("state") is None:
        raise InputError(f"{checkpoint} is no checkpoint with state: that of a query with a store is expected")
    if newest(files.names("commits") or ()) is None:
        raise InputError(f"{checkpoint} has no batch that is committed, so there is nothing to look at: let one end")
    operators = list(read_operators(spark, files))
    if not operators:
        raise InputError(f"{checkpoint} has no state of an operator: its query has none, or parts of it are missing")
    found = {
        one.name: HeldStore(f"{checkpoint}, {one.name}", one, blobs)
        for one, blobs in operators
        if {"store", "window_join"} & (one.told or {}).keys()
    }
    if not found:
        raise OptionError(f"{checkpoint}: the query has no aggregate with a store: give aggregate(..., store=...) one")
    if (name is None and len(found) > 1) or (name is not None and name not in found):
        known = ", ".join(f"{one} ({store.operator.kind})" for one, store in sorted(found.items()))
        raise OptionError(f"{checkpoint}: name={name!r}: the operators with a store are called {known}: give one")
    return found[name or next(iter(found))]
