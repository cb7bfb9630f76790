"""Schemas of tests' records (Avro, Protobuf and JSON Schema), and a registry that serves them.

Rule: schemas have the ids 1, 2 and so on. The registry is a thread of this process. Each registry has its own address,
so a process never uses the schemas of an earlier registry.
"""

from __future__ import annotations

import json
import struct
import threading
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal

from keyedwm.core.errors import InputError, OptionError
from keyedwm.core.places import Place
from keyedwm.core.schemas import RegisteredSchema, SchemaKind
from keyedwm.formats.avro_fingerprint import fingerprint
from keyedwm.formats.avro_schema import parse_avro
from keyedwm.testing.avro_values import encode_avro, encode_number
from pyspark_wm_source.options.value_format import FormatName

_KINDS = {Place.AVRO: SchemaKind.AVRO, Place.PROTO: SchemaKind.PROTOBUF, Place.VALUE: SchemaKind.JSON}


@dataclass(frozen=True)
class Schema:
    """A schema, by its text; `of` encodes values."""

    text: str
    kind: Literal["AVRO", "PROTOBUF", "JSON"] = "AVRO"

    def __post_init__(self) -> None:
        if self.kind not in {one.value for one in SchemaKind}:
            raise InputError(f"Schema: kind={self.kind!r}: AVRO, PROTOBUF or JSON is expected")
        if self.kind == SchemaKind.AVRO.value:
            parse_avro(self.text)

    def of(self, fields: Mapping[str, Any], message: str | None = None) -> SchemaValue:
        """Return a value for `Record`.

        fields: Python's values, such as dates, decimals and datetimes; for Protobuf, the values of its JSON mapping.
        message: the Protobuf message, by default the first one of the schema. Raises InputError for fields that do not
        fit an Avro or Protobuf schema.
        """
        if self.kind == SchemaKind.JSON.value:
            return SchemaValue(self, json.dumps(fields).encode())
        if self.kind == SchemaKind.PROTOBUF.value:
            return _of_protobuf(self, fields, message)
        return SchemaValue(self, encode_avro(parse_avro(self.text), fields))


@dataclass(frozen=True)
class SchemaValue:
    """An encoded value, without the head of a format. indexes: the place of the Protobuf message in its file."""

    schema: Schema
    body: bytes = field(repr=False)
    indexes: tuple[int, ...] = ()


def _of_protobuf(schema: Schema, fields: Mapping[str, Any], message: str | None) -> SchemaValue:
    from google.protobuf.json_format import ParseDict, ParseError
    from google.protobuf.message_factory import GetMessageClass

    from keyedwm.formats.proto_schema import link

    file = link(RegisteredSchema(0, SchemaKind.PROTOBUF, schema.text))
    names = [*file.message_types_by_name]
    name = names[0] if message is None and names else message
    if name not in names:
        raise InputError(f"the schema has no message {name!r}: it has {', '.join(names) or 'none'}")
    value = GetMessageClass(file.message_types_by_name[name])()
    try:
        ParseDict(dict(fields), value)
    except ParseError as error:
        raise InputError(f"the fields do not fit the message {name}: {error}") from error
    return SchemaValue(schema, value.SerializeToString(), (names.index(name),))


class Schemas:
    """The schemas of a test, in the order of their ids. options: those of the source, with `value.format`."""

    def __init__(self, schemas: Sequence[Schema], options: Mapping[str, str]) -> None:
        self.schemas = list(schemas)
        lowered = {name.lower(): value for name, value in options.items()}
        self._formats = {option: lowered.get(option) for option in ("key.format", "value.format")}

    def bytes_of(self, value: SchemaValue, option: str) -> bytes:
        """Return the value's bytes, with the head of the format that an option (`key.format`, `value.format`) names."""
        name = next((one for one in FormatName if one.value == self._formats[option]), None)
        if name is None or _KINDS[name.language].value != value.schema.kind:
            raise OptionError(
                f"run: a record has a value of a schema of the kind {value.schema.kind}, and option {option} is "
                f"{self._formats[option] or 'missing'}: set the option to a format of that kind"
            )
        if not name.has_id:
            return value.body
        if name is FormatName.AVRO_GLUE:
            raise OptionError(f"run: {option}={name.value}: values of a Schema have no head of it: write them as bytes")
        if name is FormatName.AVRO_SINGLE_OBJECT:
            return b"\xc3\1" + fingerprint(value.schema.text).to_bytes(8, "little", signed=True) + value.body
        if value.schema not in self.schemas:
            self.schemas.append(value.schema)
        schema_id = self.schemas.index(value.schema) + 1
        if name is FormatName.AVRO_APICURIO:
            return b"\0" + struct.pack(">q", schema_id) + value.body
        head = b"\0" + struct.pack(">I", schema_id)
        if name is FormatName.PROTOBUF_CONFLUENT:
            head += _indexes(value.indexes)
        return head + value.body

    @contextmanager
    def registry(self) -> Iterator[dict[str, str]]:
        """Serve the schemas for the time of the `with`; yield the source options that name this registry."""
        place = f"/{uuid.uuid4().hex}"
        handler = type("Handler", (_Handler,), {"schemas": self, "place": place})
        server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            url = f"http://127.0.0.1:{server.server_address[1]}{place}"
            yield {"schemaRegistry.url": url, "schemaRegistry.cache": "none"}
        finally:
            server.shutdown()
            server.server_close()
            thread.join()


def _indexes(indexes: tuple[int, ...]) -> bytes:
    """Encode message indexes as Confluent's serializer does: the first message is a single zero byte."""
    if indexes == (0,):
        return b"\0"
    return b"".join(map(encode_number, (len(indexes), *indexes)))


class _Handler(BaseHTTPRequestHandler):
    """Answers a request for a schema by its id, and any other request with 404."""

    schemas: Schemas
    place: str

    def do_GET(self) -> None:
        """Answer one request."""
        text = self.path.removeprefix(f"{self.place}/schemas/ids/").partition("?")[0]
        number = int(text) if text.isascii() and text.isdecimal() else 0
        status, answer = 404, {"error_code": 40403, "message": "Schema not found"}
        if 0 < number <= len(self.schemas.schemas):
            schema = self.schemas.schemas[number - 1]
            status, answer = 200, {"schema": schema.text, "schemaType": schema.kind}
        content = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        """Log nothing."""
