"""What a server says during a login, without a network."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from keyedwm.kafka.client.errors import LoginError
from keyedwm.kafka.client.kerberos_login import KerberosLogin
from keyedwm.kafka.client.login import mechanism_of
from tests.kafka.test_outside import kerberos

CONFIG = {"sasl_mechanism": "SCRAM-SHA-256", "sasl_plain_username": "u", "sasl_plain_password": "p"}


def login_answer(server_message: str) -> bytes:
    """What the client says to a server's first message; NONCE in it is the client's."""
    login = mechanism_of(CONFIG, "host")
    nonce = login.auth_bytes().split(b"r=")[1]
    login.receive(server_message.encode().replace(b"NONCE", nonce))
    return login.auth_bytes()


def test_a_message_with_each_attribute_once_is_answered_with_a_proof() -> None:
    assert b",p=" in login_answer("r=NONCEx,s=c2FsdA==,i=4096")


@pytest.mark.parametrize(
    "server_message",
    [
        "r=NONCEx,s=c2FsdA==,i=4096,i=1",
        "r=NONCEx,s=c2FsdA==,i=4096,x=1,i=+1",
        "r=NONCEx,s=c2FsdA==,i=4096,i=4096",
        "r=NONCEx,r=NONCEy,s=c2FsdA==,i=4096",
        "r=NONCEx,s=c2FsdA==,s=,i=4096",
        "r=NONCEx,s=c2FsdA==,i=4096,x=1,x=2",
    ],
)
def test_an_attribute_that_stands_twice_is_refused_before_a_proof_is_made(server_message: str) -> None:
    with pytest.raises(LoginError, match="has an attribute twice"):
        login_answer(server_message)


@pytest.mark.parametrize(
    "count", ["i=+4096", "i= 4096", "i=4_096", "i=\u0664\u0660\u0669\u0666", "i=", "x=4096", "i=40960000000"]
)
def test_iterations_that_are_no_plain_digits_are_refused(count: str) -> None:
    with pytest.raises(LoginError, match="by no whole number of 1 to 10 digits"):
        login_answer(f"r=NONCEx,s=c2FsdA==,{count}")


def test_fewer_iterations_than_the_least_are_refused() -> None:
    with pytest.raises(LoginError, match="asks for 4095 SCRAM iterations"):
        login_answer("r=NONCEx,s=c2FsdA==,i=4095")


class Context:
    """A context of `gssapi` that is complete after the server's first message, and wraps by a word in front."""

    complete = False

    def step(self, token: bytes | None) -> bytes | None:
        self.complete = token is not None
        return None if self.complete else b"ticket"

    def unwrap(self, message: bytes) -> Any:
        return SimpleNamespace(message=message.removeprefix(b"wrapped"))

    def wrap(self, message: bytes, *, encrypt: bool) -> Any:
        assert not encrypt
        return SimpleNamespace(message=b"wrapped" + message)


def kerberos_login(monkeypatch: pytest.MonkeyPatch, **login: str) -> Any:
    library = kerberos()
    library.SecurityContext = lambda **_: Context()
    library.NameType.kerberos_principal = 2
    monkeypatch.setitem(sys.modules, "gssapi", library)
    return mechanism_of({"sasl_mechanism": "GSSAPI", "sasl_kerberos_service_name": KerberosLogin(**login)}, "host")


def test_a_kerberos_login_chooses_no_security_layer_and_ends_with_the_brokers_empty_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    login = kerberos_login(monkeypatch)
    tokens = [login.auth_bytes()]
    for message in (b"accepted", b"wrapped\x07\x00\xff\xff"):
        login.receive(message)
        tokens.append(login.auth_bytes())
    assert tokens == [b"ticket", b"", b"wrapped\x01\x00\x00\x00"]
    assert not login.is_done()
    with pytest.raises(LoginError, match="a message too many"):
        login.receive(b"more")
    login.receive(b"")
    assert login.is_done()
    assert login.is_authenticated()


@pytest.mark.parametrize("offer", [b"", b"\x01", b"\x06\x00\xff\xff", b"\x01\x00\xff\xff\x00"])
def test_a_broker_that_offers_only_security_layers_is_rejected(offer: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    login = kerberos_login(monkeypatch)
    login.receive(b"accepted")
    with pytest.raises(LoginError, match="offers no connection without a security layer"):
        login.receive(b"wrapped" + offer)


def test_a_key_tab_that_cannot_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    absent = str(tmp_path / "orders.keytab")
    with pytest.raises(LoginError, match=rf"the key tab {absent} .* cannot be read on this host: No such file"):
        kerberos_login(monkeypatch, principal="orders", keytab=absent)
