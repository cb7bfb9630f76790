"""The live view: a picture that is taken again every few seconds, until `q` or Ctrl-C.

Rule: the terminal is as it was when the view ends, however it ends.
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

from rich.console import Console
from rich.live import Live

from keyedwm.cli.query.picture import Picture
from keyedwm.cli.watch.table import layout

_END_KEYS = b"qQ"
_MOST_BYTES = 64


def show_live(out: Console, first: Picture, look: Callable[[], Picture], every_s: float) -> None:
    """Show pictures until a key ends it; rows/s are those between the last two."""
    picture, before = first, None
    with _keys() as pressed, Live(console=out, screen=True, auto_refresh=False) as live:
        while True:
            live.update(layout(picture, before, width=out.width, height=out.height), refresh=True)
            if pressed(every_s):
                return
            picture, before = look(), picture


@contextmanager
def _keys() -> Iterator[Callable[[float], bool]]:
    """Give a function that waits so many seconds for a key that ends the view; without a terminal it only waits."""
    if not sys.stdin.isatty():
        yield _only_wait
        return
    found = termios.tcgetattr(sys.stdin)
    tty.setcbreak(sys.stdin)
    try:
        yield _pressed
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, found)


def _only_wait(seconds: float) -> bool:
    time.sleep(seconds)
    return False


def _pressed(seconds: float) -> bool:
    until_s = time.monotonic() + seconds
    while (left_s := until_s - time.monotonic()) > 0:
        ready, _, _ = select.select([sys.stdin], [], [], left_s)
        # Not by `sys.stdin.read`, which would keep what it has read ahead from `select`.
        typed = os.read(sys.stdin.fileno(), _MOST_BYTES) if ready else None
        if typed is not None and (not typed or set(typed) & set(_END_KEYS)):  # nothing: the terminal is gone
            return True
    return False
