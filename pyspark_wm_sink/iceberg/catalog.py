"""The catalog of an Iceberg table, and the table in it.

Rule: an error of PyIceberg becomes one of ours here; no secret of `catalog.*` is in it.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote, quote_plus, unquote

from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import (
    AuthorizationExpiredError,
    ForbiddenError,
    NoSuchNamespaceError,
    NoSuchTableError,
    NotInstalledError,
    OAuthError,
    UnauthorizedError,
)
from pyiceberg.io import FileIO
from pyiceberg.table import Table
from pyiceberg.typedef import EMPTY_DICT, Properties
from pyiceberg.utils.config import PYICEBERG_YML

from keyedwm.config.validation import SECRET
from keyedwm.core.errors import KeyedwmError, OptionError, UnavailableError
from pyspark_wm_sink.iceberg.foreign_properties import reject_code
from pyspark_wm_sink.tables.library_errors import one_line

NO_LOGIN = (UnauthorizedError, ForbiddenError, OAuthError, AuthorizationExpiredError)
_MOST_CATALOGS = 8
_LOGIN = re.compile("://(.*)@")
_OF_CONNECTION = re.compile(r"(?:key|signature)=([^;]+)", re.IGNORECASE)  # in a string of NAME=VALUE;
_PARTS = re.compile(r"[:\s]\s*")
_LOGINS = re.compile(r"auth$|header\.", re.IGNORECASE)  # properties that may hold one


class CatalogAccessError(UnavailableError):
    """A catalog was asked without a login that it accepts."""

    advice = "fix your options"


def open_table(name: str, catalog_name: str, catalog: Mapping[str, str]) -> Table | None:
    """Load the table as it is now, None if there is none; raises OptionError or UnavailableError."""
    connected = open_catalog(catalog_name, catalog)
    with explaining(f"the Iceberg table {name} could not be loaded", catalog):
        try:
            return connected.load_table(name)
        except (NoSuchTableError, NoSuchNamespaceError):
            return None


def open_catalog(name: str, properties: Mapping[str, str]) -> Catalog:
    """Connect to a catalog, once in a process; to a file of SQLite that was made again at its path once more."""
    failed = f"the {properties['type']} catalog {name} could not be opened"
    with explaining(failed, properties):
        _check_settings(failed)
        file = _sqlite_file(failed, properties["uri"]) if properties["type"] == "sql" else None
        status = None if file is None else file.stat()
        return _connected(name, tuple(sorted(properties.items())), status and (status.st_dev, status.st_ino))


def _check_settings(failed: str) -> None:
    """Raise OptionError if PyIceberg's settings in the working directory are another user's: they may name code."""
    file = Path(PYICEBERG_YML).absolute()
    if file.exists() and (owner := file.stat().st_uid) not in {0, os.geteuid()}:
        raise OptionError(
            f"{failed}: PyIceberg reads its settings from {file}, which belongs to the user with the id {owner}: start "
            "in another directory, or remove the file"
        )


def _sqlite_file(failed: str, uri: str) -> Path | None:
    """Return the file of SQLite that an address names, None for another database.

    Raises OptionError for an address that names no database, or a missing file, which PyIceberg would create.
    """
    from sqlalchemy.engine import make_url  # here: a catalog of another kind does without it
    from sqlalchemy.exc import ArgumentError

    try:
        address = make_url(uri)
        address.get_dialect()
    except ArgumentError:
        address = None
    if address is None or (address.get_backend_name() == "sqlite" and address.host):
        raise OptionError(
            f"{failed}: option catalog.uri is no address of a database: one such as sqlite:////data/catalog.db, with "
            "the whole path behind three slashes, or postgresql+psycopg2://host/database is expected"
        )
    file = address.database or ":memory:"
    if address.get_backend_name() != "sqlite" or file.startswith((":memory:", "file:")):
        return None
    if not Path(file).exists():
        raise OptionError(
            f"{failed}: the SQLite file that option catalog.uri names is not there: correct the address, or make the "
            "catalog and the table's namespace with PyIceberg first"
        )
    return Path(file)


@functools.lru_cache(maxsize=_MOST_CATALOGS)
def _connected(name: str, properties: tuple[tuple[str, str], ...], file: tuple[int, int] | None) -> Catalog:  # noqa: ARG001
    """file: the identity of SQLite's file; no other file has it while a connection keeps the file open."""
    options = dict(properties)
    if options["type"] == "rest":
        from pyspark_wm_sink.iceberg.rest_catalog import LimitedRestCatalog  # here: others need no HTTP

        catalog: Catalog = LimitedRestCatalog(name, **options)
    else:
        catalog = load_catalog(name, **options)
    load_file_io = catalog._load_file_io  # noqa: SLF001 - PyIceberg opens the store of each table by it

    def load_checked(properties: Properties = EMPTY_DICT, location: str | None = None) -> FileIO:
        reject_code(f"the Iceberg table at {location}", properties, catalog.properties)
        return load_file_io(properties, location)

    catalog._load_file_io = load_checked  # noqa: SLF001
    return catalog


@contextmanager
def explaining(failed: str, properties: Mapping[str, str]) -> Iterator[None]:
    """Turn an error of PyIceberg, or of a library under it, into one that names the failure and the cure."""
    try:
        yield
    except KeyedwmError:
        raise
    except Exception as error:  # noqa: BLE001 - each kind of catalog and store brings the errors of its own library
        raise _explained(failed, error, properties) from None  # whose text could hold a login


def without_secrets(text: str, properties: Mapping[str, str]) -> str:
    """Return a text without the secrets among the properties of a catalog, in any form in which it repeats them."""
    secrets = set(_secrets(properties))
    spelled = secrets | {of(secret) for secret in secrets for of in (quote, quote_plus, unquote)}
    for secret in sorted(filter(None, spelled), key=len, reverse=True):
        text = text.replace(secret, "***")
    return text


def _secrets(properties: Mapping[str, str]) -> Iterator[str]:
    """Yield whole values, and parts of addresses: the password, cut where a library may cut it, and parameters."""
    for name, value in properties.items():
        if SECRET.search(name) or _LOGINS.match(name):
            yield value.strip()
            yield from _PARTS.split(value.strip(), maxsplit=1)[1:]  # of ID:SECRET or "Bearer SECRET"
            yield from _OF_CONNECTION.findall(value)
        for login in _LOGIN.findall(value):
            yield from re.split("[:/@]", login)[1:]
        for parameter in value.partition("?")[2].split("&"):
            key, _, of_key = parameter.partition("=")
            if SECRET.search(key):
                yield of_key


def _explained(failed: str, error: Exception, properties: Mapping[str, str]) -> KeyedwmError:
    reason = without_secrets(one_line(error), properties)
    if isinstance(error, NotInstalledError | ModuleNotFoundError):
        return OptionError(f"{failed}: {reason}; install what this kind of catalog or store needs")
    if isinstance(error, NO_LOGIN):
        return CatalogAccessError(
            f"{failed}, because it got no login that it accepts ({reason}): give options catalog.NAME"
        )
    if isinstance(error, ValueError) and not isinstance(error, UnicodeError):
        return OptionError(f"{failed}: {reason}")
    return UnavailableError(f"{failed}: {reason}")
