"""A registry of ours, and clients of it that keep nothing on disk and never sleep."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from keyedwm.registry.client import Registry
from keyedwm.registry.options import RegistryConfig
from keyedwm.registry.transport import Transport
from tests.support.fake_registry import FakeRegistry, fake_registry

Connect = Callable[..., Registry]


@pytest.fixture
def fake() -> Iterator[FakeRegistry]:
    with fake_registry() as running:
        yield running


class Clock:
    """Time that passes by pauses only."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.pauses: list[float] = []

    def __call__(self) -> float:
        return self.now_s

    def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now_s += seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def connect(fake: FakeRegistry, clock: Clock) -> Connect:
    """Make a client of the fake, or of other addresses; options without their prefix, `_` for a dot."""

    def make(url: str | None = None, **options: str) -> Registry:
        settings = {"url": url or fake.url, "cache": "none", **{k.replace("_", "."): v for k, v in options.items()}}
        config = RegistryConfig.from_options({f"schemaRegistry.{name}": value for name, value in settings.items()})
        return Registry(config, Transport(config, clock=clock, pause=clock.pause))

    return make
