"""Trust and key stores: PEM files and PKCS #12 files, as Java's `ssl.truststore.*` and `ssl.keystore.*` name them.

Rule: the first bytes of a file must fit its type. The types PKCS12 and JKS both mean a PKCS #12 file, since Java opens
such a file under either type; a file in the old JKS format is rejected. A private key is never written to a disk
unencrypted, and no message holds a password.
"""

from __future__ import annotations

import re
import secrets
import ssl
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING

from keyedwm.config.validation import choice, wrong
from keyedwm.core.errors import OptionError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.serialization.pkcs12 import PKCS12KeyAndCertificates

_JKS = (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce")  # JKS and JCEKS
_DER = b"\x30"
_PLACE = re.compile(r"^\[\w+\] | \(_ssl\.c:\d+\)$")  # a place in OpenSSL's or Python's own source
TRUSTED = "certificates of authorities in PEM are expected"
_KEY_HINT = (
    "a private key in PEM, opened by {prefix}ssl.key.password if it is encrypted, is expected, then its own "
    "certificate, then those of the authorities in between"
)


class _Kind(Enum):
    PEM = "PEM"
    PKCS12 = "PKCS12"
    JKS = "JKS"


@dataclass(frozen=True, slots=True, kw_only=True)
class Keystore:
    """A store's file. side: `truststore` or `keystore`. password: the store's, or that of the key in a PEM file.

    prefix: the part of the options' names before `ssl.`, with its dot; for errors.
    """

    prefix: str
    side: str
    path: str
    pem: bool
    password: str | None = field(default=None, repr=False)

    @classmethod
    def from_properties(cls, properties: Mapping[str, str], side: str, prefix: str) -> Keystore | None:
        """Read `ssl.<side>.*`; None without a location. Raises OptionError for a missing file or a wrong type."""
        path = properties.get(f"ssl.{side}.location")
        if path is None:
            return None
        location = f"{prefix}ssl.{side}.location"
        if not Path(path).is_file():
            raise wrong(location, path, "a readable file is expected")
        kind = choice(f"{prefix}ssl.{side}.type", properties.get(f"ssl.{side}.type", "JKS"), _Kind)
        start = _first_bytes(location, path, 4)
        if start in _JKS:
            raise wrong(
                location, path,
                "it is in Java's old format; convert it: keytool -importkeystore -srckeystore OLD -destkeystore NEW "
                "-deststoretype PKCS12",
            )  # fmt: skip
        pem = kind is _Kind.PEM
        if pem and start[:1] == _DER:
            raise wrong(
                f"{prefix}ssl.{side}.type", kind.value, f"{path} is no PEM file, but binary: PKCS12, or DER to convert"
            )
        if not pem and start[:1] != _DER:
            default = "" if f"ssl.{side}.type" in properties else "; JKS is the default"
            advice = f"{path} is no PKCS #12 file: set PEM for a PEM file{default}"
            raise wrong(f"{prefix}ssl.{side}.type", kind.value, advice)
        key_password = properties.get("ssl.key.password") if side == "keystore" else None
        password = key_password if pem else properties.get(f"ssl.{side}.password")
        return cls(prefix=prefix, side=side, path=path, pem=pem, password=password)

    @property
    def location(self) -> str:
        """The option that names the file."""
        return f"{self.prefix}ssl.{self.side}.location"

    def trust(self, context: ssl.SSLContext) -> None:
        """Let a context trust the store's certificates; raises OptionError."""
        if not self.pem:
            from cryptography.hazmat.primitives.serialization import Encoding

            opened = self._opened()
            certificates = [entry.certificate for entry in opened.additional_certs]
            if not certificates:
                raise wrong(self.location, self.path, "it holds no trusted certificates")
            context.load_verify_locations(cadata=b"".join(c.public_bytes(Encoding.DER) for c in certificates))
            return
        try:
            context.load_verify_locations(self.path)
        except (OSError, ValueError) as error:
            raise wrong(self.location, self.path, f"{refusal(error)}{TRUSTED}") from error

    def identify(self, context: ssl.SSLContext) -> None:
        """Let a context show the store's certificate; raises OptionError."""
        if self.pem:
            self._show(context, self.path, self.password or "")
            return
        from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, PrivateFormat

        opened = self._opened()
        if opened.key is None or opened.cert is None:
            raise wrong(self.location, self.path, "it holds no private key with its certificate")
        # Python's ssl reads keys from files only. This file is encrypted, with a password that no other call knows.
        password = secrets.token_hex(32)
        key = opened.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(password.encode()))
        chain = [opened.cert, *opened.additional_certs]
        with tempfile.NamedTemporaryFile(prefix="keyedwm-key-") as file:
            file.write(key + b"".join(entry.certificate.public_bytes(Encoding.PEM) for entry in chain))
            file.flush()
            self._show(context, file.name, password)

    def _show(self, context: ssl.SSLContext, path: str, password: str) -> None:
        """Load the key and its certificates from a PEM file: the store's own file, or a copy of a PKCS #12 store."""
        try:
            context.load_cert_chain(path, password=password)
        except (OSError, ValueError) as error:
            raise wrong(self.location, self.path, f"{refusal(error)}{_KEY_HINT.format(prefix=self.prefix)}") from error

    def _opened(self) -> PKCS12KeyAndCertificates:
        from cryptography.hazmat.primitives.serialization.pkcs12 import load_pkcs12

        password = None if self.password is None else self.password.encode()
        try:
            return load_pkcs12(Path(self.path).read_bytes(), password)
        except (OSError, ValueError) as error:
            raise OptionError(
                f"option {self.location}: {self.path!r} cannot be opened as a PKCS #12 file "
                f"with {self.prefix}ssl.{self.side}.password: {error}"
            ) from error


def refusal(error: OSError | ValueError) -> str:
    """Return why OpenSSL cannot load a file, as the first half of a sentence, without the file's content."""
    reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or type(error).__name__
    return f"it cannot be loaded ({_PLACE.sub('', reason)}): "


def _first_bytes(option: str, path: str, count: int) -> bytes:
    try:
        with Path(path).open("rb") as file:
            return file.read(count)
    except OSError as error:
        raise wrong(option, path, f"it cannot be read here: {error.strerror}") from error
