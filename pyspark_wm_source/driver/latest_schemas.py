"""The latest schemas of the topics that a query reads, requested at its start to warn of paths that they lack.

Rule: they decide nothing. Records are read by the schemas that they name. A registry that is away, slow or without
these subjects costs no time and no error: a separate thread asks, once, with a short limit.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace

from google.protobuf.descriptor import Descriptor

from keyedwm.core.errors import KeyedwmError
from keyedwm.core.places import Place, prefix_of, schema_path
from keyedwm.core.schemas import RegisteredSchema, SchemaKind
from keyedwm.core.text import nearest
from keyedwm.formats.avro_program import compile_program
from keyedwm.formats.avro_schema import parse_avro
from keyedwm.formats.field_requests import Request
from keyedwm.formats.proto_schema import link
from keyedwm.registry.client import Registry
from keyedwm.registry.options import NO_CACHE
from pyspark_wm_source.options.source_options import SourceOptions
from pyspark_wm_source.options.value_format import ColumnFormat
from pyspark_wm_source.task.decoding import requests_of
from pyspark_wm_source.task.scan import decoded_fields

_LIMIT_MS = 5_000
_log = logging.getLogger("keyedwm.source")


def warn_of_paths(options: SourceOptions) -> threading.Thread | None:
    """Start to ask for the latest schemas; return None if there is nothing to ask."""
    formats = [one for one in options.formats.each if one.registry is not None]
    topics = options.topics.names or tuple(options.topics.assigned or ())
    if not formats or not topics:
        return None
    thread = threading.Thread(target=_ask, args=(options, formats, topics), name="keyedwm: latest schemas", daemon=True)
    thread.start()
    return thread


def _ask(options: SourceOptions, formats: Sequence[ColumnFormat], topics: Sequence[str]) -> None:
    fields = decoded_fields(options.selection.fields, options)
    times = [axis.event_time for axis in options.axes.values()]
    for one in formats:
        if one.registry is None:
            continue
        config = replace(one.registry, cache=NO_CACHE, timeout_ms=min(_LIMIT_MS, one.registry.timeout_ms))
        registry = Registry(config)  # the shared one would wait for these answers
        requests = requests_of([f for f in fields if one.reads(f)], [t for t in times if one.reads(t)])
        for topic in topics:
            subject = f"{topic}-{one.column}"
            try:
                latest = registry.latest(subject)
                corrections = [] if latest is None else list(_corrections(one, latest.schema, requests))
            except KeyedwmError as error:
                _log.debug("the latest schema of subject %s is not checked: %s", subject, error.message)
                continue
            prefix = prefix_of(one.column, one.name.language)
            for request, path in corrections:
                _log.warning(
                    "the latest schema of subject %s has no %s:%s; did you mean %s:%s?",
                    subject, prefix, request.text, prefix, schema_path(path),
                )  # fmt: skip


def _corrections(
    value_format: ColumnFormat, schema: RegisteredSchema, requests: Sequence[Request]
) -> Iterator[tuple[Request, Sequence[str | int]]]:
    """Yield the paths that a schema does not have, each with the one that it is most like."""
    if value_format.name.language is Place.AVRO and schema.kind is SchemaKind.AVRO:
        reader = None if value_format.schema is None else parse_avro(value_format.schema)
        writer = parse_avro(schema.text, [one.text for one in schema.references])
        for slot, path in compile_program(writer, requests, reader).nearest_paths.items():
            yield requests[slot], path
    elif value_format.name.language is Place.PROTO and schema.kind is SchemaKind.PROTOBUF:
        messages = [*link(schema).message_types_by_name.values()]
        for request in requests:
            paths = [_in_message(message, request.path) for message in messages]
            # Several messages may share a topic: one that has the path is enough.
            if all(path != request.path for path in paths):
                yield from ((request, path) for path in paths[:1] if path is not None)


def _in_message(message: Descriptor, path: Sequence[str | int]) -> Sequence[str | int] | None:
    """Return the path itself if a message has it, else the one that it is most like, None for none."""
    at: Descriptor | None = message
    for depth, step in enumerate(path):
        if at is None or isinstance(step, int) or at.GetOptions().map_entry:
            return path  # within a list, a map or a value: no names to compare
        field = at.fields_by_name.get(step)
        if field is None:
            near = nearest(step, at.fields_by_name.keys())
            return None if near is None else (*path[:depth], near, *path[depth + 1 :])
        at = field.message_type
    return path
