"""The digest of windows by which keyedwm 0.2.0 knew the state of a plan, and named an aggregate without a name.

Rule: its text does not change, whatever classes and enums are called today.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

# By the kind in a description: the class of such windows in 0.2.0, or one that is named likewise.
_CALLED = {"sliding": "SlidingWindow", "zoned": "ZonedWindow", "session": "SessionWindow", "row gaps": "RowGapWindow"}


def digest_v1(description: Mapping[str, Any], aggregates: Sequence[str], partials: pa.Schema) -> str:
    """Return the digest of a plan. description: its own; aggregates: the texts of theirs; partials: their columns."""
    window = {name: value for name, value in description["window"].items() if name != "kind"}
    late = (f"LateRule.{description['late_rule'].upper()}", description["lateness_ms"], description["accumulating"])
    lines = [
        f"{_CALLED[description['window']['kind']]}({_fields(window)})",
        " ".join(map(str, (*late, _early(description["early"])))),
        *(f"{name} {text}" for (name, *_), text in zip(description["aggregates"], aggregates, strict=True)),
        *(f"{inner.name} {inner.type}" for inner in partials),
        *description["read_from"],
        *([json.dumps(description["key_watermark"], sort_keys=True)] if "key_watermark" in description else []),
    ]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


def _fields(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={_text(name, value)}" for name, value in values.items())


def _text(name: str, value: Any) -> str:
    return f"<Touching.{value.upper()}: {value!r}>" if name == "touching" else repr(value)


def _early(early: Mapping[str, Any] | None) -> str:
    if early is None:
        return "None"
    return f"Early({_fields({name: value for name, value in early.items() if (name, value) != ('by', 'clock')})})"
