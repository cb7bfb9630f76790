"""Random frames over a real topic against Spark's own SQL on the same records; MESSY_FRAMES=40 plays so many seeds."""

from __future__ import annotations

import os
from functools import partial

import pytest

from tests.conftest import DEFAULT_SEED
from tests.messy.spark_frames import OPERATORS, batch_of, drawn, play
from tests.spark.conftest import bucket_conf, load, run  # noqa: F401  fixtures
from tests.tools import produce

pytestmark = pytest.mark.usefixtures("bucket_conf")
SEEDS = int(os.environ.get("MESSY_FRAMES", len(OPERATORS)))


def test_frames_of_any_columns_give_what_sparks_own_sql_gives(spark, kafka, topic_of, load, run, seed):  # noqa: F811
    first = abs(seed - DEFAULT_SEED)
    for one in range(first, first + SEEDS):
        topic = topic_of(2)
        produce(kafka.bootstrap, topic, drawn(one).records)
        print(f"KEYEDWM_SEED={DEFAULT_SEED + one} MESSY_FRAMES=1 .venv/bin/pytest tests/messy/test_spark.py")
        row_count = play(one, partial(batch_of, spark), partial(load, topic), lambda df: run(df).rows)
        assert row_count
