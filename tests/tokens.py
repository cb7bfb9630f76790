"""Token providers for tests, as users write them: unsecured JSON web tokens, which a test broker accepts."""

from __future__ import annotations

import base64
import json
import os
import time

ATTRIBUTE = 7
# Every good token begins so, and this is what a provider says when it fails: to be found nowhere else.
BEGINNING = "eyJhbGciOiAibm9uZSJ9."
SECRET = os.environ.get("PLANTED_TOKEN", "planted-in-token")


def good() -> str:
    """A token of the user `boss` for one hour."""
    return _token(60 * 60)


def expired() -> str:
    """One that nobody may accept any more."""
    return _token(-60)


def failing() -> str:
    """A provider whose identity service is away."""
    raise ConnectionError(f"https://identity/?client_secret={SECRET}")


def empty() -> str:
    """A provider that returns what is no token."""
    return f"{SECRET}\x01"


def _token(for_s: int) -> str:
    now_s = int(time.time())
    claims = {"sub": "boss", "iat": now_s - 120, "exp": now_s + for_s}
    return f"{BEGINNING}{base64.urlsafe_b64encode(json.dumps(claims).encode()).rstrip(b'=').decode()}."
