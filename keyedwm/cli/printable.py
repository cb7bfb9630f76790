"""Foreign names, as commands print them: control characters are shown, never sent to the terminal."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.text import Text

from keyedwm.core.text import printable

_WIDE = 160  # columns without a terminal


class PlainConsole(Console):
    """A console for foreign texts: neither their control characters nor rich's markup in them has an effect."""

    @classmethod
    def open(cls) -> PlainConsole:
        """The standard output, as wide as its terminal."""
        out = cls(markup=False, emoji=False)
        return out if out.is_terminal else cls(markup=False, emoji=False, width=_WIDE)

    def render_str(self, text: str, **how: Any) -> Text:
        """Return the text, made printable, for layout."""
        return super().render_str(printable(text), **how)
