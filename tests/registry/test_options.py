"""The options `schemaRegistry.*`: what they become, what is refused, and that no secret shows."""

from __future__ import annotations

import logging
import pickle
from pathlib import Path

import pytest

from keyedwm.core.errors import OptionError
from keyedwm.registry.options import RegistryConfig

SECRET = "hunter2-planted"  # noqa: S105 (to be found nowhere)
URL = {"url": "https://one:8081"}


def parsed(**options: str) -> RegistryConfig:
    settings = {name.replace("__", "."): value for name, value in options.items()}
    return RegistryConfig.from_options({f"schemaRegistry.{name}": value for name, value in settings.items()})


def test_addresses_have_the_ports_of_their_protocol_and_names_ignore_case() -> None:
    config = RegistryConfig.from_options(
        {"SCHEMAREGISTRY.Url": " https://one/ , http://two:8081/apis/ccompat/v7/,http://[::1]:80", "subscribe": "x"}
    )
    assert str(config) == "https://one:443, http://two:8081/apis/ccompat/v7, http://[::1]:80"
    assert (config.timeout_ms, config.cache, config.user, config.token) == (30_000, None, None, None)


def test_the_config_travels_with_its_secrets_and_shows_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "password").write_text(f"{SECRET}\n")
    monkeypatch.setenv("REGISTRY_USER", "alice")
    config = parsed(**URL, user="env:REGISTRY_USER", password=f"file:{tmp_path / 'password'}", timeout="2 seconds")
    travelled = pickle.loads(pickle.dumps(config))  # noqa: S301 (its own)
    assert (travelled.user, travelled.password, travelled.timeout_ms) == ("alice", SECRET, 2_000)
    assert travelled == config
    assert SECRET not in f"{config} {config!r}"
    assert SECRET not in repr(parsed(**URL, token=SECRET))


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({}, r"option schemaRegistry\.url is missing: an address such as https://registry:8081"),
        ({"url": ","}, r"schemaRegistry\.url: ',' is wrong"),
        ({"url": "registry:8081"}, r"'registry:8081' is wrong; an address such as"),
        ({"url": "ftp://a"}, r"'ftp://a' is wrong"),
        ({"url": "http://a:99999"}, r"'http://a:99999' is wrong"),
        ({"url": "http://a b"}, "is wrong"),
        ({"url": f"http://u:{SECRET}@a"}, r"holds an @: give a login by schemaRegistry\.user"),
        ({"url": f"http://a?token={SECRET}"}, r"a \? or a # is given"),
        ({**URL, "user": "a"}, r"schemaRegistry\.password is missing"),
        ({**URL, "password": SECRET}, r"schemaRegistry\.user is missing"),
        ({**URL, "user": "a:b", "password": SECRET}, "without a colon"),
        ({**URL, "user": "a", "password": ""}, r"schemaRegistry\.password: the value given is empty"),
        ({**URL, "user": "a", "password": SECRET, "token": SECRET}, "are two logins: give one of them"),
        ({**URL, "token": f"{SECRET} {SECRET}"}, r"schemaRegistry\.token: the value given is wrong"),
        ({**URL, "token": "env:NO_SUCH_VARIABLE"}, "no environment variable 'NO_SUCH_VARIABLE'"),
        ({**URL, "token__provider": "tests.tokens:god"}, r"schemaRegistry\.token\.provider: .* has no 'god'"),
        ({**URL, "timeout": "soon"}, r"schemaRegistry\.timeout: 'soon' is wrong"),
        ({**URL, "timeout": "0 seconds"}, "from 1 millisecond to 1 day"),
        ({**URL, "cache": "schemas"}, r"schemaRegistry\.cache: 'schemas' is wrong; an absolute path"),
        ({**URL, "cache": "s3a://bucket/x"}, "an absolute path of a directory is expected"),
        ({**URL, "passwort": SECRET}, r"passwort is unknown: did you mean schemaRegistry\.password\?"),
        ({**URL, "basic__auth__user__info": SECRET}, r"mean schemaRegistry\.user and schemaRegistry\.password\?"),
        ({**URL, "zzz": "1"}, r"zzz is unknown: there are schemaRegistry\.url"),
        ({**URL, "ssl__truststore__location": "/no/such"}, r"schemaRegistry\.ssl\.truststore\.location: '/no/such'"),
        ({**URL, "ssl__keystore__password": SECRET}, r"no effect without schemaRegistry\.ssl\.keystore\.location"),
        (
            {"url": "http://a", "ssl__cipher__suites": "x"},
            r"has no effect with schemaRegistry\.url, which is not https",
        ),
    ],
)
def test_what_is_wrong_is_said_in_one_sentence_without_secrets(options: dict[str, str], sentence: str) -> None:
    with pytest.raises(OptionError, match=sentence) as caught:
        parsed(**options)
    assert SECRET not in str(caught.value)


def test_a_login_in_clear_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        parsed(**URL, token=SECRET)
        assert not caplog.records
        parsed(url="http://one", token=SECRET)
    assert "sent unencrypted, as schemaRegistry.url is not https" in caplog.text
    assert SECRET not in caplog.text
