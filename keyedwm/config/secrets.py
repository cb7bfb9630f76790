"""A secret that an option gives: in place, as the name of an environment variable, or as the path of a file.

Rule: it is read once, where the options are checked: on the driver. No message contains the secret, and no repr may. An
address contains none: messages show it wherever they name the ledger or the table.
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
_NO_SECRET = re.compile(r"\.(?:provider|url|location)$", re.IGNORECASE)  # of a token, say: where it comes from
# Settings of Spark that are about a secret and do not contain it: a file's path, a class, a switch.
_ABOUT_SECRETS = re.compile(r"file$|class$", re.IGNORECASE)
_SWITCHES = frozenset({"true", "false"})
# A colon before an @ that begins no port: keys of stores may hold slashes.
_LOGIN = re.compile(r"(?!file:)[A-Za-z][A-Za-z0-9+.-]*:/*[^/@:]*:(?!\d+(?:/|$))[^@]*@")
_PARAMETER = re.compile(r"[?&]([^=&]+)=")
_MASK = "***"
_LOGIN_WITHIN = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*:/+)[^/@\s]*:[^@\s]*@")
# NAME=value and "NAME": "value"; a value that says where the secret is stays.
_SETTING = re.compile(r"""([\w.-]+)(=|["']\s*:\s*)(?!env:|file:)("[^"]*"|'[^']*'|[^\s,;&)}\]]+)""")


def secret_of(option: str, value: str) -> bytes:
    """Return the secret that an option gives; raises OptionError as `value_of` does, and for one of a wrong length."""
    secret = value_of(option, value)
    if not LEAST_BYTES <= len(secret) <= _MOST_BYTES:
        raise OptionError(
            f"option {option}: the secret has {len(secret)} bytes, {LEAST_BYTES} to {_MOST_BYTES} are expected, "
            "in place, as env:NAME or as file:PATH"
        )
    return secret


def value_of(option: str, value: str) -> bytes:
    """Return the value itself, or what `env:NAME` or `file:PATH` leads to; white space around it is cut.

    Raises OptionError naming the option, and the variable or file that has none.
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
    """Raise OptionError for an address with a password, a key or a signature in it; the error does not repeat it."""
    if _LOGIN.match(address) or any(SECRET.search(name) for name in _PARAMETER.findall(address)):
        raise OptionError(
            f"{subject}: the address holds a login, which would be shown wherever the address is: leave it out there, "
            "and give it by the environment, the machine's role or the store's own options"
        )


def without_logins(text: str) -> str:
    """Return a text without the logins of its addresses, and without the values of secrets' names."""
    return _SETTING.sub(_hidden_value, _LOGIN_WITHIN.sub(rf"\1{_MASK}@", text))


def _hidden_value(setting: re.Match[str]) -> str:
    return (
        f"{setting[1]}{setting[2]}{_MASK}"
        if SECRET.search(setting[1]) and not _NO_SECRET.search(setting[1])
        else setting[0]
    )


def pairs_of(flag: str, arguments: Sequence[str], example: str) -> dict[str, str]:
    """Read NAME=VALUE of a command line; secrets as NAME=env:VARIABLE or NAME=file:PATH, never in place.

    Raises OptionError, which names the flag and shows no value.
    """
    return {name: _checked_pair(flag, name, value) for name, value in _split(flag, arguments, example)}


def settings_of(flag: str, arguments: Sequence[str], example: str) -> dict[str, str]:
    """Read Spark's settings on a command line as `pairs_of` does; what is no secret stays as it is, `file:/x` too.

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
    return [(name, value) for name, _, value in pairs]


def _checked_pair(flag: str, name: str, value: str) -> str:
    if _NO_SECRET.search(name):
        return value
    if SECRET.search(name) and not value.strip().startswith(REFERENCES):
        raise OptionError(
            f"{flag}: the value of {name} would stand in the list of processes and in the shell's history: "
            f"give {name}=env:VARIABLE or {name}=file:PATH"
        )
    try:
        return value_of(f"{flag} {name}", value).decode()
    except UnicodeDecodeError:
        raise OptionError(f"{flag}: what {name} names is no text") from None
