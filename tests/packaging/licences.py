"""Which licences the packages of a bill of materials may have.

Rule: what a user installs is under a permissive licence or a weak copyleft of files; each exception is named.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

PERMISSIVE = frozenset({
    "0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "BSL-1.0", "CC0-1.0", "HPND", "ISC", "MIT", "MIT-0",
    "MIT-CMU", "PSF-2.0", "Python-2.0", "Unlicense", "Zlib", "ZPL-2.1", "bzip2-1.0.6",
})  # fmt: skip
ALLOWED = PERMISSIVE | {"MPL-2.0"}
NONE = "none is said"
# Texts of metadata that are no identifiers.
_CLASS = "License :: OSI Approved :: "
TEXTS: Mapping[str, str] = {
    f"{_CLASS}Apache Software License": "Apache-2.0",
    f"{_CLASS}BSD License": "BSD-3-Clause",
    f"{_CLASS}Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
}
# The licence in the package's own file, where its metadata has no usable text.
READ: Mapping[str, str] = {"protobuf": "BSD-3-Clause"}
# A licence that is allowed for one package only. crc32c is a library of its own, which a user can replace.
EXCEPTIONS: Mapping[str, str] = {"crc32c": "LGPL-2.1-or-later"}


def name_of(licence: Mapping[str, Any]) -> str:
    """The licence's identifier, expression or first line."""
    detail = licence.get("license", {})
    return (licence.get("expression") or detail.get("id") or detail.get("name") or NONE).splitlines()[0]


def licences_of(component: Mapping[str, Any]) -> str:
    """The licences of a package, as its metadata, `READ` or `EXCEPTIONS` has them."""
    if component["name"] in EXCEPTIONS:
        return f"{EXCEPTIONS[component['name']]}, allowed for this package only"
    return READ.get(component["name"]) or " and ".join(sorted(map(name_of, component.get("licenses", ())))) or NONE


def by_licence(components: Iterable[Mapping[str, Any]]) -> list[str]:
    """A line for each licence of a bill of materials, with the packages under it."""
    packages = defaultdict(list)
    for one in components:
        packages[licences_of(one)].append(one["name"])
    return [f"{licence}: {', '.join(sorted(names))}" for licence, names in sorted(packages.items())]


def not_allowed(components: Iterable[Mapping[str, Any]], allowed: frozenset[str] = ALLOWED) -> list[str]:
    """A line for each package under a licence that is not allowed."""
    return [
        f"{one['name']}: {licences_of(one)} is not allowed"
        for one in components
        if one["name"] not in EXCEPTIONS
        and not all(is_allowed(part, allowed) for part in licences_of(one).split(" and "))
    ]


def is_allowed(expression: str, allowed: frozenset[str] = ALLOWED) -> bool:
    """Whether an identifier, a text or an SPDX expression permits the use: of an OR one side, of an AND both."""
    plain = expression.strip()
    while plain.startswith("(") and plain.endswith(")") and _is_one_group(plain):
        plain = plain[1:-1].strip()
    plain = TEXTS.get(plain, plain)
    for word, combine in (("OR", any), ("AND", all)):
        parts = _split(plain, word)
        if len(parts) > 1:
            return combine(is_allowed(part, allowed) for part in parts)
    return plain.partition(" WITH ")[0] in allowed


def _is_one_group(text: str) -> bool:
    depth = 0
    for place, sign in enumerate(text):
        depth += (sign == "(") - (sign == ")")
        if depth == 0 and place < len(text) - 1:
            return False
    return True


def _split(text: str, word: str) -> list[str]:
    """The parts between a word that stands outside of brackets."""
    parts, depth = [""], 0
    for piece in re.split(rf"(\(|\)|\s{word}\s)", text):
        depth += (piece == "(") - (piece == ")")
        if depth == 0 and piece.strip() == word:
            parts.append("")
        else:
            parts[-1] += piece
    return parts
