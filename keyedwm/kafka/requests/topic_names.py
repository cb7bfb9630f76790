"""The names that a topic can have.

Rule: Kafka's own. A name that no topic can have is refused where it is given, before a broker is asked: brokers answer
it late, and some versions as if the topic were only missing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from keyedwm.config.validation import wrong

_LEGAL = re.compile(r"[A-Za-z0-9._-]{1,249}")
_NOT_NAMES = frozenset({".", ".."})


def check_topics(option: str, topics: Iterable[str]) -> None:
    """Raise OptionError for the first name that no topic can have; option: where it was given."""
    for topic in topics:
        if topic in _NOT_NAMES or not _LEGAL.fullmatch(topic):
            raise wrong(
                option, topic,
                "the name of a topic has 1 to 249 letters (a to z), digits, '.', '_' and '-', and is not '.' or '..'",
            )  # fmt: skip
