"""The options of values with a schema: their format, the registry or the schema's text, and what becomes of bad ones.

Rule: a schema is known by its id, so nothing is asked of a registry here. An option that the format has no use for is
refused, and so is a field that the format does not have.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path

from keyedwm.config.validation import choice, wrong
from keyedwm.core.errors import InputError, OptionError
from keyedwm.core.places import SCHEMA_PLACES, EventTime, Field, OnBadValue, Place, SchemaField
from keyedwm.core.rows import SCHEMA_ID, VALUE
from keyedwm.core.schemas import RegisteredSchema, SchemaKind
from keyedwm.registry.options import PREFIX, RegistryConfig, is_of_registry

VALUE_FORMAT, VALUE_SCHEMA, ON_BAD_VALUE = "value.format", "value.schema", "onBadValue"
FORMAT_OPTIONS = (VALUE_FORMAT, VALUE_SCHEMA, ON_BAD_VALUE)
_FILE = "file:"
_CALLED = {Place.AVRO: "Avro", Place.PROTO: "Protobuf", Place.VALUE: "JSON"}


class FormatName(Enum):
    """The formats: how a value is written, and who writes its head."""

    AVRO = "avro"
    AVRO_CONFLUENT = "avro-confluent"
    AVRO_APICURIO = "avro-apicurio"
    AVRO_SINGLE_OBJECT = "avro-single-object"
    PROTOBUF = "protobuf"
    PROTOBUF_CONFLUENT = "protobuf-confluent"
    JSON_CONFLUENT = "json-confluent"

    @property
    def has_id(self) -> bool:
        """Whether a head names the schema."""
        return self not in {FormatName.AVRO, FormatName.PROTOBUF}

    @property
    def language(self) -> Place:
        """How fields of the values are written: `avro:`, `proto:`, or `json:`, which needs no schema."""
        if self is FormatName.JSON_CONFLUENT:
            return Place.VALUE
        return Place.PROTO if self in {FormatName.PROTOBUF, FormatName.PROTOBUF_CONFLUENT} else Place.AVRO

    @property
    def has_registry(self) -> bool:
        """Whether a registry knows the schemas, else `value.schema` has the one that there is."""
        return self.has_id and self.needs_schema and self is not FormatName.AVRO_SINGLE_OBJECT

    @property
    def needs_schema(self) -> bool:
        """Whether values are read by their schema."""
        return self.language in SCHEMA_PLACES


@dataclass(frozen=True, kw_only=True, slots=True)
class ValueFormat:
    """How values are read. schema: the text of `value.schema`, of which defaults are taken where heads name others."""

    name: FormatName
    schema: str | None
    registry: RegistryConfig | None
    on_bad: OnBadValue = OnBadValue.FAIL

    def reads(self, place: Field | EventTime) -> bool:
        """Whether a field or an event time lies behind a head or in a value with a schema."""
        if isinstance(place, EventTime):
            return place.place is self.name.language
        if isinstance(place, SchemaField):
            return True
        return not self.name.needs_schema and place.column == VALUE and place.kind is not None

    def lenient(self) -> ValueFormat:
        """Return the format for a caller that needs the event times alone: no value fails."""
        return replace(self, on_bad=OnBadValue.NULL)


def value_format_of(settings: Mapping[str, str]) -> ValueFormat | None:
    """Read the options (names in lower case). Raises OptionError in one sentence."""
    if VALUE_FORMAT not in settings:
        for name in (VALUE_SCHEMA, ON_BAD_VALUE, *filter(is_of_registry, settings)):
            if name.lower() in settings:
                shown = f"{PREFIX}{name[len(PREFIX) :]}" if is_of_registry(name) else name
                raise OptionError(f"option {shown} has no effect without {VALUE_FORMAT}: leave it out, or add that")
        return None
    named = choice(VALUE_FORMAT, settings[VALUE_FORMAT], FormatName)
    # The defaults of Protobuf stand in the writer's schema itself.
    if VALUE_SCHEMA in settings and named.has_id and named.language is not Place.AVRO:
        raise OptionError(f"option {VALUE_SCHEMA} has no effect with {VALUE_FORMAT}={named.value}: leave it out")
    schema = _schema(settings[VALUE_SCHEMA], named) if VALUE_SCHEMA in settings else None
    given = {option: value for option, value in settings.items() if is_of_registry(option)}
    if given and not named.has_registry:
        raise OptionError(
            f"option {PREFIX}{min(given)[len(PREFIX) :]} has no effect with {VALUE_FORMAT}={named.value}, which asks "
            "for no schema: leave it out"
        )
    if named.needs_schema and not named.has_registry and schema is None:
        raise OptionError(
            f"option {VALUE_SCHEMA} is missing: values of {VALUE_FORMAT}={named.value} do not say their schema; its "
            f"text, or {_FILE}PATH, is expected"
        )
    on_bad = choice(ON_BAD_VALUE, settings.get(ON_BAD_VALUE.lower(), OnBadValue.FAIL.value), OnBadValue)
    registry = RegistryConfig.from_options(given) if named.has_registry else None
    return ValueFormat(name=named, schema=schema, registry=registry, on_bad=on_bad)


def check_places(value_format: ValueFormat | None, option: str, places: Iterable[Field | EventTime]) -> None:
    """Refuse fields and event times that the format of the values does not have."""
    for place in places:
        language = _language_of(place)
        if value_format is None and language is not None:
            raise wrong(option, place.text, f"{VALUE_FORMAT} must say how values name their schema, as avro-confluent")
        if value_format is None:
            continue
        name = value_format.name
        if place.text == SCHEMA_ID and isinstance(place, SchemaField):
            if not name.has_id:
                raise wrong(option, place.text, f"values of {VALUE_FORMAT}={name.value} have no id: leave it out")
        elif (name.needs_schema and _is_json_of_value(place)) or language not in {None, name.language}:
            values = f"values of {VALUE_FORMAT}={name.value} are {_CALLED[name.language]}"
            raise wrong(option, place.text, f"{values}: write {name.language.value}:PATH")


def _language_of(place: Field | EventTime) -> Place | None:
    """The language of the schema that a place belongs to, None for a place that needs none."""
    if isinstance(place, SchemaField):
        return place.language
    return place.place if isinstance(place, EventTime) and place.place in SCHEMA_PLACES else None


def _is_json_of_value(place: Field | EventTime) -> bool:
    if isinstance(place, EventTime):
        return place.place is Place.VALUE
    return place.column == VALUE and bool(place.path) and not isinstance(place, SchemaField)


def _schema(value: str, name: FormatName) -> str:
    """The text of the schema, which is read here, on the driver."""
    from keyedwm.formats.avro_schema import parse_avro
    from keyedwm.formats.proto_schema import link

    text = value
    if value.startswith(_FILE):
        try:
            text = Path(value[len(_FILE) :]).read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            raise wrong(VALUE_SCHEMA, value, f"the file of a schema is expected ({type(error).__name__})") from error
    try:
        if name.language is Place.AVRO:
            parse_avro(text)
        elif not link(RegisteredSchema(0, SchemaKind.PROTOBUF, text)).message_types_by_name:
            raise InputError("the schema of Protobuf has no message")
    except InputError as error:
        raise OptionError(f"option {VALUE_SCHEMA}: {error.message}") from error
    return text
