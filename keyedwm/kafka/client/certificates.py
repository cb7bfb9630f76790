"""A broker's certificate that is not accepted: asking again changes nothing, so the error says what to set."""

from __future__ import annotations

import ssl

import kafka.errors as wire_errors

from keyedwm.kafka.client.security import Security

# OpenSSL's X509_V_ERR_*: what a store of trusted certificates cannot mend.
_NOT_YET_VALID, _EXPIRED = 9, 10
_OTHER_NAME, _OTHER_ADDRESS = 62, 64
_TRUST = "kafka.ssl.truststore.location"


class CertificateError(wire_errors.KafkaConnectionError):
    """The certificate of one broker failed the check; `address` is its host:port."""

    def __init__(self, address: str, cause: ssl.SSLCertVerificationError) -> None:
        super().__init__(f"{address}: {cause}")
        self.address = address
        self.code, self.verify_message = cause.verify_code, cause.verify_message


def sentence(error: CertificateError, security: Security) -> str:
    """Say what is wrong with the certificate, and which option settles it."""
    if error.code in {_OTHER_NAME, _OTHER_ADDRESS}:
        return (
            f"the certificate of {error.address} is for another host name: set kafka.bootstrap.servers, and the "
            "brokers' advertised.listeners, to names that it holds "
            "(an empty kafka.ssl.endpoint.identification.algorithm leaves names unchecked)"
        )
    if error.code in {_NOT_YET_VALID, _EXPIRED}:
        return (
            f"the certificate of {error.address}, or one that it is signed by, is not valid now "
            f"({error.verify_message}): renew it, or set this machine's clock"
        )
    return (
        f"the certificate of {error.address} is not trusted by {_trusting(security)}: {error.verify_message}; "
        f"set {_TRUST} to a file with the certificate of the authority that signed it"
    )


def _trusting(security: Security) -> str:
    if security.tls.trust is not None:
        return f"{security.tls.trust.path} ({_TRUST})"
    if security.tls.trusted_pem is not None:
        return "kafka.ssl.truststore.certificates"
    return f"the system's certificates, as {_TRUST} is not set"
