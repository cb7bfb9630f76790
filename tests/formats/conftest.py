"""What the tests of formats share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.formats.cage import Cage, caged


@pytest.fixture
def cage() -> Iterator[Cage]:
    with caged() as one:
        yield one
