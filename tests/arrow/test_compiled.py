from __future__ import annotations

import logging
import subprocess
import sys

import pytest

from keyedwm import compiled


def test_without_a_place_for_the_cache_functions_still_work_and_one_warning_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    # numba finds no directory for code that stands in no file
    made: dict[str, object] = {"compiled": compiled.compiled}
    source = "@compiled\ndef one(x):\n    return x + 1\n@compiled\ndef two(x):\n    return x + 2\n"
    with caplog.at_level(logging.WARNING):
        exec(compile(source, "<nowhere>", "exec"), made)  # noqa: S102 (the source is above)
    assert (made["one"](1), made["two"](1)) == (2, 3)  # type: ignore[operator]
    assert caplog.text.count("NUMBA_CACHE_DIR") == 1


def test_a_process_that_plans_or_commits_loads_neither_the_compiler_nor_pandas():
    modules = "keyedwm.spark.bucket, pyspark_wm_source.staging, pyspark_wm_sink.kafka_writer, pyspark_wm_sink.writer"
    source = f"import sys, {modules}; print([heavy for heavy in ('numba', 'pandas') if heavy in sys.modules])"
    ran = subprocess.run([sys.executable, "-c", source], check=True, capture_output=True, text=True)
    assert ran.stdout.strip() == "[]"
