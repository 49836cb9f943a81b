"""Options of others name only those variables and files that the program allows."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from kafkaprod.config import ProducerConfig
from kafkaprod.config.secret_sources import URL_VARIABLE, VARIABLE
from kafkaprod.engine.wiring import mechanism_factory
from kafkaprod.errors import ConfigError
from kafkaprod.spark.avro import _registry_value
from kafkaprod.tables.registry import client_of

TOKEN = {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}
KEY = {"sasl.oauthbearer.token.endpoint.url": "https://h/", "sasl.oauthbearer.assertion.claim.sub": "me"}


def config(sources: object, **more: Any) -> ProducerConfig:
    return ProducerConfig.from_options(bootstrap_servers="a:1", allowed_secret_sources=sources, **more)  # type: ignore[arg-type]


def login(place: str) -> dict[str, str]:
    return {
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "PLAIN",
        "sasl_plain_username": "u",
        "sasl_plain_password": place,
    }


@pytest.fixture
def secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("APP_PASSWORD", "canary")
    monkeypatch.setenv("CLOUD_KEY", "canary")
    (tmp_path / "in").mkdir()
    for name in ("in/password", "other", "in-side"):
        (tmp_path / name).write_text("canary")
    os.symlink(tmp_path / "other", tmp_path / "in" / "link")
    return tmp_path


@pytest.mark.parametrize(
    ("sources", "place", "is_allowed"),
    [
        (None, "env:CLOUD_KEY", True),
        ("none", "env:CLOUD_KEY", False),
        ("none", "text", True),
        ("env:APP_*", "env:APP_PASSWORD", True),
        ("env:APP_*", "env:CLOUD_KEY", False),
        ("env:CLOUD", "env:CLOUD_KEY", False),
        (["env:A", "env:CLOUD_KEY"], "env:CLOUD_KEY", True),
        ("file:{}/in/", "file:{}/in/password", True),
        ("file:{}/in/", "file:{}/in/../other", False),
        ("file:{}/in/", "file:{}/in/link", False),
        ("file:{}/in/", "file:{}/in-side", False),
        ("file:{}/other", "file:{}/other", True),
        ("file:{}/in/", "env:CLOUD_KEY", False),
    ],
)
def test_a_place_must_be_named(secrets: Path, sources: Any, place: str, is_allowed: bool) -> None:
    if isinstance(sources, str):
        sources = sources.format(secrets)
    if is_allowed:
        assert config(sources, **login(place.format(secrets))).sasl_plain_password
        return
    with pytest.raises(ConfigError, match=r"sasl_plain_password=.* is not allowed") as caught:
        config(sources, **login(place.format(secrets)))
    assert "canary" not in str(caught.value)


@pytest.mark.parametrize(
    "options",
    [
        {"sasl.oauthbearer.token.endpoint.url": "file://{}/other"},
        {"sasl.oauthbearer.token.endpoint.url": "FILE:{}/other"},
        {"sasl.oauthbearer.token.endpoint.url": "https://h/", "sasl.oauthbearer.assertion.file": "{}/other"},
        {"proxy.url": "file:{}/other", "security.protocol": "PLAINTEXT", "sasl.mechanism": None},
        {**KEY, "sasl.oauthbearer.assertion.private.key.file": "{}/other"},
        {**KEY, "sasl.oauthbearer.assertion.private.key.pem": "file:{}/other"},
        {"sasl.mechanism": "GSSAPI", "sasl.kerberos.keytab": "{}/other"},
        {"sasl.mechanism": "GSSAPI"},
        {"sasl.mechanism": "AWS_MSK_IAM"},
        {"sasl.oauthbearer.metadata.authentication.type": "azure_imds"},
        {"security.protocol": "SSL", "sasl.mechanism": None, "ssl.certfile": "{}/other", "ssl.keyfile": "{}/other"},
        {"security.protocol": "SSL", "sasl.mechanism": None, "ssl.certfile": "{}/other"},
    ],
)
def test_what_is_sent_elsewhere_is_bounded_too(secrets: Path, options: dict[str, str | None]) -> None:
    given = {name: value and value.format(secrets) for name, value in {**TOKEN, **options}.items()}
    given = {name: value for name, value in given.items() if value is not None}
    ProducerConfig.from_options({"bootstrap.servers": "a:1", **given})
    with pytest.raises(ConfigError, match="is not allowed: allowed_secret_sources"):
        ProducerConfig.from_options({"bootstrap.servers": "a:1", "allowed.secret.sources": "none", **given})


@pytest.mark.parametrize(
    ("options", "identity"),
    [
        ({"sasl.mechanism": "GSSAPI"}, "kerberos"),
        ({"sasl.mechanism": "AWS_MSK_IAM"}, "aws"),
        ({"sasl.oauthbearer.metadata.authentication.type": "azure_imds"}, "azure"),
    ],
)
def test_an_identity_of_the_machine_must_be_named(options: dict[str, str], identity: str) -> None:
    given = {"bootstrap.servers": "a:1", **TOKEN, **options}
    ProducerConfig.from_options({**given, "allowed.secret.sources": f"env:A,identity:{identity}"})
    for other in {"aws", "azure", "kerberos"} - {identity}:
        with pytest.raises(ConfigError, match=f"=identity:{identity} is not allowed"):
            ProducerConfig.from_options({**given, "allowed.secret.sources": f"identity:{other}"})


@pytest.mark.parametrize(
    ("allowed", "url", "is_allowed"),
    [
        (None, "https://h/token", True),
        ("none", "https://h/token", False),
        ("https://h", "https://h/token", True),
        ("https://h", "https://h:443/token", True),
        ("https://h", "https://H/token", True),
        ("https://h", "https://h.evil/token", False),
        ("https://h", "http://h/token", False),
        ("https://h", "https://h:8443/token", False),
        ("https://h/a", "https://h/a/token?x=1", True),
        ("https://h/a", "https://h/ab", False),
        ("https://h/a/", "https://h/a/../b", False),
        ("https://h/a/", "https://h/a/%2e%2e/b", False),
        ("https://g,https://h/", "https://h/token", True),
    ],
)
def test_an_address_must_be_below_a_named_one(
    allowed: str | None, url: str, is_allowed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: dict[str, Any] = {"bootstrap.servers": "a:1", **TOKEN, **KEY, "sasl.oauthbearer.token.endpoint.url": url}
    given |= {"sasl.oauthbearer.assertion.private.key.pem": "k"}
    if allowed is not None:
        monkeypatch.setenv(URL_VARIABLE, allowed)
    more: dict[str, Any]
    for more in ({}, {"allowed.urls": allowed}):
        if is_allowed:
            ProducerConfig.from_options(given | more)
        else:
            with pytest.raises(ConfigError, match=r"token_endpoint_url=.* is not allowed: allowed_urls"):
                ProducerConfig.from_options(given | more)
        monkeypatch.delenv(URL_VARIABLE, raising=False)


def test_a_place_is_looked_at_again_when_it_is_used(secrets: Path) -> None:
    place = secrets / "in" / "password"
    options = config(f"file:{secrets}/in/", **login(f"file:{place}"))
    make = mechanism_factory(options)
    assert make is not None
    make("h").first()
    place.unlink()
    place.symlink_to(secrets / "other")
    login_at_h = make("h")  # on the sender thread: it must not fail there
    with pytest.raises(ConfigError, match="is not allowed"):
        login_at_h.first()


def test_neither_options_nor_a_file_of_them_widen_what_the_process_allows(
    secrets: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, "env:APP_*")
    assert config(None, **login("env:APP_PASSWORD"))
    for sources in (None, "env:*", "env:CLOUD_KEY"):
        with pytest.raises(ConfigError, match=VARIABLE):
            config(sources, **login("env:CLOUD_KEY"))
    path = secrets / "client.properties"
    path.write_text("bootstrap.servers=a:1\n" + "".join(f"{k}={v}\n" for k, v in login("env:CLOUD_KEY").items()))
    with pytest.raises(ConfigError, match=VARIABLE):
        ProducerConfig.from_file(path)
    monkeypatch.setenv(VARIABLE, "nonsense")  # allows nothing, rather than all
    with pytest.raises(ConfigError, match=VARIABLE):
        config(None, **login("env:APP_PASSWORD"))
    monkeypatch.delenv(VARIABLE)
    with pytest.raises(ConfigError, match="is not allowed"):
        ProducerConfig.from_file(path, allowed_secret_sources="none")


@pytest.mark.parametrize("sources", ["", "env:", "file:relative", "nonsense", 5, ["none", "env:A"]])
def test_a_bad_bound_is_refused(sources: Any) -> None:
    with pytest.raises(ConfigError, match="expected none, or a list of env:NAME"):
        config(sources)


def test_options_of_a_registry_keep_to_the_bound_of_the_process(secrets: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert _registry_value("schema.registry.basic.auth.user.info", "env:CLOUD_KEY") == "canary"
    monkeypatch.setenv(VARIABLE, "none")
    with pytest.raises(ConfigError, match=f"env:CLOUD_KEY is not allowed.*{VARIABLE}"):
        _registry_value("schema.registry.basic.auth.user.info", "env:CLOUD_KEY")
    with pytest.raises(ConfigError, match=f"env:CLOUD_KEY is not allowed.*{VARIABLE}"):
        client_of({"url": "http://h", "basic.auth.user.info": "env:CLOUD_KEY"})
    monkeypatch.setenv(URL_VARIABLE, "https://registry")
    for registry in ("http://h", {"url": "https://registry,http://h"}):
        with pytest.raises(ConfigError, match=f"url is not allowed.*{URL_VARIABLE}"):
            client_of(registry)
