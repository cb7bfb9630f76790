"""What a PEM or DER file that OpenSSL refused holds, in place of OpenSSL's words.

Rule: it is asked after a refusal only. What it says names kinds of blocks and their places, never their content: a key
may stand where a certificate should.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections import Counter

_BLOCK = re.compile(
    rb"-----BEGIN (?P<label>[A-Z0-9 ]{1,40})-----(?P<body>.*?)(?:-----END (?P=label)-----|(?P<cut>\Z|(?=-----BEGIN )))",
    re.DOTALL,
)
_KEYS = (b"PRIVATE KEY", b"RSA PRIVATE KEY", b"EC PRIVATE KEY", b"DSA PRIVATE KEY", b"ENCRYPTED PRIVATE KEY")
_CERTIFICATES = (b"CERTIFICATE", b"X509 CERTIFICATE", b"TRUSTED CERTIFICATE")
_NAMES = {
    **dict.fromkeys(_KEYS, "private key"), **dict.fromkeys(_CERTIFICATES, "certificate"),
    b"ENCRYPTED PRIVATE KEY": "encrypted private key", b"CERTIFICATE REQUEST": "certificate request",
    b"NEW CERTIFICATE REQUEST": "certificate request", b"PUBLIC KEY": "public key", b"PKCS7": "PKCS #7 bundle",
}  # fmt: skip
_LEGACY = b"Proc-Type: 4,ENCRYPTED"
_ENCRYPTED = "the private key is encrypted"


def why_not_trusted(data: bytes) -> str:
    """Why no certificates to trust can be had from these bytes: a part of a sentence."""
    blocks = list(_BLOCK.finditer(data))
    if not any(block["label"] in _CERTIFICATES for block in blocks):
        return f"{_holds(blocks)}, certificates of authorities are expected"
    return _bad_certificate(blocks) or "OpenSSL takes none of its certificates"


def why_not_shown(data: bytes, password: str | None, password_option: str) -> str:
    """Why these bytes are not a private key with its certificate: a part of a sentence."""
    blocks = list(_BLOCK.finditer(data))
    keys = [block for block in blocks if block["label"] in _KEYS]
    if not keys or not any(block["label"] in _CERTIFICATES for block in blocks):
        return f"{_holds(blocks)}, a private key and its certificate are expected"
    return _bad_key(keys[0], password, password_option) or _bad_certificate(blocks) or (
        "its first certificate is not the private key's own: "
        "that is expected first, then those of the authorities in between"
    )  # fmt: skip


def of_der(data: bytes) -> str | None:
    """What a file in DER is other than a PKCS #12 store, and how to convert it; None if it cannot be told."""
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import load_der_private_key

    try:
        x509.load_der_x509_certificate(data)
    except ValueError:
        pass
    else:
        return "it is one certificate in DER; convert it: openssl x509 -inform DER -in OLD -out NEW"
    try:
        load_der_private_key(data, None)
    except TypeError:
        return "it is an encrypted private key in DER; convert it: openssl pkey -inform DER -in OLD -aes256 -out NEW"
    except Exception:  # noqa: BLE001 (cryptography has many, and whatever it is, this is no key)
        return None
    return "it is a private key in DER; convert it: openssl pkey -inform DER -in OLD -aes256 -out NEW"


def _holds(blocks: list[re.Match[bytes]]) -> str:
    if not blocks:
        return "it holds nothing that begins with -----BEGIN"
    counted = Counter(_NAMES.get(block["label"], "block of another kind") for block in blocks)
    told = [f"{count} {name}{'s' if count > 1 else ''}" for name, count in counted.items()]
    return f"it holds {', '.join(told)} only"


def _bad_certificate(blocks: list[re.Match[bytes]]) -> str | None:
    from cryptography import x509

    certificates = [block for block in blocks if block["label"] in _CERTIFICATES]
    for number, block in enumerate(certificates, 1):
        what = f"certificate {number} of {len(certificates)}"
        if block["cut"] is not None:
            return f"{what} has no end"
        if rb"\n" in block["body"]:
            return f"{what} has a backslash and an n where its lines should end"
        try:
            der = base64.b64decode(b"".join(block["body"].split()), validate=True)
        except binascii.Error:
            return f"{what} is damaged: it is no base64"
        if block["label"] == b"TRUSTED CERTIFICATE":
            continue  # OpenSSL's own addition follows the certificate
        try:
            x509.load_der_x509_certificate(der)
        except ValueError:
            return f"what stands as {what} is none"
    return None


def _bad_key(block: re.Match[bytes], password: str | None, option: str) -> str | None:
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    if block["cut"] is not None:
        return "the private key has no end"
    encrypted = block["label"] == b"ENCRYPTED PRIVATE KEY" or _LEGACY in block["body"]
    if encrypted and not password:
        return f"{_ENCRYPTED}, and {option} is not set: give its password there"
    try:
        load_pem_private_key(block[0], password.encode() if encrypted and password else None)
    except Exception:  # noqa: BLE001 (cryptography has many, and their words may quote what they read)
        return f"{_ENCRYPTED}, and {option} does not open it" if encrypted else "the private key is damaged"
    return None
