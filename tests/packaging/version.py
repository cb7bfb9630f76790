"""Write a new version into every file that names it: python -m tests.packaging.version 0.5.0 (make version TO=0.5.0).

A release's changes no longer stand under `(in development)`; a version `X.dev0` begins a heading of its own.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[2]
# File -> the text around the version.
PLACES: Mapping[str, str] = {
    "keyedwm/__init__.py": r'(?<=^__version__ = ")[^"]+(?="$)',
    "README.md": r"(?<=^Version )\S+(?= \()",
    "docs/tutorial/quickstart.md": r"(?<=^    ok    keyedwm: )\S+$",
}
RECIPE, CHANGELOG = "conda/recipe.yaml", "CHANGELOG.md"
_VERSION = re.compile(r"\d+\.\d+\.\d+(?:\.dev0)?")
_HEADING = re.compile(r"^## (\S+).*$", re.MULTILINE)


def written(name: str, text: str, version: str) -> str:
    """A file's text with the new version. Raises ValueError if the file does not name one version."""
    released = version.removesuffix(".dev0")
    if name == CHANGELOG:
        return _with_heading(text, released, "" if version == released else " (in development)")
    pattern = r'(?<=^  version: ")[^"]+(?="$)' if name == RECIPE else PLACES[name]
    new, count = re.subn(pattern, released if name == RECIPE else version, text, flags=re.MULTILINE)
    if count != 1:
        raise ValueError(f"{name} names the version {count} times: once is expected")
    return new


def _with_heading(changelog: str, released: str, state: str) -> str:
    """The changelog whose first heading is of this version."""
    first = _HEADING.search(changelog)
    if first is None:
        raise ValueError(f"{CHANGELOG} has no heading of a version")
    rest = changelog[first.end() :] if first[1] == released else f"\n\n{changelog[first.start() :]}"
    return f"{changelog[: first.start()]}## {released}{state}{rest}"


def main(version: str) -> None:
    """Write the version everywhere."""
    if not _VERSION.fullmatch(version):
        raise SystemExit(f"{version}: a version such as 0.5.0 or 0.6.0.dev0 is expected")
    for name in (*PLACES, RECIPE, CHANGELOG):
        path = ROOT / name
        path.write_text(written(name, path.read_text(), version))
        print(f"{name}: {version}")


if __name__ == "__main__":
    main(*sys.argv[1:])
