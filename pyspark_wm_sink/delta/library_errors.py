"""The meaning of deltalake's errors.

Rule: deltalake has few kinds of error, so the meaning of an error is read from its text.
"""

from __future__ import annotations

import re

from keyedwm.config.validation import wrong
from keyedwm.core.errors import KeyedwmError, UnavailableError
from keyedwm.core.text import nearest
from pyspark_wm_sink.tables.library_errors import LOGIN, one_line

_NO_LOGIN = re.compile(
    r"credential|token request|access ?denied|\b40[13] (?:forbidden|unauthorized)|invalidaccesskey|"
    r"signaturedoesnotmatch",
    re.IGNORECASE,
)
_SCHEMES = re.compile(r"Unknown scheme: (\S+)\. Known schemes: (\S+)")
# The settings that a store needs, by the scheme of its address.
_LOGINS = {
    "s3": "aws_access_key_id, aws_secret_access_key and aws_region",
    "gs": "google_service_account",
    "az": "azure_storage_account_name and azure_storage_account_key",
}
_FAMILIES = {"s3a": "s3", "gcs": "gs", "abfs": "az", "abfss": "az", "azure": "az", "adl": "az"}

_NO_SERVER = re.compile(r"No NameNode hosts found|No fs\.defaultFS|No viewfs")
_NO_ADDRESS = re.compile("failed to lookup address", re.IGNORECASE)
_NO_LISTENER = re.compile("connection refused", re.IGNORECASE)
_REQUEST = re.compile(r"performing [A-Z]+ https?://([^/\s]+)")
_UNREAD = re.compile(r"Feature '([^']+)' is not supported")
_CATALOG = "Max catalog version"
_REFUSED = re.compile(r"Unsupported table features|append.?only", re.IGNORECASE)


class StoreAccessError(UnavailableError):
    """An object store was asked without a login that it accepts."""

    advice = "fix your options, or retry if this machine's role gives the login"


class NoAnswerError(UnavailableError):
    """Nothing answers at the address of a store."""

    advice = "fix your options if the address is wrong, retry if its server is away"


def access_error(path: str, error: BaseException) -> KeyedwmError | None:
    """Return the error to raise if an address could not be opened; None for another cause.

    OptionError for a scheme that deltalake does not know, or an address without a server; StoreAccessError for a login
    that is missing or wrong; NoAnswerError if no server has the address's name, or nothing listens at its port.
    """
    text = str(error)
    if problem := _SCHEMES.search(text):
        scheme, known = problem[1], problem[2].split(",")
        near = nearest(scheme, [one for one in known if "+" not in one], similarity=0.5)
        hint = f"; did you mean {near}?" if near else ""
        return wrong("path", path, f"a directory, or an address that deltalake knows, is expected{hint}")
    scheme, separator, _ = path.partition("://")
    if not separator:
        return None
    if _NO_SERVER.search(text):
        return wrong("path", path, f"an address that names its server is expected ({one_line(error)})")
    has_no_address = _NO_ADDRESS.search(text) is not None
    if has_no_address or _NO_LISTENER.search(text):
        match = _REQUEST.search(LOGIN.sub("://", text))
        server = (path.partition("://")[2] if match is None else match[1]).partition("/")[0].rpartition("@")[2]
        why = "no machine has this name" if has_no_address else "nothing listens at its port"
        return NoAnswerError(f"the Delta table {path} could not be opened, because nothing answers at {server}: {why}")
    if not _NO_LOGIN.search(text):
        return None
    names = _LOGINS.get(_FAMILIES.get(scheme, scheme), "the settings of its login")
    return StoreAccessError(
        f"{path} could not be opened, because its store got no login that it accepts ({one_line(error)}): "
        f"give {names} as options storage.NAME (keyedwm inspect: --storage NAME=VALUE) or as environment variables in "
        f"capitals"
    )


def unread_feature(error: BaseException) -> str | None:
    """Return the table feature that prevents deltalake from opening the table."""
    match = _UNREAD.search(str(error))
    if match is not None:
        return match[1]
    return "catalogManaged" if _CATALOG in str(error) else None


def is_refusal(error: BaseException) -> bool:
    """Whether deltalake rejected a commit because of the table itself, so that a repetition would be rejected, too."""
    return _REFUSED.search(str(error)) is not None
