"""A catalog that is reached by REST, with limits on what its server may do.

Rule: no code that the server names is run, no other server gets the login, and each wait has a deadline.
"""

from __future__ import annotations

import functools
from typing import Any

from pyiceberg.catalog.rest import OAUTH2_SERVER_URI, RestCatalog
from pyiceberg.utils.config import Config, merge_config
from requests import PreparedRequest, Response, Session, TooManyRedirects

from keyedwm.core.errors import OptionError
from pyspark_wm_sink.iceberg.foreign_properties import reject_code

_TIMEOUTS_S = (10.0, 60.0)


class LimitedRestCatalog(RestCatalog):
    """PyIceberg's catalog. Its properties: the server's defaults, then the options, then the server's overrides."""

    def __init__(self, name: str, **properties: Any) -> None:
        self._options = merge_config(Config().get_catalog_config(name) or {}, properties)
        super().__init__(name, **self._options)

    def _fetch_config(self) -> None:
        super()._fetch_config()
        owner = f"the server of the catalog {self.name}"
        reject_code(owner, self.properties, self._options)
        option_uri = self._options.get(OAUTH2_SERVER_URI)
        if option_uri is not None and self.properties[OAUTH2_SERVER_URI] != option_uri:
            raise OptionError(
                f"{owner} names another {OAUTH2_SERVER_URI} than option catalog.{OAUTH2_SERVER_URI}, and the "
                "credential would go there: correct the option, or the server"
            )

    def _config_headers(self, session: Session) -> None:
        super()._config_headers(session)
        limit(session)


def limit(session: Session, timeouts_s: tuple[float, float] = _TIMEOUTS_S) -> None:
    """Limit each wait of a session, and raise TooManyRedirects for a redirect to another server.

    timeouts_s: to connect, and between two parts of an answer.
    """
    rebuild_auth = session.rebuild_auth

    def on_redirect(prepared_request: PreparedRequest, response: Response) -> None:
        if session.should_strip_auth(str(response.request.url), str(prepared_request.url)):
            raise TooManyRedirects("the server redirects to another host, port or protocol, which would get the login")
        rebuild_auth(prepared_request, response)

    session.rebuild_auth = on_redirect  # type: ignore[method-assign]
    session.request = functools.partial(session.request, timeout=timeouts_s)  # type: ignore[method-assign]
