"""Virtual time: `time` stands still unless somebody sleeps or a request travels; due timers fire as it passes."""

from __future__ import annotations

import os
import random
import secrets
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

from keyedwm.testing.simulated_kafka.log import Clock

_COMPILER = "numba"


@contextmanager
def virtual(
    clock: Clock, chance: random.Random, fsync: Callable[[int], None], ahead_ms: Callable[[], float] = lambda: 0
) -> Iterator[None]:
    """Replace the clock, sleep, random numbers and fsync for this thread while the world runs.

    ahead_ms: how far the wall clock of the driver is ahead of the world's.

    Other threads of the process, as those of tests that ran before, keep the real ones: their sleeps would move the
    clock, and their random numbers would be missing here. So does the compiler, which names the files of its cache by
    chance: a seed is the same whether the functions were compiled before or not.
    """
    ids = random.Random(chance.getrandbits(64))
    replaced = {
        (time, "time_ns"): lambda: int((clock.now_ms + ahead_ms()) * 1_000_000),
        (time, "monotonic"): lambda: clock.now_ms / 1_000,
        (time, "sleep"): lambda seconds: clock.pass_ms(max(seconds, 0) * 1_000),
        (uuid, "uuid4"): lambda: uuid.UUID(int=ids.getrandbits(128), version=4),
        (secrets, "token_hex"): lambda count=32: ids.randbytes(count).hex(),
        (random, "uniform"): ids.uniform,
        (os, "fsync"): fsync,
    }
    with ExitStack() as stack:
        for (module, name), replacement in replaced.items():
            real = getattr(module, name)
            stack.enter_context(mock.patch.object(module, name, _for_this_thread(replacement, real)))
        yield


def _for_this_thread(replacement: Callable[..., Any], real: Callable[..., Any]) -> Callable[..., Any]:
    """Call the replacement in the thread that asked for it, and the real function in all others and in the compiler."""
    here = threading.get_ident()

    def chosen(*args: Any) -> Any:
        caller = sys._getframe(1).f_globals.get("__name__", "")
        is_ours = threading.get_ident() == here and caller.partition(".")[0] != _COMPILER
        return (replacement if is_ours else real)(*args)

    return chosen
