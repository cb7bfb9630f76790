"""Figures that read a clock of the test."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from keyedwm.spark.metrics.figures import Figures
    from tests.metrics.told import Clock

# Imports in the fixtures: pytest ignores kafka-python's deprecation warning only after it has loaded this file.


@pytest.fixture
def clock() -> Clock:
    from tests.metrics.told import Clock

    return Clock()


@pytest.fixture
def figures(clock: Clock) -> Figures:
    from keyedwm.spark.metrics.figures import Figures

    return Figures(clock, partitions=2)
