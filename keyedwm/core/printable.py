"""Texts that others chose, inside texts of ours."""

from __future__ import annotations


def printable(text: str) -> str:
    r"""Return a text whose characters that cannot be printed, apart from line ends, are escaped: `\x1b`."""
    if text.isprintable():
        return text
    return "".join(c if c == "\n" or c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def one_line(text: str) -> str:
    r"""Return a printable text whose line ends are escaped, too: a name of others begins no line of ours."""
    return printable(text).replace("\n", "\\n")
