"""Which operator runs a plan of windows that keep their messages."""

from __future__ import annotations

from typing import TypeAlias

from keyedwm.operators.messages.key_row_operator import KeyRowOperator
from keyedwm.operators.messages.on_demand_operator import OnDemandOperator
from keyedwm.operators.messages.operator import StoreOperator
from keyedwm.operators.messages.plan import StorePlan
from keyedwm.operators.messages.session_row_operator import SessionRowOperator
from keyedwm.operators.messages.session_store_operator import SessionStoreOperator
from keyedwm.operators.state.store import BlobStore

AnyStoreOperator: TypeAlias = (
    StoreOperator | KeyRowOperator | SessionStoreOperator | SessionRowOperator | OnDemandOperator
)


def store_operator(plan: StorePlan, store: BlobStore) -> AnyStoreOperator:
    """Return the operator of a plan; `store` is the state that it goes on from."""
    if plan.is_sessions:
        return SessionStoreOperator(plan, store)
    if plan.is_session_rows:
        return SessionRowOperator(plan, store)
    if plan.is_on_demand:
        return OnDemandOperator(plan, store)
    return KeyRowOperator(plan, store) if plan.counts_keys else StoreOperator(plan, store)
