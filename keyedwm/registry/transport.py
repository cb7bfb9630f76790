"""Questions to a registry at several addresses: the login, TLS, and repetitions with growing pauses.

Rule: after a fault of the registry the question is asked again. When the time is over, UnavailableError is raised. A
plain answer is final, but an absence only if every address reports it.
"""

from __future__ import annotations

import base64
import random
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from keyedwm.config import user_functions
from keyedwm.config.user_functions import NoTokenError, ask_for_token
from keyedwm.core.errors import UnavailableError
from keyedwm.registry.answers import AbsentError, FaultError, RegistryAccessError, value_of_answer
from keyedwm.registry.http import Answer, DistrustedError, NoReplyError, Question, exchange
from keyedwm.registry.options import PREFIX, Address, RegistryConfig

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 5.0
_LEAST_S = 0.001


class Transport:
    """Asks the addresses of a registry, and knows which one answered last. Not thread-safe."""

    def __init__(
        self,
        config: RegistryConfig,
        *,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self.config = config
        self.clock, self._pause = clock, pause
        self._context: ssl.SSLContext | None = None
        self._first = 0  # the address that answered last

    def ask(self, question: Question, object_name: str, timeout_ms: int | None = None) -> Any:
        """Ask one address after the other, with growing pauses, until one answers or the time is over.

        Raises AbsentError, InputError, RegistryAccessError, and UnavailableError with the last answer of each address.
        """
        limit_s = (timeout_ms or self.config.timeout_ms) / 1_000
        deadline_s, pause_s = self.clock() + limit_s, _FIRST_PAUSE_S
        addresses = self.config.addresses
        reasons: dict[Address, str] = {}
        absent: set[Address] = set()
        while True:
            again = False
            for at in range(self._first, self._first + len(addresses)):
                address = addresses[at % len(addresses)]
                # A silent address leaves time for the others, or for another try.
                attempt_s = min(limit_s / (len(addresses) + 1), max(deadline_s - self.clock(), _LEAST_S))
                try:
                    value = value_of_answer(self._exchange(address, question, attempt_s), self._login_option())
                except AbsentError as error:  # another address may be ahead of this one
                    absent.add(address)
                    if len(absent) == len({*addresses}):
                        raise
                    reasons[address] = f"it has no such {error.object_kind}"
                    continue
                except (NoReplyError, FaultError) as fault:
                    reasons[address] = str(fault)
                    again = again or not isinstance(fault, FaultError) or fault.again
                    continue
                self._first = at % len(addresses)
                return value
            # A try without time for an answer would end with a worse reason than the tries before.
            if not again or deadline_s - self.clock() < 2 * pause_s:
                answers = "; ".join(f"{address}: {reason}" for address, reason in reasons.items())
                raise no_answer(self.config, object_name, answers)
            self._pause(pause_s * random.uniform(0.5, 1.0))  # noqa: S311 (so that tasks do not ask at one moment)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    def _exchange(self, address: Address, question: Question, limit_s: float) -> Answer:
        if address.tls and self._context is None:
            self._context = self.config.tls.context()
        login = self._login()
        with_login = Question(question.method, question.path, question.body, login)
        try:
            answer = exchange(address, with_login, self._context, limit_s)
            return replace(answer, secrets=self._secrets(login))
        except DistrustedError as error:
            trust = self.config.tls.trust
            by = f"{trust.path} ({PREFIX}ssl.truststore.location)" if trust else "the system's certificates"
            raise RegistryAccessError(
                f"the certificate of the schema registry at {address} is not trusted by {by}: {error}; "
                f"set {PREFIX}ssl.truststore.location to a file with the certificate of the authority that signed it"
            ) from None

    def _login(self) -> dict[str, str]:
        config = self.config
        if config.token_provider is not None:
            give = user_functions.find(f"{PREFIX}token.provider", config.token_provider)
            try:
                token = ask_for_token(f"the token provider {config.token_provider}", give)
            except NoTokenError as error:
                raise RegistryAccessError(str(error)) from None
            return {"Authorization": f"Bearer {token}"}
        if config.token is not None:
            return {"Authorization": f"Bearer {config.token}"}
        if config.user is not None:
            pair = f"{config.user}:{config.password}".encode()
            return {"Authorization": f"Basic {base64.b64encode(pair).decode()}"}
        return {}

    def _secrets(self, login: Mapping[str, str]) -> tuple[str, ...]:
        """Return what no message may repeat: the password, and what the header of the login has behind its scheme."""
        of_headers = (value.partition(" ")[2] for value in login.values())
        return tuple(filter(None, (self.config.password, *of_headers)))

    def _login_option(self) -> str:
        config = self.config
        if config.token_provider is not None:
            return f"{PREFIX}token.provider"
        if config.token is not None:
            return f"{PREFIX}token"
        if config.user is not None:
            return f"{PREFIX}user and {PREFIX}password"
        return f"{PREFIX}user, {PREFIX}token or {PREFIX}token.provider, of which none is set"


def no_answer(config: RegistryConfig, object_name: str, answers: str) -> UnavailableError:
    """Build the error for a question that got no answer; answers: each address with its reason."""
    return UnavailableError(f"the schema registry at {config} gave no answer about {object_name}: {answers}")
