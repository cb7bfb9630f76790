from __future__ import annotations

import pytest

from keyedwm.testing.container import why_no_container


@pytest.fixture(scope="module", params=["local", "container"])
def started_way(request: pytest.FixtureRequest) -> str:
    """Each way that starts a broker; the container way only where Docker answers, and the skip says why not."""
    reason = why_no_container() if request.param == "container" else None
    if reason:
        pytest.skip(f"container way: {reason}")
    return request.param
