"""State of a stopped processor, for the buckets of another query.

Rule: values in, values out. To as many buckets everything goes as it is. To another number of buckets only what says
whose it is can go: tables that have the key columns, cut by them, and facts that are the same in all buckets.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from keyedwm.core.errors import OptionError
from keyedwm.operators.keyed.key_watermarks import rescaled_state
from keyedwm.operators.process.operator import KEYS_STATE
from keyedwm.operators.process.plan import ProcessPlan
from keyedwm.operators.state.blobs import read_stored
from keyedwm.operators.state.manifest import manifest_of
from keyedwm.operators.state.rescale_pieces import BlobPiece, Rescale, cut_by_key, cut_table, rows_by_log
from keyedwm.operators.state.store import PART


@dataclass(frozen=True, kw_only=True)
class ProcessRescale(Rescale):
    """How the buckets of a processor go to `count` new ones."""

    plan: ProcessPlan

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.digest != self.plan.digest():
            raise OptionError(
                f"{self.who}: the state is that of another processor (its name or version, keys, inputs or their "
                f"columns differ): go back to that one, or start from a new checkpoint"
            )
        own = [state.get("own", {}) for state in self.states]
        if not self.stays and any(one != own[0] for one in own):
            raise OptionError(
                f"{self.who}: state.facts differ from bucket to bucket, so none of them belongs to a bucket of "
                f"another number: give buckets={len(own)}, or keep them as tables with the key columns"
            )

    @property
    def stays(self) -> bool:
        """Whether there are as many buckets as there were, so that every key stays in its bucket."""
        return len(self.states) == self.count

    def cuts(self, bucket: int, name: str, blob: bytes, beside: bytes | None) -> Iterator[BlobPiece]:  # noqa: ARG002  none
        """Yield what one old blob gives to new buckets; see `Rescale`."""
        log = name.partition(PART)[0]
        table = read_stored(name, blob)
        if self.stays:
            yield cut_table(bucket, name, table)
            return
        keys = self.plan.owner_fields
        for key in keys:
            if key.name not in table.column_names or table.schema.field(key.name).type != key.type:
                raise OptionError(
                    f"{self.who}: the log {log!r} has no key column {key.name!r} of type {key.type}, so its rows "
                    f"cannot be divided by another number of buckets: give buckets={len(self.states)}"
                )
        for number, rows in cut_by_key(self.plan.owners, table, self.count):
            yield cut_table(number, f"{log}{PART}{self.numbers[bucket, name]}", rows)

    def manifest_with(self, before: bytes | None, entries: Sequence[tuple[str, Any]], number: int) -> bytes:
        """Return the operator's manifest of a new bucket with these parts of logs added; see `Rescale`."""
        if self.stays:
            return self.format.copy(self.states[number])
        rows = rows_by_log({} if before is None else json.loads(before), entries)
        due = [state["due_ms"] for state in self.states if state.get("due_ms") is not None]
        state = {
            name: self.states[0][name] for name in ("watermark_ms", "watermarks_ms", "own") if name in self.states[0]
        }
        if KEYS_STATE in self.states[0]:
            state[KEYS_STATE] = rescaled_state([one[KEYS_STATE] for one in self.states])
        return manifest_of(self.plan, {**state, "due_ms": min(due, default=None), "rows": rows, "tried": {}})
