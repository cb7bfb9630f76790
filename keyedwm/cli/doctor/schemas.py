"""The checks of a schema registry, and of the subjects of the topics that a query reads and writes.

Rule: a check registers nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from keyedwm.cli.doctor.finding import Finding, fail, ok, warn
from keyedwm.core.errors import KeyedwmError, OptionError, UnavailableError
from keyedwm.core.text import nearest
from keyedwm.registry.client import Registry
from keyedwm.registry.options import NO_CACHE, RegistryConfig

_LIMIT_MS = 10_000
_FREE = "NONE"
_REGISTRY = "schema registry"


def look(options: Mapping[str, str], topics: Sequence[str]) -> Iterator[Finding]:
    """Check that the registry can be reached with these options, and check the subjects of each topic.

    A topic without a subject for keys is fine: most keys have no schema.
    """
    try:
        config = RegistryConfig.from_options(options)
    except OptionError as error:
        yield fail("options", error.message, "fix the option")
        return
    # Without the cache on disk, which would answer for a registry that is down.
    registry = Registry(replace(config, cache=NO_CACHE, timeout_ms=min(_LIMIT_MS, config.timeout_ms)))
    try:
        registry.reach()
        yield ok(_REGISTRY, f"answers at {config}")
        for topic in topics:
            yield from _subject(registry, f"{topic}-value")
            if registry.latest(f"{topic}-key") is not None:
                yield from _subject(registry, f"{topic}-key")
    except UnavailableError as error:
        yield fail(_REGISTRY, error.message, "correct schemaRegistry.url, or start the registry")
    except KeyedwmError as error:
        yield fail(_REGISTRY, error.message, error.advice)


def _subject(registry: Registry, subject: str) -> Iterator[Finding]:
    title = f"subject {subject}"
    newest = registry.latest(subject)
    if newest is None:
        near = nearest(subject, registry.subjects(), similarity=0.8)
        yield warn(
            title, "the schema registry has no such subject" + (f"; there is {near}" if near else ""),
            "register a schema, or write a first value, unless the producers use other names of subjects",
        )  # fmt: skip
        return
    yield ok(title, f"version {newest.version} is schema {newest.schema.schema_id}, {newest.schema.kind.value}")
    level = registry.compatibility(subject)
    if level == _FREE:
        yield warn(
            title, "its compatibility is NONE: a writer may register a schema without the fields that a query reads",
            "set it to BACKWARD or stricter",
        )  # fmt: skip
    elif level is not None:
        yield ok(title, f"its compatibility is {level}")
