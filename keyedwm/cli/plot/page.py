"""The page: one HTML file with its style, its code and its figures, which asks no network.

Rule: names that others chose reach the page as JSON alone, in which no character begins a tag, and the code sets them
as text.
"""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

from keyedwm.cli.plot.history import Histories, History, Unit, spells
from keyedwm.core.text import printable

_PACKAGE = "keyedwm.cli.plot"
# What would end the script, or begin a comment in it.
_ESCAPED = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"})


def page_of(histories: Histories) -> str:
    """Return the page."""
    text = json.dumps(_as_json(histories), separators=(",", ":"), ensure_ascii=False).translate(_ESCAPED)
    page = _asset("page.html")
    for name, content in (("STYLE", _asset("page.css")), ("CODE", _asset("page.js")), ("FIGURES", text)):
        page = page.replace(f"/*{name}*/", content, 1)
    return page


def _asset(name: str) -> str:
    return (files(_PACKAGE) / name).read_text(encoding="utf-8")


def _as_json(histories: Histories) -> dict[str, Any]:
    return {
        "title": printable(histories.title),
        "about": histories.about,
        "charts": [_chart(one) for one in histories.each],
    }


def _chart(one: History) -> dict[str, Any]:
    return {
        "name": printable(one.name),
        "leftOut": one.left_out,
        "batches": one.batches,
        "at": one.at_ms,
        "coalesced": one.coalesced_ms,
        "lowest": one.lowest_ms,
        "highest": one.highest_ms,
        "oneForAll": one.tells_one_for_all,
        "tracks": [
            {"name": printable(track.name), "values": track.watermarks_ms, "idle": list(spells(track.idle, one.at_ms))}
            for track in one.tracks
        ],
        "bars": [{"title": bar.title, "ms": bar.unit is Unit.MS, "values": bar.values} for bar in one.bars],
    }
