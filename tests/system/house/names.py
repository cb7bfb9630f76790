"""Names that do not say what they name: a participle or a verb without a noun, and verbs of the house.

`python -m tests.system.house.names [FOLDER ...]` prints each place in the shipped code; without folders, the count of
each room. A place is where a name is bound: a variable, parameter, field, function, class or module.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sized
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]
PACKAGES = ("keyedwm", "pyspark_wm_source", "pyspark_wm_sink")
# Names that are compared as a whole, without the leading underscores.
PARTICIPLES = frozenset(
    [
        "answered",
        "asked",
        "begun",
        "brought",
        "came",
        "chosen",
        "come",
        "counted",
        "cut",
        "dealt",
        "dropped",
        "fitting",
        "found",
        "given",
        "gone",
        "got",
        "heard",
        "held",
        "hidden",
        "kept",
        "lasting",
        "looked",
        "lost",
        "made",
        "meant",
        "meeting",
        "met",
        "missed",
        "moved",
        "moving",
        "named",
        "needed",
        "offered",
        "owned",
        "parted",
        "passed",
        "put",
        "reached",
        "said",
        "seen",
        "sent",
        "settled",
        "shown",
        "shut",
        "spoken",
        "staged",
        "standing",
        "taken",
        "taking",
        "tells",
        "thrown",
        "told",
        "touched",
        "tried",
        "turned",
        "used",
        "wanted",
        "went",
        "written",
    ]
)
VERBS = frozenset(["settle", "speak", "take", "tell", "hold", "meet", "say", "want", "wants"])
NOUNS = frozenset(["alone", "beyond", "mine", "news", "ours", "theirs", "what", "words", "says"])
NAMES = PARTICIPLES | VERBS | NOUNS
# (module, name): methods of Python's files, and names of metrics and offset logs, which stay.
FOREIGN = {("framing", "tell"), ("faults", "CUT"), ("batch_figures", "given"), ("batch_figures", "taken")}
_ANY = re.compile(rf"(?<![A-Za-z0-9])_*(?:{'|'.join(sorted(NAMES))})_*(?![A-Za-z0-9_])", re.IGNORECASE)


def shipped() -> list[Path]:
    """Return the shipped files."""
    return sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))


def bound(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Yield each name that the code binds, with its line."""
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name):
                yield name, node.lineno
            case ast.Attribute(attr=name, ctx=ast.Store()):
                yield name, node.lineno
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name, node.lineno


def places(path: Path) -> list[tuple[str, int]]:
    """Return the names of a file that do not say what they name, with their lines; line 0 is the file's own name."""
    code = path.read_text()
    names = [(path.stem, 0), *(bound(ast.parse(code)) if _ANY.search(code) else ())]
    return [
        (name, line) for name, line in names if name.strip("_").lower() in NAMES and (path.stem, name) not in FOREIGN
    ]


def room(path: Path) -> str:
    """Return the room of a shipped file, such as `keyedwm/operators`."""
    parts = path.relative_to(ROOT).parts
    return "/".join(parts[: 2 if len(parts) > 2 else 1])


def count(in_file: Callable[[Path], Sized]) -> dict[str, int]:
    """Return the number of places by room; rooms without any are left out. in_file: the places of a file."""
    of_rooms: Counter[str] = Counter()
    for path in shipped():
        of_rooms[room(path)] += len(in_file(path))
    return {name: number for name, number in sorted(of_rooms.items()) if number}


def report(folders: list[str], in_file: Callable[[Path], list[tuple[Any, int]]]) -> None:
    """Print the places of the folders as text and line, or the count of each room."""
    if not folders:
        of_rooms = count(in_file)
        for name, number in of_rooms.items():
            print(f"{number:5} {name}")
        print(f"{sum(of_rooms.values()):5} in all")
    for path in shipped():
        if any(path.is_relative_to(ROOT / folder) for folder in folders):
            for text, line in in_file(path):
                print(f"{path.relative_to(ROOT)}:{line}: {text}")


def counts() -> dict[str, int]:
    """Return the number of such names by room."""
    return count(places)


if __name__ == "__main__":
    report(sys.argv[1:], places)
