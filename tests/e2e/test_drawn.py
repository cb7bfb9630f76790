"""Which faults a campaign draws: by the seed, and only those that can happen where it runs."""

from __future__ import annotations

import pytest

from tests.e2e.campaign import drawn
from tests.e2e.faults import CLUSTER, FAULTS, LOCAL


@pytest.mark.parametrize("target", ["delta", "iceberg", "iceberg-rest", "kafka"])
def test_every_kind_that_can_happen_there_is_drawn_and_no_other(target):
    kinds = {where: set(drawn(target, 40, 7, (), where)) for where in (LOCAL, CLUSTER)}
    for where, kinds_there in kinds.items():
        assert kinds_there == {
            kind for kind, fault in FAULTS.items() if target in fault.targets and where in fault.where
        }
    assert kinds[CLUSTER] - kinds[LOCAL] == {"executor", "host"}
    assert drawn(target, 40, 7, (), CLUSTER) == drawn(target, 40, 7, (), CLUSTER)
