"""An answer that contradicts what is known counts only if the brokers repeat it.

Rule: one answer proves nothing, since a broker may be behind (KAFKA-7703). The last answer counts like the first one.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

# How long the brokers may contradict what is known until they are believed: 3.7 seconds in all.
PAUSES_S = (0.1, 0.2, 0.4, 1.0, 2.0)

A = TypeVar("A")


def confirmed(answer: A, contradicts: Callable[[A], object], again: Callable[[A], A]) -> A:
    """Return the first answer that contradicts nothing, or the last one.

    again: asks once more; it takes the answer before.
    """
    for pause_s in PAUSES_S:
        if not contradicts(answer):
            break
        time.sleep(pause_s)
        answer = again(answer)
    return answer
