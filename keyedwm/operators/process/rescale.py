"""State of a stopped processor, for the buckets of another query.

Rule: it does no I/O. To the same number of buckets the state is copied. To another number of buckets only two kinds of
state can be moved: tables with the key columns, and facts that are the same in all buckets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from keyedwm.core.errors import OptionError
from keyedwm.operators.keyed.key_watermarks import rescaled_state
from keyedwm.operators.process.operator import KEYS_STATE
from keyedwm.operators.process.plan import ProcessPlan
from keyedwm.operators.state.rescale_pieces import Rescale


@dataclass(frozen=True, kw_only=True)
class ProcessRescale(Rescale):
    """The conversion of a processor's buckets to `count` new buckets."""

    plan: ProcessPlan

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_plan("processor", "its name or version, keys, inputs or their columns")
        own = [state.get("own", {}) for state in self.states]
        if not self.stays and any(one != own[0] for one in own):
            raise OptionError(
                f"{self.who}: state.facts differ between buckets, so they cannot move to another number of buckets: "
                f"give buckets={len(own)}, or keep them as tables with the key columns"
            )

    def new_part(self, bucket: int, log: str, table: pa.Table) -> tuple[str, pa.Table]:  # noqa: ARG002  all alike
        """Return the log unchanged; raise OptionError if it has no key columns. See `Rescale`."""
        for key in self.plan.owner_fields:
            if key.name not in table.column_names or table.schema.field(key.name).type != key.type:
                raise OptionError(
                    f"{self.who}: the log {log!r} has no key column {key.name!r} of type {key.type}, so its rows "
                    f"cannot go to another number of buckets: give buckets={len(self.states)}"
                )
        return log, table

    def state(self, manifest: Mapping[str, Any], entries: Sequence[tuple[str, Any]]) -> Mapping[str, Any]:  # noqa: ARG002  all alike
        """Return the state beside the logs; see `Rescale`."""
        due = [state["due_ms"] for state in self.states if state.get("due_ms") is not None]
        state = {
            name: self.states[0][name] for name in ("watermark_ms", "watermarks_ms", "own") if name in self.states[0]
        }
        if KEYS_STATE in self.states[0]:
            state[KEYS_STATE] = rescaled_state([one[KEYS_STATE] for one in self.states])
        return {**state, "due_ms": min(due, default=None)}
