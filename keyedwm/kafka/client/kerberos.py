"""The login by Kerberos (GSSAPI, RFC 4752), with the package `gssapi` over the machine's Kerberos library.

Rule: each failure is one sentence. It is final, as a rejected login is, unless no KDC was reached.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import kafka.errors as wire_errors
from kafka.net.sasl.abc import SaslMechanism

from keyedwm.kafka.client.errors import LoginError
from keyedwm.kafka.client.kerberos_login import KerberosLogin

_NO_LAYER = 1  # the bit of a login without signed or encrypted messages after it
_OFFER_BYTES = 4  # the server's layers, and the longest message that it accepts
# KRB5_REALM_CANT_RESOLVE, KRB5_KDC_UNREACH and KRB5KDC_ERR_SVC_UNAVAILABLE, as krb5.h has them.
_NO_KDC = frozenset({-1765328164, -1765328228, -1765328355})


class Kerberos(SaslMechanism):
    """One login at one broker; the constructor and `receive` ask the KDC and raise LoginError."""

    def __init__(self, *, host: str, sasl_kerberos_service_name: KerberosLogin, **_others: Any) -> None:
        self._gssapi = _library()
        self._login = sasl_kerberos_service_name
        self._service = f"{self._login.service}@{host}"
        self._has_answer = self._is_done = False
        with self._sentences():
            kinds = self._gssapi.NameType
            name = self._gssapi.Name(self._service, kinds.hostbased_service).canonicalize(
                self._gssapi.MechType.kerberos
            )
            credentials = _credentials(self._gssapi, self._login)
            self._context = self._gssapi.SecurityContext(name=name, creds=credentials, usage="initiate")
            self._token = self._context.step(None) or b""

    def auth_bytes(self) -> bytes:
        """Return the client's next message."""
        return self._token

    def receive(self, auth_bytes: bytes) -> None:
        """Read the server's next message; raises LoginError."""
        with self._sentences():
            if not self._context.complete:
                self._token = self._context.step(auth_bytes) or b""
            elif not self._has_answer:
                answer = _answer(self._context.unwrap(auth_bytes).message)
                self._token = self._context.wrap(answer, encrypt=False).message
                self._has_answer = True
            elif auth_bytes:
                raise LoginError("the broker's GSSAPI login has a message too many")
            else:
                self._is_done = True

    def is_done(self) -> bool:
        """Whether no message is to be sent."""
        return self._is_done

    def is_authenticated(self) -> bool:
        """Whether both sides accepted each other."""
        return self._is_done

    @contextmanager
    def _sentences(self) -> Iterator[None]:
        try:
            yield
        except self._gssapi.exceptions.GSSError as error:
            sentence = f"no Kerberos login for the service {self._service}{_by(self._login)}: {_reason(error)}"
            if _signed(error.min_code) in _NO_KDC:
                raise wire_errors.KafkaConnectionError(sentence) from None
            raise LoginError(f"{sentence}: {_advice(self._login)}, on the driver and on every worker") from None


def _by(login: KerberosLogin) -> str:
    principal = "" if login.principal is None else f" as {login.principal}"
    return principal if login.keytab is None else f"{principal} with the key tab {login.keytab}"


def _advice(login: KerberosLogin) -> str:
    if login.keytab is not None:
        return "check with klist -k that the key tab has the principal's present key"
    return "check the ticket (klist) or KRB5_CLIENT_KTNAME, and kafka.sasl.kerberos.service.name"


def _library() -> Any:
    try:
        import gssapi
    except (ImportError, OSError) as error:  # OSError: the machine has no Kerberos library
        raise LoginError(
            f"kafka.sasl.mechanism=GSSAPI needs the package gssapi, which cannot be imported ({type(error).__name__}): "
            "pip install 'keyedwm[kerberos]', on the driver and on every worker"
        ) from None
    return gssapi


def _credentials(gssapi: Any, login: KerberosLogin) -> Any:
    """Return the credentials that a JAAS entry names, or None; a key tab's ticket stays in this process."""
    if login.principal is None and login.cache is None:
        return None
    name = None if login.principal is None else gssapi.Name(login.principal, gssapi.NameType.kerberos_principal)
    store = {}
    if login.keytab is not None:
        _check_readable(login.keytab)
        store = {"client_keytab": login.keytab, "ccache": f"MEMORY:keyedwm {login.principal} {login.keytab}"}
    if login.cache is not None:
        store = {"ccache": login.cache}
    return gssapi.Credentials(name=name, usage="initiate", store=store or None)


def _check_readable(keytab: str) -> None:
    """Raise LoginError for a key tab that Kerberos would treat as an empty one."""
    try:
        Path(keytab.removeprefix("FILE:")).open("rb").close()
    except OSError as error:
        raise LoginError(
            f"the key tab {keytab} (keyTab of kafka.sasl.jaas.config) cannot be read on this host: {error.strerror}"
        ) from None


def _answer(offer: bytes) -> bytes:
    """Return the answer that chooses no security layer; its accepted length is zero."""
    if len(offer) != _OFFER_BYTES or not offer[0] & _NO_LAYER:
        raise LoginError("the broker's GSSAPI login offers no connection without a security layer")
    return bytes((_NO_LAYER, 0, 0, 0))


def _reason(error: Any) -> str:
    """Return Kerberos's own text of the error, else the text of GSSAPI."""
    texts = error.get_all_statuses(error.min_code, is_maj=False) if error.min_code else []
    return ", ".join(texts or error.get_all_statuses(error.maj_code, is_maj=True))


def _signed(code: int) -> int:
    """Return a code of 32 bits as the signed number of the library's header files."""
    return code - (1 << 32) if code >= 1 << 31 else code
