"""The options of a write to an Iceberg table; the options of the catalog have PyIceberg's names.

Rule: `catalog.*` goes to PyIceberg as it stands, and its values never appear in a message.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from keyedwm.config.secrets import value_of
from keyedwm.config.validation import SECRET, boolean, choice, wrong
from keyedwm.core.errors import OptionError

CATALOG = "catalog."
ICEBERG_NAMES = ("table", "branch", "createTable")
_NAME = "catalog.name"
_COMMA = re.compile(r",(?![^(]*\))")


class CatalogKind(Enum):
    """The kinds of catalog that PyIceberg knows."""

    REST = "rest"
    SQL = "sql"
    HIVE = "hive"
    GLUE = "glue"
    DYNAMODB = "dynamodb"
    BIGQUERY = "bigquery"


@dataclass(frozen=True, kw_only=True, slots=True)
class IcebergTarget:
    """An Iceberg table, and how to reach its catalog.

    name: with its namespaces, "db.orders". catalog: PyIceberg's properties, `type` among them. branch: the branch to
    which snapshots are added. is_created: the table is created if it is missing. partition_by: terms such as day(time),
    None keeps the table's own partitioning. merge_schema: new columns are added to the table. errors_to: the table of
    rejected messages, in the same catalog. is_shared: other queries write rows of the same input to it.
    """

    name: str
    catalog_name: str
    catalog: Mapping[str, str] = field(repr=False)
    branch: str = "main"
    is_created: bool = False
    partition_by: tuple[str, ...] | None = None
    merge_schema: bool = False
    errors_to: str | None = None
    is_shared: bool = False

    def of_errors(self) -> IcebergTarget | None:
        """Return the target of rejected messages, None if there is none. Queries may share it."""
        return None if self.errors_to is None else replace(self, name=self.errors_to, partition_by=None, is_shared=True)

    @staticmethod
    def parse(settings: Mapping[str, str]) -> IcebergTarget:
        """Check the options, whose names are in lower case; raises OptionError."""
        name = _identifier("table", settings.get("table", ""))
        catalog = {
            option[len(CATALOG) :]: _value(option, value)
            for option, value in settings.items()
            if option.startswith(CATALOG) and option != _NAME
        }
        if "type" not in catalog:
            raise OptionError(
                f"option catalog.type is missing: the kind of catalog that holds the table {name} is expected "
                f"({', '.join(kind.value for kind in CatalogKind)})"
            )
        login = next((option for option in catalog if option == "auth" or option.startswith("auth.")), None)
        if login is not None:  # PyIceberg expects a mapping, and ignores single properties
            raise OptionError(
                f"option {CATALOG}{login} is not supported: use catalog.credential=ID:SECRET or catalog.token"
            )
        kind = choice("catalog.type", catalog["type"], CatalogKind)
        if kind in {CatalogKind.REST, CatalogKind.SQL, CatalogKind.HIVE} and not catalog.get("uri"):
            raise OptionError(
                f"option catalog.uri is missing: the address of the {kind.value} catalog is expected, such as "
                f"{_EXAMPLES[kind]}"
            )
        errors_to = None if "errorsto" not in settings else _identifier("errorsTo", settings["errorsto"])
        if errors_to == name:
            raise wrong("errorsTo", errors_to, "that is the table of the results, another one is expected")
        return IcebergTarget(
            name=name,
            catalog_name=settings.get(_NAME, "default").strip(),
            catalog={**catalog, "type": kind.value},
            branch=_branch(settings.get("branch", "main")),
            is_created=boolean("createTable", settings.get("createtable", "false")),
            partition_by=_terms(settings["partitionby"]) if "partitionby" in settings else None,
            merge_schema=boolean("mergeSchema", settings.get("mergeschema", "false")),
            errors_to=errors_to,
            is_shared=boolean("sharedTable", settings.get("sharedtable", "false")),
        )


_EXAMPLES = {
    CatalogKind.REST: "http://host:8181",
    CatalogKind.SQL: "sqlite:////data/catalog.db",
    CatalogKind.HIVE: "thrift://host:9083",
}


def is_iceberg(option: str) -> bool:
    """Whether an option names an Iceberg table as the target."""
    return option.lower().startswith(CATALOG) or option.lower() in {name.lower() for name in ICEBERG_NAMES}


def _identifier(option: str, value: str) -> str:
    parts = value.strip().split(".")
    if value.strip() == "":
        raise OptionError(f"option {option} is missing: the name of an Iceberg table with its namespace is expected")
    if len(parts) < 2 or not all(parts):
        raise wrong(option, value, "the name of an Iceberg table with its namespace is expected, such as db.orders")
    return value.strip()


def _value(option: str, value: str) -> str:
    """A secret may be given as env:NAME or file:PATH, and so may the address, which can hold a password."""
    return value_of(option, value).decode() if SECRET.search(option) or option == f"{CATALOG}uri" else value


def _branch(value: str) -> str:
    name = value.strip()
    if not name or "." in name:
        raise wrong("branch", value, "the name of a branch is expected, without dots")
    return name


def _terms(value: str) -> tuple[str, ...]:
    terms = tuple(term.strip() for term in _COMMA.split(value))
    if not all(terms):
        raise wrong("partitionBy", value, "a comma list is expected, of columns or of transforms such as day(time)")
    return terms
