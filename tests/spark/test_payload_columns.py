"""Columns of event rows that processors, running aggregates and stores are given: all but control and watermarks."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from keyedwm.core.errors import OptionError
from keyedwm.core.rows import AXIS_KEY
from keyedwm.spark.hosting.staged_rows import check_free, payload_columns


def test_only_watermarks_of_time_axes_are_left_out_and_not_what_is_called_alike():
    names = [
        "k", "event_time", "event_time_sent", "watermark", "watermark_sent", "watermark_kept", "control",
        "watermarked", "watermark_id", "watermarks",
    ]  # fmt: skip
    metadata = {"watermark_kept": {AXIS_KEY: 1}}
    frame = SimpleNamespace(
        columns=names, schema={name: SimpleNamespace(metadata=metadata.get(name, {})) for name in names}
    )
    left_out = {"watermark", "watermark_sent", "watermark_kept", "control"}
    assert payload_columns(frame) == [name for name in names if name not in left_out]


@pytest.mark.parametrize("name", ["__time", "__control", "__TIME"])
def test_a_column_that_operators_would_put_their_own_in_place_of_is_refused(name):
    with pytest.raises(OptionError, match=f"running: a column cannot be called '{name}', as operators add one"):
        check_free(["k", name], "running")
    check_free(["k", "time", "__times"], "running")
