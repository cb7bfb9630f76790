"""The options of records with a schema: the formats of value and key, their subjects, and the registry.

Rule: this module sends no request to a registry. An option without a format that needs it is rejected.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from keyedwm.config.validation import boolean, choice, wrong
from keyedwm.core.errors import OptionError
from keyedwm.core.schemas import SchemaKind
from keyedwm.registry.options import OPTIONS as REGISTRY_OPTIONS
from keyedwm.registry.options import PREFIX, RegistryConfig, is_of_registry

REGISTER = f"{PREFIX}register"
SIDES = ("value", "key")
_OF_SIDE = ("format", "schema", "subject", "recordName")
RECORD_NAMES = (*(f"{side}.{name}" for side in SIDES for name in _OF_SIDE), *REGISTRY_OPTIONS, REGISTER)
_FILE = "file:"
_DEFAULT_NAME = "topLevelRecord"  # as Spark's own Avro has it
_RECORD_NAME = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", re.ASCII)


class WriteFormat(Enum):
    """How records are written: the schema's language, behind a head with its id."""

    AVRO_CONFLUENT = "avro-confluent"
    PROTOBUF_CONFLUENT = "protobuf-confluent"
    JSON_CONFLUENT = "json-confluent"

    @property
    def kind(self) -> SchemaKind:
        """The language of the schema."""
        return _KINDS[self]


_KINDS = {
    WriteFormat.AVRO_CONFLUENT: SchemaKind.AVRO, WriteFormat.PROTOBUF_CONFLUENT: SchemaKind.PROTOBUF,
    WriteFormat.JSON_CONFLUENT: SchemaKind.JSON,
}  # fmt: skip


@dataclass(frozen=True, kw_only=True, slots=True)
class SideFormat:
    """How the values, or the keys, are written.

    schema: the text of the option, None to make a schema of the columns. subject: None if each topic would have its
    own. record_name: the name of the record in a schema made of the columns.
    """

    side: str
    name: WriteFormat
    schema: str | None
    subject: str
    record_name: str

    @property
    def schema_option(self) -> str:
        """The option of the schema's text."""
        return f"{self.side}.schema"


@dataclass(frozen=True, kw_only=True, slots=True)
class RecordFormats:
    """The formats of a write. registers: schemas are registered, else they are only looked up."""

    sides: tuple[SideFormat, ...]
    registry: RegistryConfig
    registers: bool


def record_formats(settings: Mapping[str, str], topic: str | None) -> RecordFormats | None:
    """Read the options (names in lower case). Raises OptionError in one sentence."""
    sides = tuple(side for side in (_side(name, settings, topic) for name in SIDES) if side is not None)
    registry = {name: value for name, value in settings.items() if is_of_registry(name)}
    if not sides:
        if registry:
            raise OptionError(
                f"option {PREFIX}{min(registry)[len(PREFIX) :]} has no effect without value.format: leave it out, or "
                "add value.format"
            )
        return None
    registers = boolean(REGISTER, registry.pop(REGISTER.lower(), "true"))
    return RecordFormats(sides=sides, registry=RegistryConfig.from_options(registry), registers=registers)


def _side(side: str, settings: Mapping[str, str], topic: str | None) -> SideFormat | None:
    values = {name: settings.get(f"{side}.{name}".lower()) for name in _OF_SIDE}
    if values["format"] is None:
        for name in _OF_SIDE:
            if values[name] is not None:
                raise OptionError(
                    f"option {side}.{name} has no effect without {side}.format: leave it out, or add {side}.format"
                )
        return None
    format_ = choice(f"{side}.format", values["format"], WriteFormat)
    subject = values["subject"] or (f"{topic}-{side}" if topic is not None else None)
    if subject is None:
        raise OptionError(
            f"option {side}.subject is missing: without the option topic there is no TOPIC-{side}; the subject of the "
            "schema of all topics is expected"
        )
    if values["schema"] is not None and values["recordName"] is not None:
        raise OptionError(
            f"option {side}.recordName has no effect with {side}.schema, which has the name: leave it out"
        )
    if values["schema"] is not None and format_ is WriteFormat.PROTOBUF_CONFLUENT:
        raise OptionError(
            f"option {side}.schema has no effect with {side}.format={format_.value}, whose schema is made of the "
            f"columns: leave it out, and give its name by {side}.recordName"
        )
    name = (values["recordName"] or _DEFAULT_NAME).strip()
    if not _RECORD_NAME.fullmatch(name):
        raise wrong(f"{side}.recordName", name, "a name such as Order or com.shop.Order is expected")
    schema = None if values["schema"] is None else _text(f"{side}.schema", values["schema"])
    return SideFormat(side=side, name=format_, schema=schema, subject=subject.strip(), record_name=name)


def _text(option: str, value: str) -> str:
    """Return the text of an option: its value, or the content of the file that it names."""
    text = value.strip()
    if not text.startswith(_FILE):
        if not text:
            raise wrong(option, value, f"the text of a schema, or {_FILE}PATH, is expected")
        return text
    path = Path(text.removeprefix(_FILE))
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no text"
        raise wrong(option, value, f"{path} cannot be read ({why}): a file with a schema is expected") from None
