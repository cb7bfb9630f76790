"""A broker with TLS, logins and ACLs, and the properties of a client that may use it."""

from __future__ import annotations

import secrets
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from kafka.admin import ACL, KafkaAdminClient

from keyedwm.testing.local import LocalBroker, local_broker
from tests.tools import wait_until

PASSWORD = secrets.token_hex(8)
KEY_PASSWORD = secrets.token_hex(8)
_LOGIN = "org.apache.kafka.common.security.{module}LoginModule required {settings};"


def login(module: str, **settings: str) -> str:
    """One JAAS entry; module: `plain.Plain`, `scram.Scram` or `oauthbearer.OAuthBearer`."""
    return _LOGIN.format(module=module, settings=" ".join(f'{name}="{value}"' for name, value in settings.items()))


class Secured:
    """The broker; `boss` may do everything, other users what a test grants. Certificates lie in `home`."""

    def __init__(self, broker: LocalBroker, home: Path) -> None:
        self.broker, self.home = broker, home
        self.bootstrap = broker.bootstrap

    def options(self, user: str = "boss", password: str = PASSWORD, **more: str) -> dict[str, str]:
        """A client's properties, without `kafka.`; further ones by name, written with underscores."""
        return {
            "bootstrap.servers": self.bootstrap,
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "PLAIN",
            "sasl.jaas.config": login("plain.Plain", username=user, password=password),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.home / "cert.pem"),
        } | {name.replace("_", "."): value for name, value in more.items()}


@contextmanager
def secured_broker(home: Path) -> Iterator[Secured]:
    """Run it; home: an empty directory for its certificates."""
    certificates(home)
    users = {"username": "boss", "password": PASSWORD, "user_boss": PASSWORD, "user_guest": PASSWORD}
    extra = {
        "listener.security.protocol.map": "PLAINTEXT:SASL_SSL,CONTROLLER:PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.plaintext.plain.sasl.jaas.config": login("plain.Plain", **users),
        "listener.name.plaintext.scram-sha-256.sasl.jaas.config": login("scram.Scram"),
        "listener.name.plaintext.scram-sha-512.sasl.jaas.config": login("scram.Scram"),
        "listener.name.plaintext.oauthbearer.sasl.jaas.config": login(
            "oauthbearer.OAuthBearer", unsecuredLoginStringClaim_sub="boss"
        ),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(home / "both.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(home / "cert.pem"),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:boss;User:ANONYMOUS",
    }
    with local_broker(extra=extra) as running:
        yield Secured(running, home)


def allow(client: KafkaAdminClient, acls: Sequence[ACL]) -> None:
    """Give rights; returns when the broker has them, which takes them from its controller a moment later."""
    client.create_acls(acls)
    for acl in acls:
        wait_until(lambda acl=acl: client.describe_acls(acl)[0], f"the broker has {acl}")


def disallow(client: KafkaAdminClient, acls: Sequence[ACL]) -> None:
    """Take rights away; returns when the broker has let go of them."""
    client.delete_acls(acls)
    for acl in acls:
        wait_until(lambda acl=acl: not client.describe_acls(acl)[0], f"the broker has no {acl}")


def certificates(home: Path) -> None:
    """Make a key and a self-signed certificate for 127.0.0.1: key.pem, cert.pem, both.pem, and locked.pem.

    locked.pem holds both, its key encrypted with KEY_PASSWORD.
    """
    openssl("req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=broker -addext subjectAltName=IP:127.0.0.1 "
            "-keyout key.pem -out cert.pem", home)  # fmt: skip
    openssl(f"pkey -in key.pem -aes256 -passout pass:{KEY_PASSWORD} -out locked-key.pem", home)
    certificate = (home / "cert.pem").read_text()
    (home / "both.pem").write_text((home / "key.pem").read_text() + certificate)
    (home / "locked.pem").write_text((home / "locked-key.pem").read_text() + certificate)


def openssl(command: str, home: Path) -> None:
    """Run one openssl command in `home`."""
    subprocess.run(["openssl", *command.split()], cwd=home, check=True, capture_output=True)
