"""What the state of a join of windows holds of one of its sides; see `messages.listing`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from keyedwm.arrow.columns import contiguous
from keyedwm.operators.messages import listing
from keyedwm.operators.messages.join.join_description import plan_of
from keyedwm.operators.messages.join.plan import WindowJoinPlan
from keyedwm.operators.messages.join.session_shape import PAYLOAD, topic_prefix
from keyedwm.operators.messages.join.window_join import join_operator
from keyedwm.operators.messages.read_only_store import ALL, Listed, ListedInput
from keyedwm.operators.state.store import BlobStore


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
        """See `Listed`."""
        prefix = topic_prefix(self._number)
        found = self._operator.windows(*ALL, by_key=True)
        found = found.filter(pc.starts_with(found["topic"], prefix))
        topics = pc.utf8_slice_codeunits(found["topic"], len(prefix))
        found = found.set_column(found.column_names.index("topic"), "topic", topics)
        keys = [listing.shown_name(name, found.column_names[len(self._side.on) + 1 :]) for name in self._side.on]
        _, *others = found.column_names[len(keys) :]  # behind the keys, which record one without a key is
        named = found.select([*found.column_names[: len(keys)], *others]).rename_columns([*keys, *others])
        return named.drop_columns([k for k, n in zip(keys, self._side.on, strict=True) if n in self._side.record[:2]])

    def messages(self) -> pa.Table:
        """See `Listed`."""
        rows = super().messages()
        mine = contiguous(rows.filter(pc.equal(rows["side"], self._number))[PAYLOAD[self._number]])
        return pa.Table.from_arrays(mine.flatten(), schema=self._side.schema)
