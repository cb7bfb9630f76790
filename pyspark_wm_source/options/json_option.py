"""Options whose text is a JSON object that this package wrote itself."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from keyedwm.config.validation import wrong
from keyedwm.core.parsing import parse_json


def json_object(name: str, text: str, fields: Collection[str] | None = None, wanted: str = "") -> dict[str, Any]:
    """Return what the text of an option says. Raises OptionError unless it is an object, with these fields if any are
    given; wanted: what is expected then.
    """
    try:
        found = parse_json(text)
    except ValueError:
        found = None
    if not isinstance(found, dict) or (fields is not None and set(found) != set(fields)):
        raise wrong(name, text, wanted or "a JSON object is expected")
    return found
