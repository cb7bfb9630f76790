"""The example of a tested pipeline, in the session of these tests."""

from __future__ import annotations

import pytest

from examples.test_visits import (  # noqa: F401
    day,
    test_a_partition_that_lags_loses_nothing,
    test_a_record_behind_the_watermark_is_late,
    test_a_restart_loses_no_open_window,
    test_an_idle_partition_is_not_waited_for,
    test_the_sentence_names_the_partition_that_is_waited_for,
)


@pytest.fixture(scope="module")
def keyedwm_spark(spark):
    return spark
