"""The live view: a picture that is refreshed every few seconds, until `q` or Ctrl-C; keys change what it shows.

Rule: when the view ends, in any way, the terminal has its earlier settings.
"""

from __future__ import annotations

import os
import select
import sys
import termios
import time
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from rich.console import Console, RenderableType
from rich.live import Live

from keyedwm.cli.watch.view import View, pressed

_MOST_BYTES = 64
T = TypeVar("T")
Lay = Callable[[T, T | None, View], tuple[RenderableType, int]]


def show_live(
    out: Console,
    first: T,
    look: Callable[[], T],
    every_s: float,
    lay: Lay[T],
    *,
    is_over: Callable[[T], bool] = lambda _picture: False,
) -> bool:
    """Show pictures until a key ends the view, or `is_over` is true for one: return whether that was the reason.

    lay: returns the content to show, and how many partitions a page has.
    """
    picture, before, view = first, None, View()
    with _keys() as wait, Live(console=out, screen=True, auto_refresh=False) as live:
        while True:
            until_s = time.monotonic() + every_s
            while (left_s := until_s - time.monotonic()) > 0:
                content, rows = lay(picture, before, view)
                live.update(content, refresh=True)
                typed = wait(left_s)
                if typed is not None:
                    view = pressed(view, typed, rows)
                if view.is_over:
                    return False
            picture, before = look(), picture
            if is_over(picture):
                return True


@contextmanager
def _keys() -> Iterator[Callable[[float], bytes | None]]:
    """Yield a function that waits some seconds for keys and returns them; without a terminal it only waits."""
    if not sys.stdin.isatty():
        yield _only_wait
        return
    terminal_mode = termios.tcgetattr(sys.stdin)
    tty.setcbreak(sys.stdin)
    try:
        yield _typed
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, terminal_mode)


def _only_wait(seconds: float) -> None:
    time.sleep(seconds)


def _typed(seconds: float) -> bytes | None:
    ready, _, _ = select.select([sys.stdin], [], [], seconds)
    # Not by `sys.stdin.read`, which would hide the bytes that it has read ahead from `select`.
    return os.read(sys.stdin.fileno(), _MOST_BYTES) if ready else None
