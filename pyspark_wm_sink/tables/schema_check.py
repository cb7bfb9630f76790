"""Fits the columns of the rows to the columns of a table: the type of each as it is written, and what does not fit.

Rule: a value is written as the table's type if every value of the rows' type has an equal value there; else the sink
rejects the column. Columns and types are as in the JSON of Spark's and Delta's schemas. Fields of a struct have the
table's order. With `mergeSchema` the rows may lack nullable columns and fields, and may have further ones.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from keyedwm.core.errors import InputError

Type = str | dict
Fields = Sequence[dict]
_WHOLE = {"byte": 3, "short": 5, "integer": 10, "long": 19}  # digits
_WIDER = {
    "byte": {"short", "integer", "long", "float", "double"},
    "short": {"integer", "long", "float", "double"},
    "integer": {"long", "double"},
    "float": {"double"},
    "date": {"timestamp_ntz"},
    "string": {"uuid"},  # which Spark shows as text; one that is none fails when its row is staged
}
_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")
_DEFAULT = "CURRENT_DEFAULT"
_ODD = re.compile(r"[ ,;{}()\n\t=]")
ODD_NAME = "its name holds a blank, a tab, a line end, or one of ,;{}()=, which Spark takes in no column of a table"


@dataclass(frozen=True, kw_only=True, slots=True)
class Fitted:
    """The rows' columns as they are written; differs: one clause for each thing that does not fit."""

    fields: Fields
    differs: tuple[str, ...]


def fit(rows: Fields, table: Fields, *, merge: bool) -> Fitted:
    """Fit the rows' columns to the table's; they keep their own order."""
    run = _Fit(merge=merge)
    fields = run.fields("", rows, table)
    order = [field["name"] for field in rows]
    ordered = sorted((field for field in fields if field["name"] in order), key=lambda one: order.index(one["name"]))
    return Fitted(fields=ordered, differs=tuple(run.differs))


def fit_or_refuse(where: str, rows: Fields, table: Fields, *, merge: bool) -> Fitted:
    """Fit them, or raise InputError, which names the table by `where` and each column that does not fit."""
    fitted = fit(rows, table, merge=merge)
    if not fitted.differs:
        return fitted
    if merge or fit(rows, table, merge=True).differs:
        cure = "cast, add or rename the rows' columns"
    else:
        cure = "mergeSchema=true adds columns that the table lacks, and writes null in those that the rows lack"
    raise InputError(
        f"{where} has another schema than the rows ({'; '.join(fitted.differs)}); nothing was written; {cure}"
    )


class _Fit:
    def __init__(self, *, merge: bool) -> None:
        self._merge = merge
        self.differs: list[str] = []

    def fields(self, of: str, here: Sequence[dict], there: Sequence[dict]) -> list[dict]:
        """The fields of a struct in the table's order, further ones last."""
        fields = {field["name"]: field for field in here}
        spelled: dict[str, list[str]] = {}
        for field in there:
            spelled.setdefault(field["name"].lower(), []).append(field["name"])
        fitted = []
        for field in there:
            where = f"{of}{field['name']}"
            if field["name"] in fields:
                kind = self.kind(where, fields[field["name"]]["type"], field["type"], is_column=not of)
                fitted.append({**field, "type": kind, "nullable": True, "metadata": {}})
            elif field["name"].lower() not in {name.lower() for name in fields}:
                self._lacking(where, field)
                fitted.append(_loose(field))
        for field in here:
            where = f"{of}{field['name']}"
            names = spelled.get(field["name"].lower())
            if names is None:
                self._further(where, field)
                fitted.append(field)
            elif len(names) > 1:
                self.differs.append(f"{where}: the table has {' and '.join(names)}, which are one name to Spark")
            elif names != [field["name"]]:
                self.differs.append(f"{where}: spelled {names[0]} in the table")
        return fitted

    def _further(self, where: str, field: dict) -> None:
        if not self._merge:
            self.differs.append(f"{where}: {_type_name(field['type'])} in the rows, missing in the table")
        else:
            self.differs += [f"{of}: {ODD_NAME}" for of in odd_names(where, field)]

    def _lacking(self, where: str, field: dict) -> None:
        if not self._merge:
            self.differs.append(f"{where}: {_type_name(field['type'])} in the table, missing in the rows")
        elif not field["nullable"]:
            self.differs.append(f"{where}: not null in the table, missing in the rows")
        elif _DEFAULT in field["metadata"]:
            self.differs.append(f"{where}: has a default in the table, missing in the rows")

    def kind(self, where: str, here: Type, there: Type, *, is_column: bool = False) -> Type:
        """Return the type as which a value is written."""
        if isinstance(here, dict) and isinstance(there, dict) and here["type"] == there["type"]:
            return self._nested(where, here, there)
        if here == there or _widens(here, there) or (is_column and (here, there) == ("date", "timestamp")):
            return _loose(there)
        self.differs.append(f"{where}: {_type_name(here)} in the rows, {_type_name(there)} in the table")
        return here

    def _nested(self, where: str, here: dict, there: dict) -> dict:
        if here["type"] == "struct":
            return {"type": "struct", "fields": self.fields(f"{where}.", here["fields"], there["fields"])}
        if here["type"] == "array":
            element = self.kind(f"{where}.element", here["elementType"], there["elementType"])
            return {"type": "array", "elementType": element, "containsNull": True}
        key = self.kind(f"{where}.key", here["keyType"], there["keyType"])
        value = self.kind(f"{where}.value", here["valueType"], there["valueType"])
        return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": True}


def odd_names(where: str, field: dict) -> list[str]:
    """Return the paths of a field, and of fields inside it, that Spark could neither alter nor write."""
    names = [where] if _ODD.search(field["name"]) else []
    kinds = [field["type"]]
    while kinds:
        kind = kinds.pop()
        if isinstance(kind, dict):
            for inner in kind.get("fields", ()):
                names += odd_names(f"{where}.{inner['name']}", inner)
            kinds += [kind[part] for part in ("elementType", "keyType", "valueType") if part in kind]
    return names


def never_null_inside(name: str, kind: object) -> Iterator[str]:
    """Yield the fields that are declared as not null inside a column."""
    if not isinstance(kind, dict):
        return
    parts = [(field["name"], field["nullable"], field["type"]) for field in kind.get("fields", ())]
    if kind["type"] == "array":
        parts = [("element", kind["containsNull"], kind["elementType"])]
    if kind["type"] == "map":
        parts = [("key", True, kind["keyType"]), ("value", kind["valueContainsNull"], kind["valueType"])]
    for part, nullable, of_part in parts:
        if not nullable:
            yield f"{name}.{part}"
        yield from never_null_inside(f"{name}.{part}", of_part)


def _widens(here: Type, there: Type) -> bool:
    """Whether each value of type `here` has an equal value of type `there`."""
    if not isinstance(here, str) or not isinstance(there, str):
        return False
    target = _DECIMAL.fullmatch(there)
    if target is None:
        return there in _WIDER.get(here, ())
    digits, scale = int(target[1]), int(target[2])
    source = _DECIMAL.fullmatch(here)
    if source is None:
        return here in _WHOLE and digits - scale >= _WHOLE[here]
    return scale >= int(source[2]) and digits - scale >= int(source[1]) - int(source[2])


def _loose(value: Any) -> Any:
    """Return the type or field with everything in it nullable."""
    if not isinstance(value, Mapping):
        return value
    free = {"nullable": True, "containsNull": True, "valueContainsNull": True, "metadata": {}}
    return {
        name: free[name] if name in free else [_loose(one) for one in part] if isinstance(part, list) else _loose(part)
        for name, part in value.items()
    }


def _type_name(kind: Type) -> str:
    return kind if isinstance(kind, str) else str(kind["type"])
