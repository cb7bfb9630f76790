"""The options of a login by Kerberos: the brokers' service, the principal and the source of its ticket."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from keyedwm.core.errors import OptionError

_SERVICE = "kafka"
_JAAS = "option kafka.sasl.jaas.config"
# Entries of Java's Krb5LoginModule → the entry without which they have no effect.
_SWITCHES = {"keyTab": "useKeyTab", "ticketCache": "useTicketCache"}


@dataclass(frozen=True, slots=True, kw_only=True)
class KerberosLogin:
    """None means the choice of the machine's Kerberos library by its variables.

    Files have the same path on every host.
    """

    service: str = _SERVICE
    principal: str | None = None
    keytab: str | None = None
    cache: str | None = None

    @classmethod
    def of(cls, service: str | None, entry: Mapping[str, str]) -> KerberosLogin:
        """Read an entry of Krb5LoginModule as Java's client does; raises OptionError.

        service: `sasl.kerberos.service.name`, None if not set.
        """
        _check(entry)
        entry_name = entry.get("serviceName")
        if service is not None and entry_name is not None and service != entry_name:
            raise OptionError(
                "options kafka.sasl.jaas.config (serviceName) and kafka.sasl.kerberos.service.name name two services: "
                "give one of them"
            )
        return cls(
            service=service or entry_name or _SERVICE,
            principal=entry.get("principal"),
            keytab=entry.get("keyTab"),
            cache=entry.get("ticketCache"),
        )


def _check(entry: Mapping[str, str]) -> None:
    if "username" in entry or "password" in entry:
        raise OptionError(
            f"{_JAAS} has a username or a password, and GSSAPI takes none: "
            "set kafka.sasl.mechanism to PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512"
        )
    for name, switch in _SWITCHES.items():
        if name in entry and not _is_on(entry, switch):
            raise OptionError(
                f"{_JAAS} has {name}, which has no effect without {switch}=true: add it, or remove {name}"
            )
    if all(_is_on(entry, switch) for switch in _SWITCHES.values()):
        raise OptionError(f"{_JAAS} has useKeyTab=true and useTicketCache=true: keep one of them")
    if _is_on(entry, "useKeyTab") and not {"keyTab", "principal"} <= entry.keys():
        raise OptionError(f"{_JAAS} has useKeyTab=true, which needs keyTab and principal")


def _is_on(entry: Mapping[str, str], switch: str) -> bool:
    return entry.get(switch, "").lower() == "true"
