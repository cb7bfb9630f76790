# ruff: noqa: INP001, SLF001  run by hand: python docs/site/options.py; the lists of options are the parsers' own
"""Writes the tables of docs/reference/options.md by asking the parsers of the options.

Rule: a fact of the page is an answer of a parser: what an option takes is the refusal of a value that nobody gives, and
its default is the value that changes nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from keyedwm.core.errors import OptionError
from keyedwm.registry.options import OPTIONS as REGISTRY_OPTIONS
from pyspark_wm_sink.options import sink_options
from pyspark_wm_sink.options.record_format import RECORD_NAMES, SIDES
from pyspark_wm_sink.options.sink_options import SinkOptions
from pyspark_wm_source.options import source_options
from pyspark_wm_source.options.axes import AXIS_OPTIONS
from pyspark_wm_source.options.source_options import SourceOptions

PAGE = Path(__file__).parents[1] / "reference" / "options.md"
BEGIN, END = "<!-- options: begin -->", "<!-- options: end -->"
SOURCE = {"kafka.bootstrap.servers": "h:1", "subscribe": "t"}
TARGETS = {
    "Delta": {"path": "/t"},
    "Iceberg": {"table": "a.b", "catalog.type": "glue"},
    "Kafka": {"kafka.bootstrap.servers": "h:1"},
}
# What an option is of no use without.
BESIDE: Mapping[str, Mapping[str, str]] = {
    "watermarkDelay": {"watermarkPolicy": "lagAndDelay"},
    "watermarkLull": {"watermarkPolicy": "lagAndLull"},
    "wallClockLag": {"watermarkPolicy": "realTimeLag"},
    "frameSize": {"watermarkThrottle": "frame"},
    "frameOffset": {"watermarkThrottle": "frame", "frameSize": "1 minute"},
    "watermarkStep": {"watermarkThrottle": "step"},
    "propagateFrom": {"propagate": "true"},
    "startingOffsetsByTimestampStrategy": {"startingTimestamp": "1"},
    "value.schema": {"value.format": "avro"},
    "key.schema": {"key.format": "avro"},
    "onBadValue": {"value.format": "json-confluent"},
    **{name: {"value.format": "avro-confluent", "schemaRegistry.url": "https://h:1"} for name in REGISTRY_OPTIONS},
    "schemaRegistry.url": {"value.format": "avro-confluent"},
}
# What a parser says of a value in other words than "is wrong; ... is expected".
TAKES = {
    "subscribe": "topics, with commas between",
    "columns": "a comma list of columns of the source, or of fields such as json:$.amount::double AS amount",
    "where": "a condition on columns of the source and on fields, such as json:$.amount::double > 100",
    "controlSecret": "16 to 4096 bytes, in place, as env:NAME or as file:PATH",
    "stateSecret": "16 to 4096 bytes, in place, as env:NAME or as file:PATH",
    "ledger": "a directory by its absolute path, or an address",
    **dict.fromkeys(
        ("value.schema", "key.schema"),
        "the text of a schema of Avro or Protobuf, or file:PATH, which is read on the driver",
    ),
    "schemaRegistry.url": "an address such as https://registry:8081, or several with commas between",
    **dict.fromkeys(
        ("schemaRegistry.user", "schemaRegistry.password", "schemaRegistry.token"),
        "a text, in place, as env:NAME or as file:PATH",
    ),
    "schemaRegistry.token.provider": "module:function, which returns a token",
}
# What many rows take, which the page describes once.
DESCRIBED_BELOW = {
    "a duration such as '10 seconds', '1 hour 30 minutes' or '500 milliseconds'": "[duration](#durations)",
    "the name of a topic has 1 to 249 letters (a to z), digits, '.', '_' and '-', and is not '.' or '..'": "a topic",
    "16 to 4096 bytes, in place, as env:NAME or as file:PATH": "[secret](#secrets) of 16 to 4096 bytes",
    "a text, in place, as env:NAME or as file:PATH": "[secret](#secrets)",
    "the text of a schema of Avro or Protobuf, or file:PATH, which is read on the driver": "schema, or file:PATH",
    "a whole number of at least 1": "integer from 1",
    "true or false": "true, false",
}
# Of the sink: a format, and what reaches its registry.
_FORMAT = {"topic": "t", "value.format": "avro-confluent", "schemaRegistry.url": "https://h:1"}
_TOPICS = {"subscribe", "subscribePattern", "assign"}  # exactly one is required
_NOBODYS = "\N{SNOWMAN}"
_USUAL = ("true", "false", "0 seconds", "60 seconds", "15 minutes", "1 day", "none", "timestamp", "keyedwm", "main")


def tables() -> str:
    """The tables of the page."""
    source = ("### Options of the source", "| option | value | default | needs |", _source())
    sinks = ("### Options of the sinks", "| option | sink | value | default |", _sink())
    return "\n".join(
        f"{title}\n\n{head}\n|---|---|---|---|\n" + "".join(f"| {' | '.join(row)} |\n" for row in rows)
        for title, head, rows in (source, sinks)
    )


def page(text: str) -> str:
    """The page with the tables of today."""
    before, _, rest = text.partition(BEGIN)
    return f"{before}{BEGIN}\n{tables()}{END}{rest.partition(END)[2]}"


def _source() -> Iterator[tuple[str, ...]]:
    for name in (*source_options.STREAM_OPTIONS, *source_options._BATCH_ONLY):
        mark = " (batch reads)" if name in source_options._BATCH_ONLY else " *" if name in AXIS_OPTIONS else ""
        if name in _TOPICS:
            given: dict[str, str] = {"kafka.bootstrap.servers": "h:1"}
        else:
            given = {**SOURCE, **BESIDE.get(name, {})}
        if name == "controlSecret":
            given["propagate"] = "true"
        needs = [f"`{option}={value}`" for option, value in given.items() if option not in SOURCE]
        yield (f"`{name}`{mark}", *_facts(SourceOptions.parse, name, given), needs[-1] if needs else "")


def _sink() -> Iterator[tuple[str, ...]]:
    names = {*sink_options._OWN_OPTIONS, *sink_options.ICEBERG_NAMES, *sink_options.KAFKA_NAMES}
    for name in sorted(names.difference(REGISTRY_OPTIONS)):
        of = [target for target, given in TARGETS.items() if _is_taken(name, given)]
        given = {option: value for option, value in {**TARGETS[of[0]], **_beside(name)}.items() if option != name}
        yield (
            f"`{name}`",
            "all" if len(of) == len(TARGETS) else ", ".join(of),
            *_facts(SinkOptions.parse, name, given),
        )


def _beside(name: str) -> Mapping[str, str]:
    """What an option of records with a schema is of no use without."""
    if name not in RECORD_NAMES:
        return {}
    side, _, of_side = name.partition(".")
    if of_side == "format":
        return {"topic": "t"}
    return {**_FORMAT, f"{side}.format": "avro-confluent"} if side in SIDES else _FORMAT


def _is_taken(name: str, given: Mapping[str, str]) -> bool:
    """Whether the option belongs to a target: the others say that two are named."""
    try:
        SinkOptions.parse({**given, name: _NOBODYS})
    except OptionError as refused:
        return "two targets" not in refused.message and "unknown" not in refused.message
    return True


def _facts(parse: Callable[[Mapping[str, str]], Any], name: str, given: Mapping[str, str]) -> tuple[str, str]:
    """What an option takes, and its default."""
    takes = "a text"
    try:
        parse({**given, name: _NOBODYS})
    except OptionError as refused:
        said = refused.message.rpartition(f"{_NOBODYS}' is wrong; ")[2]
        takes = TAKES.get(name) or re.sub(r",? (?:is|are) expected", "", said)
    without = _parsed(parse, given)
    if without is None:
        return _cell(takes), "one of three" if name in _TOPICS else "required"
    words = takes.removeprefix("one of ").split(", ") if takes.startswith("one of ") else ()
    default = next((value for value in (*words, *_USUAL) if _parsed(parse, {**given, name: value}) == without), None)
    return _cell(takes), "" if default is None else f"`{default}`"


def _parsed(parse: Callable[[Mapping[str, str]], Any], options: Mapping[str, str]) -> Any:
    try:
        return parse(options)
    except OptionError:
        return None


def _cell(text: str) -> str:
    text = DESCRIBED_BELOW.get(text, text).removeprefix("one of ").removeprefix("a ")
    return text.replace("|", "\\|").replace("<", "&lt;").replace("{", "&#123;")  # Markdown reads {...} as attributes


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
