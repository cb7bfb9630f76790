"""What a bucket says in the log of its worker when a batch is done."""

from __future__ import annotations

import logging
from types import SimpleNamespace

import pytest

from keyedwm.operators.batch_figures import StoreCounts
from keyedwm.operators.messages.bucket_store import BucketStore
from keyedwm.operators.messages.windows import HoppingWindow
from keyedwm.spark.hosting import bucket
from keyedwm.spark.hosting.bucket import Bucket
from keyedwm.spark.hosting.bucket_batch import BucketLayout, BucketManifest
from tests.operators.stored import plan_of

DROPPED = '{"aggregate": "medians", "windows": 2, "rows": 14}'


@pytest.mark.parametrize(
    ("late", "dropped", "lines"),
    [
        (0, 0, []),
        (3, 0, ['rows were late: {"aggregate": "medians", "late_rows": 3, "watermark_ms": 70}']),
        (0, 2, [f"a limit of size dropped windows before their time: {DROPPED}"]),
    ],
)  # fmt: skip
def test_late_rows_and_windows_that_go_for_a_limit_of_size_are_logged_with_the_aggregates_name(
    late, dropped, lines, caplog, monkeypatch
):
    monkeypatch.setattr(bucket, "write_state", lambda *_: None)
    monkeypatch.setattr(Bucket, "_set_timer", lambda *_: None)
    one = Bucket(BucketStore(plan=plan_of(HoppingWindow(10, 10))), BucketLayout("medians", (0,), ((0,),)))
    one._manifest = one._blobs = None
    counted = StoreCounts(dropped_windows=dropped, dropped_messages=7 * dropped)
    batch = SimpleNamespace(
        drain=lambda: None,
        manifest=BucketManifest(),
        late_rows=late,
        watermark_ms=70,
        store_counts=counted,
        last_rows=lambda: "last",
    )
    with caplog.at_level(logging.WARNING, "keyedwm.aggregate"):
        assert one._close(batch) == "last"
    assert caplog.messages == lines
