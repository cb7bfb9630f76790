"""Settings of a Spark whose batches are tiny and many, as those of tests are: rows are what they are without them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from keyedwm.spark.setup.conf import FILE_SYSTEM, MANAGER

QUICK_BATCHES: Mapping[str, str] = MappingProxyType(
    {
        # Compiling plans takes a quarter of a batch of few rows; the demo, the examples and a user's first query do it.
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        # A query that waits asks the source for its end at each poll: 10 ms, the default, take a quarter of a core.
        "spark.sql.streaming.pollingDelay": "100ms",
        # The default one starts a process `readlink` for each look at a file of the checkpoint.
        MANAGER: FILE_SYSTEM,
    }
)
