"""Which operator runs a join of windows."""

from __future__ import annotations

from keyedwm.operators.messages.join.operator import WindowJoinOperator
from keyedwm.operators.messages.join.plan import WindowJoinPlan
from keyedwm.operators.messages.join.session_operator import SessionJoinOperator
from keyedwm.operators.state.store import BlobStore


def join_operator(plan: WindowJoinPlan, store: BlobStore) -> WindowJoinOperator | SessionJoinOperator:
    """Return the operator of a plan; `store` is the state that it goes on from."""
    return SessionJoinOperator(plan, store) if plan.is_sessions else WindowJoinOperator(plan, store)
