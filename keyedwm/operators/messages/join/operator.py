"""The operator of a join of windows."""

from __future__ import annotations

from functools import partial

from keyedwm.operators.messages.driver import MessageOperator, Parts
from keyedwm.operators.messages.join.grid_shape import JoinedGrids
from keyedwm.operators.messages.join.join_description import manifest_of, read_manifest
from keyedwm.operators.messages.join.plan import WindowJoinPlan
from keyedwm.operators.messages.join.session_shape import JoinedSessions, plan_of_both
from keyedwm.operators.state.store import BlobStore


def join_operator(plan: WindowJoinPlan, store: BlobStore) -> MessageOperator:
    """Return the operator of a plan; `store` is the state that it goes on from."""
    parts = Parts(
        shape=partial(JoinedSessions if plan.is_sessions else JoinedGrids, plan),
        columns=[plan_of_both(plan)] if plan.is_sessions else plan.columns_of_sides,
        retention=plan.retention, read=partial(read_manifest, plan), write=partial(manifest_of, plan),
        inputs=len(plan.sides),
    )  # fmt: skip
    return MessageOperator(parts, store)
