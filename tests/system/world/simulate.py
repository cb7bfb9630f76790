"""One seed played: the product runs in virtual time, on simulated brokers and a disk of its own."""

from __future__ import annotations

import logging
import random
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from unittest import mock

import pyarrow as pa

from keyedwm.kafka.client.config import ClientConfig
from keyedwm.kafka.requests.cluster import Cluster
from pyspark_wm_source.options.source_options import Limits
from tests.system.world.clock import virtual
from tests.system.world.faults import Strike
from tests.system.world.world import Outcome, World

_FREEZES = (
    "pyspark_wm_sink.kafka.writer.freeze_gc",
    "pyspark_wm_sink.tables.writer.freeze_gc",
    "pyspark_wm_source.reader.freeze_gc",
    "pyspark_wm_source.reader.freeze_planner_gc",
)


def run(
    seed: int, *, only: frozenset[Strike] | None = None, target: str | None = None, kind: type[World] = World
) -> Outcome:
    """Play one seed from an empty world.

    only: with no other strikes than these. target: the kind, not the seed's. kind: of the world.
    """
    directory = Path(tempfile.mkdtemp(prefix="world-", dir=_memory()))
    world = kind(seed, directory, only=only, target=target)
    threads = pa.cpu_count()
    pa.set_cpu_count(1)  # a few rows at a time: threads would only wait for each other
    try:
        with ExitStack() as stack:
            stack.enter_context(virtual(world.clock, random.Random(seed + 1), world.fsync, world.ahead_ms))
            for name in _FREEZES:
                stack.enter_context(mock.patch(name))
            stack.enter_context(mock.patch.object(Cluster, "connect", world.connect))
            stack.enter_context(mock.patch.object(ClientConfig, "digest", _known_digests(ClientConfig.digest)))
            # As if ranges were large: several tasks a batch, each with a transaction or files of its own.
            most_tasks = 2 if seed % 5 == 4 else None  # maxPartitions of every fifth world
            world.source_limits = Limits(offsets_per_task=world.chance.choice([1, 50_000]), most_tasks=most_tasks)
            stack.enter_context(world.build().faulty())
            return world.play()
    finally:
        pa.set_cpu_count(threads)
        world.end_processes()
        shutil.rmtree(directory, ignore_errors=True)


@contextmanager
def quiet() -> Iterator[None]:
    """Play without the product's warnings about faults, which are expected; other tests of the process need theirs."""
    log = logging.getLogger("keyedwm")
    level = log.level
    log.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        log.setLevel(level)


def _known_digests(digest: Callable[[ClientConfig], str]) -> Callable[[ClientConfig], str]:
    """A digest costs as much as a request; by identity, which is the configuration's as long as it is kept here."""
    known: dict[int, tuple[ClientConfig, str]] = {}

    def once(config: ClientConfig) -> str:
        if id(config) not in known:
            known[id(config)] = config, digest(config)
        return known[id(config)][1]

    return once


def _memory() -> str | None:
    return "/dev/shm" if Path("/dev/shm").is_dir() else None  # noqa: S108
