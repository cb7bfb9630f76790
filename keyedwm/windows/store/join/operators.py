"""Which operator runs a join of windows."""

from __future__ import annotations

from keyedwm.windows.state.store import BlobStore
from keyedwm.windows.store.join.operator import WindowJoinOperator
from keyedwm.windows.store.join.plan import WindowJoinPlan
from keyedwm.windows.store.join.session_operator import SessionJoinOperator


def join_operator(plan: WindowJoinPlan, store: BlobStore) -> WindowJoinOperator | SessionJoinOperator:
    """Return the operator of a plan; `store` is the state that it goes on from."""
    return SessionJoinOperator(plan, store) if plan.is_sessions else WindowJoinOperator(plan, store)
