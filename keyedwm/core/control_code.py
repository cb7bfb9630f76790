"""The code in a control record that proves its author: HMAC-SHA-256 with a secret of writer and readers.

Rule: the code stands at the front of the record's JSON, as its first member `mac`, so that a reader without the secret
reads the record as ever, and one with it checks the bytes before any of them is parsed. It covers the rest of the
value (query, snapshot, channels, keys, watermarks), the format's version, and the topic and partition that the record
was written for: a record that is changed, moved or made up has a wrong code.
"""

from __future__ import annotations

import hmac

_OPEN, _CLOSE = b'{"mac":"', b'",'
_DIGITS = 64
_HEAD = len(_OPEN) + _DIGITS + len(_CLOSE)


def sign(value: bytes, secret: bytes, version: bytes, topic: str, partition: int) -> bytes:
    """Return a record's JSON object with its code in front; `value` must have a member."""
    return _OPEN + _code(value, secret, version, topic, partition) + _CLOSE + value[1:]


def is_genuine(value: bytes | None, secret: bytes, version: bytes | None, topic: str, partition: int) -> bool:
    """Whether a control record carries the code that this secret makes for this place."""
    if value is None or version is None or not value.startswith(_OPEN) or value[_HEAD - len(_CLOSE) : _HEAD] != _CLOSE:
        return False
    found = value[len(_OPEN) : len(_OPEN) + _DIGITS]
    return hmac.compare_digest(found, _code(b"{" + value[_HEAD:], secret, version, topic, partition))


def _code(value: bytes, secret: bytes, version: bytes, topic: str, partition: int) -> bytes:
    # Lengths keep apart what would be the same text together.
    place = topic.encode()
    covered = b"keyedwm.control %d:%b %d:%b %d %b" % (len(version), version, len(place), place, partition, value)
    return hmac.digest(secret, covered, "sha256").hex().encode()
