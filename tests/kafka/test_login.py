"""What a server says during a login, without a network."""

from __future__ import annotations

import pytest

from keyedwm.kafka.client.errors import LoginError
from keyedwm.kafka.client.login import mechanism_of

CONFIG = {"sasl_mechanism": "SCRAM-SHA-256", "sasl_plain_username": "u", "sasl_plain_password": "p"}


def answered(said: str) -> bytes:
    """What the client says to a server's first message; NONCE in it is the client's."""
    login = mechanism_of(CONFIG, "host")
    nonce = login.auth_bytes().split(b"r=")[1]
    login.receive(said.encode().replace(b"NONCE", nonce))
    return login.auth_bytes()


def test_a_message_with_each_attribute_once_is_answered_with_a_proof() -> None:
    assert b",p=" in answered("r=NONCEx,s=c2FsdA==,i=4096")


@pytest.mark.parametrize(
    "said",
    [
        "r=NONCEx,s=c2FsdA==,i=4096,i=1",
        "r=NONCEx,s=c2FsdA==,i=4096,x=1,i=+1",
        "r=NONCEx,s=c2FsdA==,i=4096,i=4096",
        "r=NONCEx,r=NONCEy,s=c2FsdA==,i=4096",
        "r=NONCEx,s=c2FsdA==,s=,i=4096",
        "r=NONCEx,s=c2FsdA==,i=4096,x=1,x=2",
    ],
)
def test_an_attribute_that_stands_twice_is_refused_before_a_proof_is_made(said: str) -> None:
    with pytest.raises(LoginError, match="has an attribute twice"):
        answered(said)


@pytest.mark.parametrize(
    "count", ["i=+4096", "i= 4096", "i=4_096", "i=\u0664\u0660\u0669\u0666", "i=", "x=4096", "i=40960000000"]
)
def test_iterations_that_are_no_plain_digits_are_refused(count: str) -> None:
    with pytest.raises(LoginError, match="by no whole number of 1 to 10 digits"):
        answered(f"r=NONCEx,s=c2FsdA==,{count}")


def test_fewer_iterations_than_the_least_are_refused() -> None:
    with pytest.raises(LoginError, match="asks for 4095 SCRAM iterations"):
        answered("r=NONCEx,s=c2FsdA==,i=4095")
