"""What a record's headers may put into the log."""

from __future__ import annotations

from keyedwm.config.places import event_time_of
from keyedwm.core.places import Unit
from keyedwm.kafka.records.batches import find_batches
from keyedwm.kafka.records.read import ColumnSelection, read_records
from pyspark_wm_source.task.unreadable import sentence
from tests.kafka.reference import EVERYTHING, WHERE, Record, write


def said_of(*names: str) -> str:
    batch = write([Record(0, 1_000, None, b"", tuple((name, b"x") for name in names))])
    (records,) = read_records(find_batches(WHERE, batch, 0), EVERYTHING, ColumnSelection(headers=True))
    return sentence("t-3", event_time_of("header:h", Unit.MILLISECONDS), records)


def test_header_names_cannot_forge_a_line_or_steer_a_terminal() -> None:
    message = said_of("\x1b[2J\x1b]0;owned\x07\n26/11/22 16:00:00 ERROR SparkContext: forged")
    assert message.isprintable()
    assert "\\x1b[2J" in message


def test_many_long_header_names_make_no_long_line() -> None:
    assert len(said_of(*(f"n{number}" + "x" * 200 for number in range(1_000)))) < 600


def test_a_header_without_a_name_is_a_header() -> None:
    assert "has the headers '';" in said_of("")
