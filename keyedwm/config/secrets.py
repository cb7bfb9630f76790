"""Secrets of options: given in place, as the name of an environment variable, or as the path of a file.

Rule: the driver reads a secret once, when it checks the options. No message and no repr contains the secret. An address
with a secret is rejected, since messages show the addresses of ledgers and tables.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from keyedwm.config.validation import SECRET
from keyedwm.core.errors import OptionError

LEAST_BYTES = 16
REFERENCES = _VARIABLE, _FILE = "env:", "file:"
_MOST_BYTES = 4_096
_MOST_FILE_BYTES = 64 << 10
_NO_SECRET = re.compile(r"\.(?:provider|url|location)$", re.IGNORECASE)  # where a token comes from, for example
# Settings of Spark with a secret's name and no secret: a file's path, a class, true or false.
_ABOUT_SECRETS = re.compile(r"file$|class$", re.IGNORECASE)
_SWITCHES = frozenset({"true", "false"})
# NAME:PASSWORD@, where the colon begins no port. A password may have slashes, as keys of stores do.
_LOGIN = re.compile(r"(?!file:)[A-Za-z][A-Za-z0-9+.-]*:/*[^/@:]*:(?!\d+(?:/|$))[^@]*@")
_PARAMETER = re.compile(r"[?&]([^=&]+)=")
MASK = "***"
# Servers choose these texts, so neither pattern looks at a run of characters once from each of them.
_LOGIN_WITHIN = re.compile(r"(?<=[A-Za-z0-9+.-])(:/+)[^/@\s:]*:[^@\s]*@")
# NAME=value and "NAME": "value", but not a value that only names the place of a secret.
_SETTING = re.compile(r"""(?<![\w.-])([\w.-]+)(=|["']\s*:\s*)(?!env:|file:)("[^"]*"|'[^']*'|[^\s,;&)}\]]+)""")
_MOST_CHARACTERS = 10_000


def secret_of(option: str, value: str) -> bytes:
    """Return the secret that an option gives. Raises OptionError as `value_of` does, and if its length is wrong."""
    secret = value_of(option, value)
    if not LEAST_BYTES <= len(secret) <= _MOST_BYTES:
        raise OptionError(
            f"option {option}: the secret has {len(secret)} bytes, {LEAST_BYTES} to {_MOST_BYTES} are expected, "
            "in place, as env:NAME or as file:PATH"
        )
    return secret


def value_of(option: str, value: str) -> bytes:
    """Return the value, or the content of the variable (`env:NAME`) or file (`file:PATH`) that it names, stripped.

    Raises OptionError if there is no such variable, or the file cannot be read or is too large.
    """
    value = value.strip()
    if value.startswith(_VARIABLE):
        name = value.removeprefix(_VARIABLE)
        variable = os.environ.get(name)
        if variable is None:
            raise OptionError(
                f"option {option}: there is no environment variable {name!r} here: set it before the start"
            )
        return variable.strip().encode()
    if value.startswith(_FILE):
        path = Path(value.removeprefix(_FILE))
        try:
            with path.open("rb") as file:
                found_bytes = file.read(_MOST_FILE_BYTES + 1)
        except OSError as error:
            raise OptionError(f"option {option}: {path} cannot be read here: {error.strerror}") from error
        if len(found_bytes) > _MOST_FILE_BYTES:
            raise OptionError(f"option {option}: {path} has more than {_MOST_FILE_BYTES} bytes: is it the right file?")
        return found_bytes.strip()
    return value.encode()


def refuse_login_in(subject: str, address: str) -> None:
    """Raise OptionError if an address contains a password, a key or a signature; the message does not show it."""
    if _LOGIN.match(address) or any(SECRET.search(name) for name in _PARAMETER.findall(address)):
        raise OptionError(
            f"{subject}: the address holds a login, which messages would show: remove it there, "
            "and give the login by the environment, the machine's role or the store's own options"
        )


def without_logins(text: str) -> str:
    """Return the beginning of a text; logins of addresses, and values behind secrets' names, are masked."""
    return _SETTING.sub(_hidden_value, _LOGIN_WITHIN.sub(rf"\1{MASK}@", text[:_MOST_CHARACTERS]))


def _hidden_value(setting: re.Match[str]) -> str:
    return (
        f"{setting[1]}{setting[2]}{MASK}"
        if SECRET.search(setting[1]) and not _NO_SECRET.search(setting[1])
        else setting[0]
    )


def pairs_of(flag: str, arguments: Sequence[str], example: str) -> dict[str, str]:
    """Read NAME=VALUE arguments of a command line; a secret must be NAME=env:VARIABLE or NAME=file:PATH.

    Raises OptionError, which names the flag and shows no value.
    """
    return {name: _checked_pair(flag, name, value) for name, value in _split(flag, arguments, example)}


def settings_of(flag: str, arguments: Sequence[str], example: str) -> dict[str, str]:
    """Read Spark's settings of a command line: secrets as `pairs_of` does, other values (`file:/x`, too) as they are.

    Raises OptionError, which names the flag and shows no value.
    """
    return {
        name: _checked_pair(flag, name, value)
        if SECRET.search(name) and not _ABOUT_SECRETS.search(name) and value.strip().lower() not in _SWITCHES
        else value
        for name, value in _split(flag, arguments, example)
    }


def _split(flag: str, arguments: Sequence[str], example: str) -> list[tuple[str, str]]:
    pairs = [text.partition("=") for text in arguments]
    if any(not separator or not name for name, separator, _ in pairs):
        raise OptionError(f"{flag}: NAME=VALUE is expected, for example {example}")
    for name, _, value in pairs:
        if _LOGIN_WITHIN.search(value):
            raise _visible(flag, name)
    return [(name, value) for name, _, value in pairs]


def _visible(flag: str, name: str) -> OptionError:
    """Build the error for a secret, or an address with a login, that stands on the command line."""
    return OptionError(
        f"{flag}: the value of {name} would stand in the list of processes and in the shell's history: "
        f"give {name}=env:VARIABLE or {name}=file:PATH"
    )


def _checked_pair(flag: str, name: str, value: str) -> str:
    if _NO_SECRET.search(name):
        return value
    if SECRET.search(name) and not value.strip().startswith(REFERENCES):
        raise _visible(flag, name)
    try:
        return value_of(f"{flag} {name}", value).decode()
    except UnicodeDecodeError:
        raise OptionError(f"{flag}: the content that {name} names is no UTF-8 text") from None
