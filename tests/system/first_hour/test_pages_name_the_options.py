"""What the parsers take stands on the pages, and what the pages name is taken by the parsers."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from keyedwm.config.validation import duration_ms
from keyedwm.core.errors import OptionError
from keyedwm.kafka.client.config import _PROPERTIES, ClientConfig
from pyspark_wm_sink.options import sink_options as sink
from pyspark_wm_source.options import source_options as source

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"
NAME = re.compile(r"`([A-Za-z][\w.]*(?:\.\*)?)`")
# testClock is set by keyedwm.testing.pipeline alone.
SOURCE = {*source._OPTIONS, *source._BATCH_ONLY, *source._NO_EFFECT} - {"testClock"}
SINK = {*sink._OWN_OPTIONS, *sink.KAFKA_NAMES}


def table_of(page: str, heading: str) -> dict[str, str]:
    """First cells -> second cells of the tables whose first heading is this: one entry for each name in backticks."""
    found: dict[str, str] = {}
    inside = False
    for line in (DOCS / page).read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if not line.startswith("|"):
            inside = False
        elif cells[0].strip("| ") == heading:
            inside = True
        elif inside:
            found |= dict.fromkeys(NAME.findall(cells[0]), cells[1] if len(cells) > 1 else "")
    return found


def plain(names: dict[str, str]) -> set[str]:
    """Without `kafka.*` and `schemaRegistry.*`, which have pages of their own, and `storage.*`, which is passed on."""
    families = ("kafka.", "schemaRegistry.", "storage.")
    return {name for name in names if not name.endswith(".*") and not name.startswith(families)}


def test_every_option_of_the_source_has_a_row_and_every_row_an_option():
    rows = table_of("reference/source.md", "option")
    assert plain(rows) == plain(dict.fromkeys(SOURCE, ""))
    assert {"kafka.group.id", "schemaRegistry.*"} <= set(rows)


def test_every_option_of_the_sink_has_a_row_and_every_row_an_option():
    rows = plain(table_of("reference/sink.md", "option")) | plain(table_of("reference/kafka-sink.md", "option"))
    assert rows == plain(dict.fromkeys(SINK, ""))


def test_every_kafka_property_with_an_effect_has_a_row_with_its_default():
    rows = table_of("reference/options.md", "property (with `kafka.` in front)")
    assert set(rows) == set(_PROPERTIES)
    defaults = ClientConfig.from_options({"bootstrap.servers": "a:1"})
    for name, (attribute, _) in _PROPERTIES.items():
        value = getattr(defaults, attribute)
        shown = rows[name].split(" ")[0].strip("`")
        if name not in {"bootstrap.servers", "batch.size"}:
            text = value.name.lower() if name == "compression.type" else getattr(value, "value", value)
            assert shown == (str(text).lower() if isinstance(text, bool) else str(text)), name


def test_every_environment_variable_that_is_read_has_a_row():
    read = set()
    for room in ("keyedwm", "pyspark_wm_source", "pyspark_wm_sink"):
        for path in (ROOT / room).rglob("*.py"):
            text = path.read_text()
            read |= set(re.findall(r"(?:environ(?:\.get\(|\[)|variables(?:\.get\(|\[))[\"']([A-Z_]+)[\"']", text))
            read |= set(re.findall(r"^(?:VARIABLE|WORKERS|LOOKUP) = \"([A-Z_]+)\"", text, re.MULTILINE))
    # Set for the demo's own Spark, not read.
    read -= {"SPARK_LOCAL_IP"}
    assert read <= set(table_of("reference/options.md", "variable"))
    assert {"KEYEDWM_CACHE", "KEYEDWM_BOOTSTRAP", "PYSPARK_PYTHON", "NUMBA_CACHE_DIR"} <= read


def test_a_month_is_refused_as_the_page_says():
    with pytest.raises(OptionError, match="months and years differ in length"):
        duration_ms("watermarkLag", "1 month")
    assert duration_ms("watermarkLag", "1 week") == 604_800_000
