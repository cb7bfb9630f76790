"""OAUTHBEARER: tokens come from the user's function, and from nowhere into a message."""

from __future__ import annotations

import pickle
import traceback

import pytest

from keyedwm.config import user_functions
from keyedwm.core.errors import OptionError
from keyedwm.kafka.client.config import ClientConfig
from keyedwm.kafka.client.errors import AccessError
from keyedwm.kafka.client.properties import OAUTH_PROVIDER as PROPERTY
from keyedwm.kafka.requests.cluster import Cluster
from tests import tokens
from tests.secured import Secured, login


def config(secured: Secured, provider: str | None, **more: str) -> ClientConfig:
    settings = secured.options(sasl_mechanism="OAUTHBEARER", **more)
    if "sasl_jaas_config" not in more:
        del settings["sasl.jaas.config"]
    return ClientConfig.from_options(settings | ({} if provider is None else {PROPERTY: f"tests.tokens:{provider}"}))


def test_the_named_function_logs_in_on_the_driver_and_in_a_worker(secured: Secured) -> None:
    travelled = pickle.loads(pickle.dumps(config(secured, "good")))  # noqa: S301 (its own)
    cluster = Cluster.connect(travelled)
    assert isinstance(cluster.topics(), tuple)
    cluster.close()


def test_extensions_are_those_of_the_jaas_entry(secured: Secured) -> None:
    jaas = login("oauthbearer.OAuthBearer", extension_logicalCluster="lkc-1", unsecuredLoginStringClaim_sub="boss")
    provider = config(secured, "good", sasl_jaas_config=jaas).security.as_kafka_python()["sasl_oauth_token_provider"]
    assert provider.extensions() == {"logicalCluster": "lkc-1"}


@pytest.mark.parametrize(
    ("provider", "sentence"),
    [
        ("expired", f"rejected the login with OAUTHBEARER: check kafka.{PROPERTY}"),
        ("failing", "the token provider tests.tokens:failing raised ConnectionError"),
        ("empty", "the token provider tests.tokens:empty gave no token: a bearer token as a string is expected"),
    ],
)
def test_a_login_without_a_good_token_fails_at_once_in_one_sentence(
    secured: Secured, provider: str, sentence: str
) -> None:
    with pytest.raises(AccessError) as caught:
        Cluster.connect(config(secured, provider))
    assert sentence in str(caught.value)
    assert tokens.SECRET not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("tests.tokens", "the value given is wrong; module:function is expected"),
        ("tests.tokns:good", r"module 'tests.tokns' cannot be imported \(No module named 'tests.tokns'\)"),
        ("tests.tokens:god", "module 'tests.tokens' has no 'god'"),
        ("tests.tokens:ATTRIBUTE", "'tests.tokens:ATTRIBUTE' is of type int; a function without arguments is expected"),
    ],
)
def test_a_wrong_name_is_refused_when_the_options_are_read(name: str, sentence: str) -> None:
    with pytest.raises(OptionError, match=f"option kafka.{PROPERTY}: .*{sentence}"):
        user_functions.find(f"kafka.{PROPERTY}", name)


def test_a_missing_provider_is_asked_for(secured: Secured) -> None:
    with pytest.raises(OptionError, match=f"kafka.{PROPERTY} is missing: OAUTHBEARER needs module:function"):
        config(secured, None)
