"""The names that programs, dashboards and scripts of users hold, as one mapping of texts.

`python -m tests.compat.names VERSION` records them once, when a version is cut: later versions have all of them.
"""

from __future__ import annotations

import argparse
import inspect
import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from pathlib import Path

from keyedwm.cli.main import COMMANDS
from keyedwm.core.deprecations import DEPRECATIONS
from keyedwm.core.error_codes import CODES
from keyedwm.core.rows import ControlKind
from keyedwm.spark.metrics.catalogue import METRICS
from pyspark_wm_source.reader import row_schema

ROOT = Path(__file__).parents[2]
FIXTURES = Path(__file__).parent / "fixtures"
FILE = "names.json"
MODULES = ("keyedwm.spark", "keyedwm.windows", "keyedwm.testing.pipeline", "keyedwm.testing.policies")
_SOURCE = {"kafka.bootstrap.servers": "h:1", "subscribe": "t"}
_ROW = re.compile(r"^\| `([^`]+)`[^|]*((?:\|[^|\n]*){3})\|$", re.MULTILINE)
# Sources whose rows have columns of their own.
_COLUMNS: Mapping[str, Mapping[str, str]] = {
    "": {},
    "includeHeaders": {"includeHeaders": "true"},
    "propagate": {"propagate": "true"},
    "reject": {"onBadEventTime": "reject"},
    "watermarks": {"watermarks": '{"created": {"key": 1, "eventTime": "json:$.created"}}'},
    "value.format": {"value.format": "avro-confluent", "schemaRegistry.url": "https://h:1"},
}


def _options() -> Iterator[tuple[str, str]]:
    """Each option with its default, from the page that a test compares with the parsers."""
    page = (ROOT / "docs" / "reference" / "options.md").read_text()
    tables = page.partition("<!-- options: begin -->")[2].partition("<!-- options: end -->")[0]
    source, _, sinks = tables.partition("### Options of the sinks")
    for name, cells in _ROW.findall(source):
        yield f"source {name}", cells.split("|")[2].strip()
    for name, cells in _ROW.findall(sinks):
        yield f"sink {name}", cells.split("|")[3].strip()


def _columns() -> Iterator[tuple[str, str]]:
    for kind, options in _COLUMNS.items():
        for number, field in enumerate(row_schema({**_SOURCE, **options}).fields):
            yield f"{kind} {field.name}".strip(), f"{number} {field.dataType.simpleString()}"
    yield from ((f"control {kind.value}", "") for kind in ControlKind)


def _functions() -> Iterator[tuple[str, str]]:
    """Each public name; of a function or class, each parameter with its kind, and whether it has a default."""
    for module in MODULES:
        home = import_module(module)
        for name in getattr(home, "__all__", None) or _own(home):
            yield from _function(f"{module}.{name}", getattr(home, name))
    for name, entry in DEPRECATIONS.items():
        module, _, successor = entry.instead.rpartition(".")
        yield from _function(name, getattr(import_module(module), successor))


def _function(name: str, value: object) -> Iterator[tuple[str, str]]:
    yield name, ""
    for parameter in _parameters(value):
        required = "required" if parameter.default is parameter.empty else "optional"
        yield f"{name}({parameter.name})", f"{parameter.kind.description}, {required}"


def _own(module: object) -> list[str]:
    """The public functions and classes that a module defines."""
    return [
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and getattr(value, "__module__", "") == module.__name__ and callable(value)
    ]


def _parameters(value: object) -> list[inspect.Parameter]:
    if not callable(value):
        return []
    try:
        return [one for one in inspect.signature(value).parameters.values() if not one.name.startswith("_")]
    except ValueError:
        return []


def _metrics() -> Iterator[tuple[str, str]]:
    return ((one.prometheus, f"{one.kind.value} {' '.join(one.labels)}") for one in METRICS)


def _commands() -> Iterator[tuple[str, str]]:
    for name, module in COMMANDS.items():
        yield name, ""
        parser = argparse.ArgumentParser(add_help=False)
        import_module(module).add_arguments(parser)
        for action in parser._actions:
            for flag in action.option_strings or [action.dest]:
                yield f"{name} {flag}", "" if action.nargs is None else str(action.nargs)


KINDS: Mapping[str, Callable[[], Iterator[tuple[str, str]]]] = {
    "options": _options, "columns": _columns, "functions": _functions, "metrics": _metrics, "commands": _commands,
    "codes": lambda: iter(CODES.items()),
}  # fmt: skip


def names(kind: str) -> dict[str, str]:
    """The names of a kind, each with what must not change about it."""
    return dict(KINDS[kind]())


if __name__ == "__main__":
    target = FIXTURES / sys.argv[1] / FILE
    if target.exists():
        raise SystemExit(f"{target} exists: names are recorded once")
    target.write_text(json.dumps({kind: names(kind) for kind in KINDS}, indent=0, sort_keys=True) + "\n")
