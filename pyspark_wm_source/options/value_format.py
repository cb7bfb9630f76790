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
from keyedwm.core.places import EventTime, Field, OnBadValue, Place, SchemaField
from keyedwm.core.rows import SCHEMA_ID, VALUE
from keyedwm.registry.options import PREFIX, RegistryConfig, is_of_registry

VALUE_FORMAT, VALUE_SCHEMA, ON_BAD_VALUE = "value.format", "value.schema", "onBadValue"
FORMAT_OPTIONS = (VALUE_FORMAT, VALUE_SCHEMA, ON_BAD_VALUE)
_FILE = "file:"


class FormatName(Enum):
    """The formats: how a value is written, and who writes its head."""

    AVRO = "avro"
    AVRO_CONFLUENT = "avro-confluent"
    AVRO_APICURIO = "avro-apicurio"
    JSON_CONFLUENT = "json-confluent"

    @property
    def has_id(self) -> bool:
        """Whether a head names the schema."""
        return self is not FormatName.AVRO

    @property
    def is_avro(self) -> bool:
        """Whether values are Avro, else JSON."""
        return self is not FormatName.JSON_CONFLUENT


@dataclass(frozen=True, kw_only=True, slots=True)
class ValueFormat:
    """How values are read. schema: the text of `value.schema`, of which defaults are taken where heads name others."""

    name: FormatName
    schema: str | None
    registry: RegistryConfig | None
    on_bad: OnBadValue = OnBadValue.FAIL

    def reads(self, place: Field | EventTime) -> bool:
        """Whether a field or an event time lies behind a head or in Avro, so that it is read with the format."""
        if isinstance(place, EventTime):
            return place.place is (Place.AVRO if self.name.is_avro else Place.VALUE)
        if isinstance(place, SchemaField):
            return True
        return not self.name.is_avro and place.column == VALUE and place.kind is not None

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
    if VALUE_SCHEMA in settings and not named.is_avro:
        raise OptionError(f"option {VALUE_SCHEMA} has no effect with {VALUE_FORMAT}={named.value}: leave it out")
    schema = _schema(settings[VALUE_SCHEMA]) if VALUE_SCHEMA in settings else None
    given = {option: value for option, value in settings.items() if is_of_registry(option)}
    needs_registry = named.has_id and named.is_avro
    if given and not needs_registry:
        raise OptionError(
            f"option {PREFIX}{min(given)[len(PREFIX) :]} has no effect with {VALUE_FORMAT}={named.value}, which asks "
            "for no schema: leave it out"
        )
    if not named.has_id and schema is None:
        raise OptionError(
            f"option {VALUE_SCHEMA} is missing: values of {VALUE_FORMAT}={named.value} do not say their schema; its "
            f"text, or {_FILE}PATH, is expected"
        )
    on_bad = choice(ON_BAD_VALUE, settings.get(ON_BAD_VALUE.lower(), OnBadValue.FAIL.value), OnBadValue)
    registry = RegistryConfig.from_options(given) if needs_registry else None
    return ValueFormat(name=named, schema=schema, registry=registry, on_bad=on_bad)


def check_places(value_format: ValueFormat | None, option: str, places: Iterable[Field | EventTime]) -> None:
    """Refuse fields and event times that the format of the values does not have."""
    for place in places:
        is_avro = isinstance(place, SchemaField) or (isinstance(place, EventTime) and place.place is Place.AVRO)
        if is_avro and value_format is None:
            raise wrong(option, place.text, f"{VALUE_FORMAT} must say how values name their schema, as avro-confluent")
        if value_format is None:
            continue
        name = value_format.name
        if is_avro and place.text == SCHEMA_ID and not name.has_id:
            raise wrong(option, place.text, f"values of {VALUE_FORMAT}={name.value} have no id: leave it out")
        if is_avro and place.text != SCHEMA_ID and not name.is_avro:
            raise wrong(option, place.text, f"values of {VALUE_FORMAT}={name.value} are JSON: write json:PATH")
        if not is_avro and name.is_avro and _is_json_of_value(place):
            raise wrong(option, place.text, f"values of {VALUE_FORMAT}={name.value} are Avro: write avro:PATH")


def _is_json_of_value(place: Field | EventTime) -> bool:
    if isinstance(place, EventTime):
        return place.place is Place.VALUE
    return place.column == VALUE and bool(place.path)


def _schema(value: str) -> str:
    """The text of the schema, which is read here, on the driver."""
    from keyedwm.formats.avro_schema import parse_avro

    text = value
    if value.startswith(_FILE):
        try:
            text = Path(value[len(_FILE) :]).read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            raise wrong(VALUE_SCHEMA, value, f"the file of a schema is expected ({type(error).__name__})") from error
    try:
        parse_avro(text)
    except InputError as error:
        raise OptionError(f"option {VALUE_SCHEMA}: {error.message}") from error
    return text
