"""Many windows that one call completes: the work is that of the windows, not their number squared."""

from __future__ import annotations

import numpy as np
import pytest

from keyedwm.operators.frames.plan import tumbling
from keyedwm.operators.messages.retention import Retention
from keyedwm.operators.messages.windows import CompletedBy, tumbling_rows
from keyedwm.windows import WindowOperator
from tests.operators.stored import Message, plan_of, table

WINDOWS = 400
PLANS = {
    "watermark": plan_of(tumbling(10), retention=Retention(time_ms=20)),
    "message": plan_of(tumbling(10), retention=Retention(time_ms=20), full=CompletedBy.MESSAGE),
    "max_windows": plan_of(tumbling(10), retention=Retention(max_windows=2)),
    "rows": plan_of(tumbling_rows(1), retention=Retention(max_windows=2)),
}


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_a_window_that_speaks_or_goes_looks_at_no_slices_but_its_own(plan, monkeypatch):
    value_count, unique = 0, np.unique

    def counting(values, *arguments, **settings):
        nonlocal value_count
        value_count += len(values)
        return unique(values, *arguments, **settings)

    monkeypatch.setattr(np, "unique", counting)
    operator = WindowOperator(plan)
    operator.add_message(table([Message("x", 1, 10 * number, "t", 0, number) for number in range(WINDOWS)]))
    operator.watermark(10 * WINDOWS)
    assert operator.flush().num_rows >= WINDOWS - 1
    assert value_count < 100 * WINDOWS
