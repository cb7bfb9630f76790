"""Real topics, and streams of the source in this process."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.tools import Stream


@pytest.fixture
def open_stream(kafka) -> Callable[..., Stream]:
    """A stream of a topic from its beginning, in this process; further options by name, or as a mapping."""
    from tests.tools import Stream

    def make(topic: str, options: dict[str, str] | None = None, **named: str) -> Stream:
        given = {"kafka.bootstrap.servers": kafka.bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
        return Stream(**(given | (options or {}) | named))

    return make
