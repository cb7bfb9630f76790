"""The options of keys and values with a schema: formats, registry or schemas, and the action for bad values.

Rule: parsing sends no request to a registry, since records name their schemas by id. An option without an effect is
rejected with an error. So is a field that the format of its key or value does not have.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path

from keyedwm.config.validation import choice, wrong
from keyedwm.core.errors import InputError, OptionError
from keyedwm.core.places import ID_FIELDS, SCHEMA_PLACES, EventTime, Field, OnBadValue, Place, SchemaField, prefix_of
from keyedwm.core.rows import KEY, SCHEMA_GUID, SCHEMA_ID, VALUE
from keyedwm.core.schemas import RegisteredSchema, SchemaKind
from keyedwm.registry.options import PREFIX, RegistryConfig, is_of_registry

VALUE_FORMAT, VALUE_SCHEMA, ON_BAD_VALUE = "value.format", "value.schema", "onBadValue"
KEY_FORMAT, KEY_SCHEMA = "key.format", "key.schema"
FORMAT_OPTIONS = (VALUE_FORMAT, VALUE_SCHEMA, KEY_FORMAT, KEY_SCHEMA, ON_BAD_VALUE)
_FILE = "file:"
_CALLED = {Place.AVRO: "Avro", Place.PROTO: "Protobuf", Place.VALUE: "JSON"}
_OPTIONS = {VALUE: (VALUE_FORMAT, VALUE_SCHEMA), KEY: (KEY_FORMAT, KEY_SCHEMA)}


class FormatName(Enum):
    """The formats of a key or a value: its language, and the kind of head before it."""

    AVRO = "avro"
    AVRO_CONFLUENT = "avro-confluent"
    AVRO_APICURIO = "avro-apicurio"
    AVRO_GLUE = "avro-glue"
    AVRO_SINGLE_OBJECT = "avro-single-object"
    PROTOBUF = "protobuf"
    PROTOBUF_CONFLUENT = "protobuf-confluent"
    JSON_CONFLUENT = "json-confluent"

    @property
    def has_id(self) -> bool:
        """Whether a head names the schema."""
        return self not in {FormatName.AVRO, FormatName.PROTOBUF}

    @property
    def has_guid(self) -> bool:
        """Whether a schema may be named by 16 bytes."""
        return self in {FormatName.AVRO_GLUE, *_CONFLUENT}

    @property
    def has_headers(self) -> bool:
        """Whether a header of the record may name the schema."""
        return self in _CONFLUENT

    @property
    def language(self) -> Place:
        """The language of the bodies: Avro, Protobuf, or JSON, which needs no schema."""
        if self is FormatName.JSON_CONFLUENT:
            return Place.VALUE
        return Place.PROTO if self in {FormatName.PROTOBUF, FormatName.PROTOBUF_CONFLUENT} else Place.AVRO

    @property
    def has_registry(self) -> bool:
        """Whether values are read by schemas of a registry. Other formats with schemas have them in an option."""
        own = {FormatName.AVRO_SINGLE_OBJECT, FormatName.AVRO_GLUE}
        return self.has_id and self.needs_schema and self not in own

    @property
    def needs_schema(self) -> bool:
        """Whether values are read by their schema."""
        return self.language in SCHEMA_PLACES


_CONFLUENT = {FormatName.AVRO_CONFLUENT, FormatName.PROTOBUF_CONFLUENT, FormatName.JSON_CONFLUENT}


@dataclass(frozen=True, kw_only=True, slots=True)
class ColumnFormat:
    """The format of the values of records, or of their keys.

    schema: the text of `value.schema` or `key.schema`. If heads name other schemas, it supplies the defaults only.
    """

    name: FormatName
    schema: str | None
    registry: RegistryConfig | None
    on_bad: OnBadValue = OnBadValue.FAIL
    column: str = VALUE

    @property
    def text(self) -> str:
        """The option and its value."""
        return f"{_OPTIONS[self.column][0]}={self.name.value}"

    @property
    def schema_option(self) -> str:
        """The option of its schema."""
        return _OPTIONS[self.column][1]

    def reads(self, place: Field | EventTime) -> bool:
        """Return whether this format decodes the column (key or value) that has a field or an event time."""
        if isinstance(place, EventTime):
            return place.place.column == self.column and place.place.language is self.name.language
        if place.column != self.column:
            return False
        if isinstance(place, SchemaField):
            return True
        return not self.name.needs_schema and place.kind is not None

    def lenient(self) -> ColumnFormat:
        """Return the format for a caller that needs only event times: no value raises an error."""
        return replace(self, on_bad=OnBadValue.NULL)


@dataclass(frozen=True, kw_only=True, slots=True)
class Formats:
    """The formats of values and keys, None for those without a schema or a head."""

    value: ColumnFormat | None = None
    key: ColumnFormat | None = None

    @property
    def each(self) -> tuple[ColumnFormat, ...]:
        """Return the formats that are set; that of values is applied first."""
        return tuple(one for one in (self.value, self.key) if one is not None)

    @property
    def has_rejected_column(self) -> bool:
        """Whether the column `rejected` returns records with a bad value or key."""
        return any(one.on_bad is OnBadValue.REJECT for one in self.each)

    @property
    def has_registry(self) -> bool:
        """Whether a registry has schemas of keys or values."""
        return any(one.registry is not None for one in self.each)

    @property
    def notes_unknown_ids(self) -> bool:
        """Whether tasks note unknown ids: a schema may be registered before a replay, which must give the same rows."""
        return any(one.registry is not None and one.on_bad is not OnBadValue.FAIL for one in self.each)

    def lenient(self) -> Formats:
        """Return the formats for a caller that needs only event times."""
        return Formats(value=self.value and self.value.lenient(), key=self.key and self.key.lenient())

    def of(self, column: str) -> ColumnFormat | None:
        """Return the format of keys or of values."""
        return self.key if column == KEY else self.value


def formats_of(settings: Mapping[str, str]) -> Formats:
    """Parse the options (names in lower case). Raises OptionError."""
    names = {
        column: choice(option, settings[option], FormatName)
        for column, (option, _) in _OPTIONS.items()
        if option in settings
    }
    _check_usage(settings, names)
    of_registry = {option: value for option, value in settings.items() if is_of_registry(option)}
    registry = RegistryConfig.from_options(of_registry) if any(name.has_registry for name in names.values()) else None
    on_bad = choice(ON_BAD_VALUE, settings.get(ON_BAD_VALUE.lower(), OnBadValue.FAIL.value), OnBadValue)
    formats = {
        column: ColumnFormat(
            name=name,
            schema=_schema_of(settings, column, name),
            registry=registry if name.has_registry else None,
            on_bad=on_bad,
            column=column,
        )
        for column, name in names.items()
    }
    return Formats(value=formats.get(VALUE), key=formats.get(KEY))


def _check_usage(settings: Mapping[str, str], names: Mapping[str, FormatName]) -> None:
    """Raise OptionError for options that no format uses."""
    for column, (option, schema) in _OPTIONS.items():
        if schema in settings and column not in names:
            raise OptionError(f"option {schema} has no effect without {option}: leave it out, or add {option}")
    if any(name.has_registry for name in names.values()):
        return
    for name in (ON_BAD_VALUE, *sorted(filter(is_of_registry, settings))):
        option_name = f"{PREFIX}{name[len(PREFIX) :]}" if is_of_registry(name) else name
        if name.lower() in settings and not names:
            raise OptionError(
                f"option {option_name} has no effect without {VALUE_FORMAT}: leave it out, or add {VALUE_FORMAT}"
            )
        if names and is_of_registry(name):
            column, name_ = next(iter(names.items()))
            text = f"{_OPTIONS[column][0]}={name_.value}"
            headed = name_ in (FormatName.AVRO, FormatName.PROTOBUF)
            raise OptionError(
                f"option {option_name} has no effect with {text}, which reads no schema from a registry: leave it out"
                + (f", or set {text}-confluent, whose heads name schemas of a registry" if headed else "")
            )


def _schema_of(settings: Mapping[str, str], column: str, name: FormatName) -> str | None:
    """Return the text of the schema of keys or values, None if only heads name schemas."""
    option, schema = _OPTIONS[column]
    # Only for Avro can a second schema supply defaults.
    if schema in settings and name.has_id and name.language is not Place.AVRO:
        raise OptionError(f"option {schema} has no effect with {option}={name.value}: leave it out")
    if schema in settings:
        return _schema(schema, settings[schema], name)
    if name.needs_schema and not name.has_registry:
        raise OptionError(
            f"option {schema} is missing: with {option}={name.value} it must have the schema of the {column}s, as text "
            f"or as {_FILE}PATH"
        )
    return None


def check_places(formats: Formats, option: str, places: Iterable[Field | EventTime]) -> None:
    """Raise OptionError for fields and event times that the formats of keys and values do not have."""
    for place in places:
        column, language = _place_in(place)
        if column is None:
            continue
        own, (format_option, _) = formats.of(column), _OPTIONS[column]
        if own is None:
            if language is not Place.VALUE:
                raise wrong(
                    option, place.text, f"{format_option} must be the format of the {column}s, such as avro-confluent"
                )
        elif place in ID_FIELDS.values():
            _check_id(own, option, place.text)
        elif language is not own.name.language:
            right = prefix_of(column, own.name.language)
            raise wrong(
                option, place.text, f"{column}s of {own.text} are {_CALLED[own.name.language]}: write {right}:PATH"
            )


def _check_id(own: ColumnFormat, option: str, text: str) -> None:
    if not own.name.has_id:
        raise wrong(option, text, f"values of {own.text} have no id: leave it out")
    if text == SCHEMA_ID and own.name is FormatName.AVRO_GLUE:
        raise wrong(option, text, f"ids of {own.text} are UUIDs: write {SCHEMA_GUID}")
    if text == SCHEMA_GUID and not own.name.has_guid:
        raise wrong(option, text, f"ids of {own.text} are numbers: write {SCHEMA_ID}")


def _place_in(place: Field | EventTime) -> tuple[str | None, Place | None]:
    """Return the column and language of a place in a key or a value, (None, None) for other places."""
    if isinstance(place, EventTime):
        return place.place.column, place.place.language
    if isinstance(place, SchemaField):
        return place.column, place.language
    return (place.column, Place.VALUE) if place.column in _OPTIONS and place.path else (None, None)


def _schema(option: str, value: str, name: FormatName) -> str:
    """Return the checked text of the schema, or of Glue's schemas, from the option or its file.

    Raises OptionError for a text or a file that is no schema.
    """
    from keyedwm.formats.avro_schema import parse_avro
    from keyedwm.formats.glue_schemas import glue_schemas
    from keyedwm.formats.proto_schema import link

    text = value
    if value.startswith(_FILE):
        try:
            text = Path(value[len(_FILE) :]).read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else "its text is not UTF-8"
            raise wrong(option, value, f"the file of a schema is expected ({why})") from error
    try:
        if name is FormatName.AVRO_GLUE:
            glue_schemas(text)
        elif name.language is Place.AVRO:
            parse_avro(text)
        elif not link(RegisteredSchema(0, SchemaKind.PROTOBUF, text)).message_types_by_name:
            raise InputError("the schema of Protobuf has no message")
    except InputError as error:
        raise OptionError(f"option {option}: {error.message}") from error
    return text
