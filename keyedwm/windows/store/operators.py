"""Which operator runs a plan of windows that keep their messages."""

from __future__ import annotations

from typing import TypeAlias

from keyedwm.windows.state.store import BlobStore
from keyedwm.windows.store.key_row_operator import KeyRowOperator
from keyedwm.windows.store.on_demand_operator import OnDemandOperator
from keyedwm.windows.store.operator import StoreOperator
from keyedwm.windows.store.plan import StorePlan
from keyedwm.windows.store.session_row_operator import SessionRowOperator
from keyedwm.windows.store.session_store_operator import SessionStoreOperator

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
