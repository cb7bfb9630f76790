"""The page of event time formats: each row of its tables is read."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from keyedwm.arrow.instants import iso_text
from keyedwm.arrow.json_scan import buffers
from keyedwm.arrow.time_text import milliseconds
from keyedwm.core.places import Unit

PAGE = Path("docs/reference/event-time-formats.md").read_text()
# The unit, or none where the section's is iso; the texts; the event time.
ROW = re.compile(r"^\| (?:`(s|ms|us|ns|iso)` \| )?(`[^|]+`) \| (null|\d{4}-\S+Z) \| [^|]+ \|$", re.MULTILINE)
ROWS = [
    (unit or "iso", text, expected)
    for unit, texts, expected in ROW.findall(PAGE)
    for text in re.findall("`([^`]+)`", texts)
]


def test_the_page_has_all_its_rows():
    assert len(ROWS) >= 70
    assert {unit for unit, _, _ in ROWS} == {unit.value for unit in Unit}


@pytest.mark.parametrize(("unit", "text", "expected"), ROWS)
def test_a_text_is_read_as_the_page_says(unit, text, expected):
    # Behind others, so that a read beyond the text would show.
    data, ends = buffers(pa.array([b"2024-01-0", text.encode(), b"00Z"]))
    ms, valid = milliseconds(data, ends[1:2].astype(np.int64), ends[2:3].astype(np.int64), Unit(unit))
    assert (iso_text(int(ms[0])) if valid[0] else "null") == expected
