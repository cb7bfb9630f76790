"""The option `columns`: the source's own columns to read, and fields of keys and values to read as columns.

Rule: `json:$.amount::double AS amount` defines a column. Without AS its name is the last step of the path, as in Spark
SQL's `value:amount::double`. No field can have the name of a column of the source, selected or not.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from keyedwm.arrow.schema import field_schema, row_schema
from keyedwm.config.places import field_of
from keyedwm.config.validation import wrong
from keyedwm.core.errors import OptionError
from keyedwm.core.places import ID_FIELDS, Field, SchemaField, branch_of
from keyedwm.core.rows import CONTROL, EVENT_TIME, HEADERS, KEY, REJECTED, VALUE, WATERMARK
from keyedwm.core.text import nearest

if TYPE_CHECKING:
    import pyarrow as pa

_OPTION, _ALL = "columns", "*"
# Commas within quotes and brackets belong to a path, a name or a type.
_ITEM = re.compile(r"""(?:[^,'"`(]|'[^']*'|"[^"]*"|`[^`]*`|\([^)]*\)|['"`(])+""")
_WITH_ALIAS = re.compile(r"(.+?)\s+as\s+(?:`([^`]+)`|([\w$-]+))", re.IGNORECASE | re.DOTALL)
_TYPE = r"\s*::\s*\w+(?:\s*\([^)]*\))?"
_PATH = r"""\$(?:[^\s'"`:]|'[^']*'|"[^"]*")+"""
_FIELD = re.compile(
    rf"(?:json|key|(?:key\.)?(?:avro|proto))\s*:\s*{_PATH}(?:{_TYPE})?|(?:{KEY}|{VALUE}){_TYPE}", re.IGNORECASE
)
# A path without its beginning.
_LOOSE = re.compile(rf"(?:{VALUE}[:.])?\$?\.?([^\W\d][\w.]*(?:{_TYPE})?)")
_OF_AXES = re.compile(rf"(?:{EVENT_TIME}|{WATERMARK})_", re.IGNORECASE)
# Columns that exist only with another option.
_SWITCHES = {
    HEADERS: "includeHeaders=false (the default)", CONTROL: "emitControl=false",
    REJECTED: "onBadEventTime and onBadValue, neither of which is reject",
}  # fmt: skip


@dataclass(frozen=True, kw_only=True, slots=True)
class SelectedColumns:
    """The columns of the option.

    names: the source's own columns, in lower case and sorted, None for all. fields: column → its place in the record.
    """

    names: tuple[str, ...] | None = None
    fields: Mapping[str, Field] = field(default_factory=dict)

    @property
    def schema(self) -> list[pa.Field]:
        """The columns that are fields of keys and values."""
        return field_schema(self.fields)

    def every(self, axes: Sequence[str], *, headers: bool) -> pa.Schema:
        """Return all columns of an event's row, selected or not. axes: names of the time axes."""
        return row_schema(axes, headers=headers, control=False, fields=self.schema)


def selected_columns(text: str | None, known: Sequence[str]) -> SelectedColumns:
    """Parse the option. known: the source's own columns. Raises OptionError."""
    if text is None:
        return SelectedColumns()
    items = [item for item in (one.strip() for one in _ITEM.findall(text)) if item]
    if not items:
        raise OptionError(f"option {_OPTION}: it is empty; name at least one column")
    own = {item.lower() for item in items if _is_own(item)}
    fields: dict[str, Field] = {name: field for name, field in ID_FIELDS.items() if name in own}
    own -= fields.keys()
    spelling: dict[str, str] = {}  # the name in lower case, as Spark compares names → the name in the option
    for item in (item for item in items if not _is_own(item)):
        name, place = _field(item, known)
        other = spelling.setdefault(name.lower(), name)
        if name in fields or other != name:
            raise wrong(_OPTION, item, f"there is a column {other!r} already: give this one another name with AS")
        fields[name] = place
    names = tuple(sorted(own - {_ALL}))
    _check_own(names, known, is_all=_ALL in own)
    return SelectedColumns(names=None if _ALL in own else names, fields=fields)


def _is_own(item: str) -> bool:
    return ":" not in item and not item.startswith("$") and _WITH_ALIAS.fullmatch(item) is None


def _field(item: str, known: Sequence[str]) -> tuple[str, Field]:
    """Return the name and place of a column that is a field of a key or a value."""
    match = _WITH_ALIAS.fullmatch(item)
    place, name = (match[1], match[2] or match[3]) if match else (item, None)
    if _FIELD.fullmatch(place) is None:
        raise wrong(_OPTION, item, _expected(place, known))
    record_field = field_of(_OPTION, place, (KEY, VALUE))
    if name is None:
        path = [
            step for step in record_field.path if not (isinstance(record_field, SchemaField) and branch_of(str(step)))
        ]
        last = path[-1] if path else None
        if not isinstance(last, str):
            raise wrong(_OPTION, item, f"a name for the column is expected: {item} AS NAME")
        name = last
    if name.lower() in {one.lower() for one in (*known, HEADERS, CONTROL, REJECTED)} or _OF_AXES.match(name):
        raise wrong(_OPTION, item, f"{name!r} is a name of the source's own columns: give this one another with AS")
    if _FIELD.fullmatch(name):
        raise wrong(_OPTION, item, f"{name!r} is itself the place of a field: give the column another name")
    return name, record_field


def _expected(place: str, known: Sequence[str]) -> str:
    """Return the sentence about the right text in place of this one."""
    own = place.partition("::")[0].strip()
    if own.lower() in (KEY, VALUE):
        return f"a column of the source keeps its name: {own} alone is expected, or {own}::string AS NAME for its text"
    if own.lower() in {one.lower() for one in known}:
        return f"a column of the source keeps its name and type: {own} alone is expected"
    path = _LOOSE.fullmatch(place)
    if path:
        return f"a field of the value's JSON is json:$.{path[1]}"
    return (
        "json:PATH::TYPE AS NAME is expected, such as json:$.a.b::bigint AS b, with backticks around a name that is no "
        "plain word"
    )


def _check_own(own: Sequence[str], known: Sequence[str], *, is_all: bool) -> None:
    for column in own:
        if column in _SWITCHES and column not in known:
            raise OptionError(
                f"option {_OPTION}: column {column!r} does not exist with {_SWITCHES[column]}: change one option"
            )
        if column not in {k.lower() for k in known}:
            hint = nearest(column, known)
            problem = f"option {_OPTION}: {column!r} is not a column of the source ({', '.join(known)})"
            advice = f"did you mean {hint}?" if hint else _expected(column, known)
            raise OptionError(f"{problem}; {advice}")
    if REJECTED in known and REJECTED not in own and not is_all:
        raise OptionError(
            f"option {_OPTION}: column {REJECTED!r} is missing, in which onBadEventTime=reject or onBadValue=reject "
            "returns records: add the column"
        )
