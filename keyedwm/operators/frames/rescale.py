"""State of a stopped query, cut for other buckets and for a plan with aggregates added or removed.

Rule: values in, values out. Dead parts of sessions are dropped. So are merged blocks of frames, whose content the
frames have, too. See `rescale_pieces` for the rest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from keyedwm.arrow.columns import contiguous, ints, to_arrow
from keyedwm.core.errors import OptionError
from keyedwm.core.lateness import NEVER
from keyedwm.operators.aggregates.extremes import FirstOrLast
from keyedwm.operators.frames.frame_log import BLOCK, FRAME
from keyedwm.operators.frames.frame_panes import neutral
from keyedwm.operators.frames.plan import WindowPlan
from keyedwm.operators.frames.session_log import DUE, REST, YOUNG
from keyedwm.operators.frames.session_parts import SLICE
from keyedwm.operators.frames.session_table import SESSIONS
from keyedwm.operators.keyed.key_watermark_log import is_own
from keyedwm.operators.keyed.key_watermarks import rescaled_state
from keyedwm.operators.results import END, HIDDEN_PREFIX, ROWS
from keyedwm.operators.state.description import lines_of
from keyedwm.operators.state.rescale_pieces import Rescale
from keyedwm.operators.state.store import PART

_REMEDY = "go back to what it was, or start from a new checkpoint"


@dataclass(frozen=True, kw_only=True)
class FrameRescale(Rescale):
    """The conversion of an aggregate's old buckets to the buckets of a plan."""

    derived_logs: ClassVar[tuple[str, ...]] = (BLOCK,)
    plan: WindowPlan
    # Accumulator column → its name in the old state, None for a column of an added aggregate.
    columns: Mapping[str, str | None] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_states()
        object.__setattr__(self, "columns", self._accumulators())

    def state(self, manifest: Mapping[str, Any], entries: Sequence[tuple[str, Any]]) -> Mapping[str, Any]:
        """Return the state beside the logs, with the lowest end of a part of a session; see `Rescale`."""
        facts = {name: self.states[0].get(name) for name in ("watermark_ms", "due_ms")}
        if self.plan.key_watermark is not None:
            facts |= rescaled_state(self.states)
        ends = [entry["first_end"] for name, entry in entries if name.partition(PART)[0] == YOUNG]
        young_end = min((end for end in (manifest.get("young_end"), *ends) if end is not None), default=None)
        return {**facts, **({} if young_end is None else {"young_end": young_end})}

    def new_part(self, bucket: int, log: str, table: pa.Table) -> tuple[str, pa.Table]:
        """Return the new log and the live rows, in the layout of the new plan; see `Rescale`."""
        return self._log(log), self._laid_out(log, self._alive(bucket, log, table))

    def entry(self, piece: pa.Table) -> Mapping[str, Any]:
        """Return the lowest end of sessions; see `Rescale`."""
        return {"first_end": int(ints(contiguous(piece[END])).min())} if END in piece.column_names else {}

    def _log(self, log: str) -> str:
        """Return the log in the new state: `young` for sessions, or the only log of sessions with panes."""
        if self.plan.is_session and not (self.plan.has_panes or self.plan.key_watermark):
            return YOUNG
        return SESSIONS if log.startswith(SLICE) else log

    def _alive(self, bucket: int, log: str, table: pa.Table) -> pa.Table:
        """Return the table without the parts of sessions that are gone already: their ends are not read any more."""
        gone_ms = NEVER
        if log.startswith(DUE):
            gone_ms = self.states[bucket]["passed_ms"]
        elif log.startswith(REST):
            gone_ms = self.states[bucket]["horizon_ms"]
        return table if gone_ms == NEVER else table.filter(pa.array(ints(contiguous(table[END])) > gone_ms))

    def _laid_out(self, log: str, table: pa.Table) -> pa.Table:
        """Return the table as the new plan's operator writes it; a table without accumulators is unchanged."""
        if is_own(log) or not (log.startswith(FRAME) or self.plan.is_session):
            return table
        keys = [inner.name for inner in self.plan.key_fields]
        old_accumulators = {name for name in table.column_names if _is_accumulator(name)}
        others = [name for name in table.column_names if name not in {*keys, ROWS, *old_accumulators}]
        if table.column_names == [*keys, ROWS, *self.columns, *others] and all(
            name == old_name for name, old_name in self.columns.items()
        ):
            return table
        nothing = dict(
            zip(
                self.columns,
                (to_arrow(c) for c in neutral(self.plan, np.zeros(table.num_rows, np.int64)).columns()[1:]),
                strict=True,
            )
        )
        accumulators = [
            nothing[name] if old_name is None else table[old_name] for name, old_name in self.columns.items()
        ]
        fields = [
            *self.plan.key_fields, pa.field(ROWS, pa.int64()), *self.plan.accumulator_fields,
            *(table.schema.field(name) for name in others),
        ]  # fmt: skip
        arrays = [*(table[name] for name in (*keys, ROWS)), *accumulators, *(table[name] for name in others)]
        return pa.table([contiguous(array) for array in arrays], schema=pa.schema(fields))

    def _check_states(self) -> None:
        if len({state.get("watermark_ms") for state in self.states}) > 1:
            raise OptionError(
                f"{self.who}: its buckets have closed windows up to different times, because max_rows_per_batch holds "
                f"results back: run the old query until all have left, then move it"
            )

    def _accumulators(self) -> dict[str, str | None]:
        """Return the names of each accumulator's columns in the old state. Raises OptionError for other differences."""
        names = [inner.name for inner in self.plan.accumulator_fields]
        if self.digest in (self.plan.digest(), *self.plan.earlier_digests):
            return {name: name for name in names}
        if self.description is None:
            raise OptionError(
                f"{self.who}: its state is of keyedwm 0.2.0, which did not note the plan, and this plan differs: "
                f"run the old query for one batch with this keyedwm before it is moved, or leave the plan as it was"
            )
        present = self.plan.description()
        for part, parts in _PARTS.items():
            before, here = ({name: one.get(name) for name in parts} for one in (self.description, present))
            if before != here:
                raise OptionError(
                    f"{self.who}: {part} of the savepoint are {_setting_text(before)}, and of this plan "
                    f"{_setting_text(here)}, so their accumulators cannot be combined: {_REMEDY}"
                )
        old_places = {
            (name, spec, str(inner)): place for place, (name, spec, inner) in enumerate(self.description["aggregates"])
        }
        before = {name: spec for name, spec, _ in self.description["aggregates"]}
        old_columns: dict[str, str | None] = {}
        for place, ((name, spec, inner), function) in enumerate(
            zip(present["aggregates"], self.plan.functions, strict=True)
        ):
            old_place = old_places.get((name, spec, str(inner)))
            if old_place is None and name in before:
                raise OptionError(
                    f"{self.who}: {name!r} is {before[name]} of the savepoint, and of this plan {spec}: give it "
                    "another name, so that it is added and counts what comes from now on, or go back to what it was"
                )
            if old_place is None and isinstance(function, FirstOrLast):
                raise OptionError(
                    f"{self.who}: {name!r} is {spec}, which cannot be added to windows that are open: it would show a "
                    f"row that is not their {spec.partition('(')[0]}; add min or max, or start from a new checkpoint"
                )
            for column, _ in inner:
                old_columns[_column(place, column)] = None if old_place is None else _column(old_place, column)
        return old_columns


_PARTS = {
    "the windows": ("window",),
    "the rules for late rows and panes": ("late_rule", "lateness_ms", "accumulating", "early"),
    "the key columns": ("by",),
    "the fields that are read": ("read_from",),
    "the watermarks of keys": ("key_watermark",),
}


def _column(place: int, inner: str) -> str:
    return f"{HIDDEN_PREFIX}{place}_{inner}"


def _is_accumulator(name: str) -> bool:
    return name.removeprefix(HIDDEN_PREFIX).partition("_")[0].isdigit() and name.startswith(HIDDEN_PREFIX)


def _setting_text(description: Mapping[str, Any]) -> str:
    return ", ".join(lines_of(description)) or "none"
