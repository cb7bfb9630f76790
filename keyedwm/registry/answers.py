"""What an answer of a registry means: a value, an absence, a fault of the registry, or a rejected login.

Rule: only the registry itself can report an absence. A 404 of a proxy, a page for people, or an answer of another
service is a fault. After a fault that may pass the question is asked again. An error never repeats an answer's logins.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from keyedwm.config.secrets import MASK, without_logins
from keyedwm.core.errors import InputError, KeyedwmError
from keyedwm.core.schemas import SchemaKind
from keyedwm.core.text import MOST_SHOWN, one_line, shortened
from keyedwm.registry.http import MOST_BYTES, Answer

# Ids are signed 32-bit integers in every registry: four bytes with a higher number are no id.
HIGHEST_ID = 2**31 - 1
_MOST_WORDS = 300
_NO_SCHEMA = "its answer is no schema: is it a schema registry?"
_NOT_FOUND = {40401: "subject", 40402: "version", 40403: "schema", 40405: "subject", 40406: "subject", 40408: "rule"}
_TOO_MANY = 429
# 409: incompatible with earlier versions. 422: no schema, or none that the registry accepts.
_REFUSED = (409, 422)


class RegistryAccessError(KeyedwmError):
    """The registry does not accept the login, denies an operation, or shows a certificate that is not trusted."""

    advice = "fix the schemaRegistry.* options, or grant the rights"


class FaultError(Exception):
    """An answer without a value; the message describes the answer. again: whether asking again may help."""

    def __init__(self, message: str, *, again: bool = True) -> None:
        super().__init__(message)
        self.again = again


class AbsentError(Exception):
    """The registry reports that an object does not exist. object_kind: the object in messages, such as `schema`."""

    def __init__(self, object_kind: str) -> None:
        super().__init__(object_kind)
        self.object_kind = object_kind


@dataclass(frozen=True, slots=True)
class SchemaAnswer:
    """A schema in a registry's answer. references: (name, subject, version) of the schemas that it refers to."""

    kind: SchemaKind
    text: str
    references: tuple[tuple[str, str, int], ...]


def value_of_answer(answer: Answer, option: str) -> Any:
    """Return the JSON value of an answer.

    option: the option of the login, for messages. Raises AbsentError, FaultError, RegistryAccessError, and InputError
    for a schema that the registry does not accept.
    """
    status = answer.status
    if status == 401:
        raise RegistryAccessError(f"the schema registry rejected the login (401): check {option}")
    if status == 403:
        raise RegistryAccessError(f"the schema registry denies the operation to this login (403): check {option}")
    if 300 <= status < 400:
        to = f" to {_excerpt(answer.location, answer)}" if answer.location else ""
        raise FaultError(f"it redirects{to} ({status}), which is not followed: give the address itself", again=False)
    if len(answer.body) > MOST_BYTES:
        raise FaultError(f"its answer has more than {MOST_BYTES} bytes: is it a schema registry?", again=False)
    value = _json(answer)
    message, code = _message(value, answer), _code(value)
    if status == 404:
        if code in _NOT_FOUND:
            raise AbsentError(_NOT_FOUND[code])
        raise FaultError(
            f"it has no such path (404{_kind(answer)}): does schemaRegistry.url need one, such as /apis/ccompat/v7?",
            again=False,
        )
    if status in _REFUSED and message:
        raise InputError(f"the schema registry does not accept the schema ({status}): {message}")
    if status >= 400 or value is None:
        again = status >= 500 or status == _TOO_MANY
        raise FaultError(f"it answers {status}{_kind(answer)}{f': {message}' if message else ''}", again=again)
    return value


def schema_of(value: Any) -> SchemaAnswer:
    """Read `{"schema": ..., "schemaType": ..., "references": [...]}`; raises FaultError for anything else.

    Raises AbsentError for a schema of a language that Confluent's API does not have.
    """
    kinds = {kind.value: kind for kind in SchemaKind}
    try:
        text, kind = value["schema"], value.get("schemaType") or SchemaKind.AVRO.value
        references = tuple(
            (_unicode(one["name"]), _unicode(one["subject"]), number_of(one, "version"))
            for one in value.get("references") or ()
        )
    except (KeyError, TypeError, ValueError, AttributeError):
        raise FaultError(_NO_SCHEMA, again=False) from None
    if not isinstance(text, str) or not isinstance(kind, str):
        raise FaultError(_NO_SCHEMA, again=False)
    if kind not in kinds:
        raise AbsentError(f"schema of a language other than {', '.join(kinds)}")
    return SchemaAnswer(kinds[kind], text, references)


def number_of(value: Any, name: str) -> int:
    """Return an id or a version in an answer; raises FaultError if the answer has none, or one out of range."""
    number = value.get(name) if isinstance(value, Mapping) else None
    if type(number) is not int or not 0 <= number <= HIGHEST_ID:
        raise FaultError(f"its answer has no {name}: is it a schema registry?", again=False)
    return number


def _unicode(value: Any) -> str:
    """Return a text that UTF-8 can write; raises ValueError for half of a surrogate pair."""
    return str(value).encode().decode()


def _json(answer: Answer) -> Any:
    """The value of the body; None if the body is no JSON, such as a page for people."""
    try:
        return json.loads(answer.body)
    except (ValueError, RecursionError):
        return None


def _code(value: Any) -> int | None:
    code = value.get("error_code") if isinstance(value, Mapping) else None
    return code if isinstance(code, int) else None


def _message(value: Any, answer: Answer) -> str:
    """The registry's message about a fault, on one line, without logins."""
    message = value.get("message") if isinstance(value, Mapping) else None
    return _excerpt(message, answer, _MOST_WORDS) if isinstance(message, str) else ""


def _kind(answer: Answer) -> str:
    """Describe an answer that is no JSON; empty for JSON."""
    if _json(answer) is not None:
        return ""
    return f", {_excerpt(answer.media, answer)} in place of JSON" if answer.media else ", no JSON"


def _excerpt(text: str, answer: Answer, most: int = MOST_SHOWN) -> str:
    """Return a text of an answer on one line, without logins: those of addresses, and the one of the question."""
    for secret in answer.secrets:
        text = text.replace(secret, MASK)
    return one_line(shortened(" ".join(without_logins(text).split()), most))
