"""`keyedwm plot CHECKPOINT|TABLE`: the watermarks of a query over time, as a page that zooms or as a picture.

Rule: it only reads, and needs neither broker nor Spark. The page contains everything that it shows, and uses no
network; PNG and SVG are drawn by matplotlib, which is an extra.
"""

from __future__ import annotations

import argparse
import json
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from keyedwm.cli.plot.history import Histories, History, Unit, spans
from keyedwm.cli.query import tables
from keyedwm.config.secrets import refuse_login_in
from keyedwm.config.validation import whole
from keyedwm.core.errors import KeyedwmError, OptionError, UnavailableError
from keyedwm.core.text import printable, words_of

HELP = "draw the watermarks of a query over time, as HTML, PNG or SVG"
EXAMPLE = "keyedwm plot /data/visits.checkpoint -o visits.html"
PAGE = "docs/how-to/watch.md"
_PAGE = ".html"
_PICTURES = (".png", ".svg")
_OUT = "watermarks.html"
_MOST_BATCHES, _MOST_PARTITIONS = "1000", "30"
_PACKAGE = "keyedwm.cli.plot"
# Characters that could end the script, or begin a comment in it.
_ESCAPED = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"})


class MatplotlibMissingError(KeyedwmError):
    """A picture was requested without matplotlib."""

    advice = "pip install 'keyedwm[plot]', or give -o FILE.html"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """PATH, -o, --last, --partitions, and how to reach a table."""
    parser.add_argument(
        "path",
        metavar="CHECKPOINT|TABLE",
        help="the checkpoint of a query, a Delta table's path, or an Iceberg table's name with --catalog",
    )
    parser.add_argument(
        "-o", "--out", default=_OUT, metavar="FILE",
        help=f"the file to write: .html, .png or .svg (default: {_OUT}); an existing file is overwritten",
    )  # fmt: skip
    parser.add_argument(
        "--last", default=_MOST_BATCHES, metavar="N", help=f"maximum number of batches (default: {_MOST_BATCHES})"
    )
    parser.add_argument(
        "--partitions", default=_MOST_PARTITIONS, metavar="N",
        help=f"number of partitions with a separate line, the slowest first (default: {_MOST_PARTITIONS})",
    )  # fmt: skip
    tables.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Write the file; raises OptionError, InputError, FormatError or UnavailableError with one sentence."""
    for name, value, right in (
        ("CHECKPOINT|TABLE", args.path, "the checkpoint of a query, or a table"), ("-o", args.out, "a file"),
    ):  # fmt: skip
        if not value.strip():
            raise OptionError(f"{name} is empty: {right} is expected")
    refuse_login_in("CHECKPOINT|TABLE", args.path)
    batches, partitions = whole("--last", args.last), whole("--partitions", args.partitions)
    reach, out = tables.reach_of(args), _writable(args.out)

    from keyedwm.cli.plot.read import histories_of

    histories = histories_of(args.path, reach, batches).slowest(partitions)
    try:
        _write(histories, out)
    except OSError as error:
        raise UnavailableError(f"-o {out} cannot be written: {words_of(error)}") from error
    print(printable(f"{out}: {histories.summary()}"))
    return 0


def _writable(name: str) -> Path:
    """Before anything is read, raise OptionError for a name whose format cannot be drawn here."""
    out = Path(name)
    ending = out.suffix.lower()
    if ending != _PAGE and ending not in _PICTURES:
        raise OptionError(f"-o {name}: a file that ends in .html, .png or .svg is expected")
    if not out.absolute().parent.is_dir():
        raise OptionError(f"-o {name}: there is no directory {out.absolute().parent}: make it first")
    if ending in _PICTURES and find_spec("matplotlib") is None:
        raise MatplotlibMissingError(f"-o {name}: a {ending[1:].upper()} needs matplotlib, which is not installed")
    return out


def _write(histories: Histories, out: Path) -> None:
    if out.suffix.lower() == _PAGE:
        out.write_text(page_of(histories), encoding="utf-8")
        return
    from keyedwm.cli.plot.image import draw

    draw(histories, out)


def page_of(histories: Histories) -> str:
    """Return the page, one HTML file with its style, its code and its figures.

    Foreign names are in the page only as JSON, in which no character begins a tag; the page's code sets them as text.
    """
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
        "hasSpark": one.has_spark_watermark,
        "tracks": [
            {"name": printable(track.name), "values": track.watermarks_ms, "idle": list(spans(track.idle, one.at_ms))}
            for track in one.tracks
        ],
        "bars": [{"title": bar.title, "ms": bar.unit is Unit.MS, "values": bar.values} for bar in one.bars],
    }
