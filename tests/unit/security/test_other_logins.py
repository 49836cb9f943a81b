"""AWS_MSK_IAM, mechanisms of other packages, and certificates as text."""

from __future__ import annotations

import base64
import ssl
from collections.abc import Callable
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from kafkaprod.config import ProducerConfig
from kafkaprod.engine.wiring import mechanism_factory, tls_context, token_provider
from kafkaprod.errors import AuthenticationError, ConfigError
from kafkaprod.security import msk, plugins
from kafkaprod.security.oauthbearer import BearerToken
from kafkaprod.security.sasl import Mechanism, PlainMechanism
from tests.support.net.certificates import Authority

MSK_HOST = "b-1.demo.abc123.c2.kafka.eu-west-1.amazonaws.com:9098"


def config(**options: Any) -> ProducerConfig:
    login = {"bootstrap_servers": MSK_HOST, "security_protocol": "SASL_SSL", "sasl_mechanism": "AWS_MSK_IAM"}
    return ProducerConfig.from_options({**login, **options})


@pytest.fixture
def _credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "canary")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.usefixtures("_credentials")
def test_the_published_signer_makes_the_token() -> None:
    pytest.importorskip("aws_msk_iam_sasl_signer")
    provider = token_provider(config())
    token = provider.token()
    assert isinstance(token, BearerToken)
    address = base64.urlsafe_b64decode(token.value + "==").decode()
    assert address.startswith("https://kafka.eu-west-1.amazonaws.com/?Action=kafka-cluster%3AConnect")
    assert token.lifetime_s is not None
    assert 600 < token.lifetime_s <= 900
    assert provider.token() is token  # kept, as every token with an end
    assert "canary" not in repr(token)


@pytest.mark.usefixtures("_credentials")
def test_credentials_that_are_not_there_are_an_error_without_a_secret() -> None:
    pytest.importorskip("aws_msk_iam_sasl_signer")
    with pytest.raises(AuthenticationError, match=r"no token could be signed for eu-west-1: .*nobody"):
        token_provider(config(sasl_aws_profile="nobody")).token()


@pytest.mark.usefixtures("_credentials")
@pytest.mark.parametrize(
    ("servers", "options", "environment", "region"),
    [
        (MSK_HOST, {}, "", "eu-west-1"),
        ("boot-x.c1.kafka-serverless.us-east-1.amazonaws.com:9098", {}, "", "us-east-1"),
        ("b-1.x.kafka.cn-north-1.amazonaws.com.cn:9098", {}, "", "cn-north-1"),
        (MSK_HOST, {"sasl_aws_region": "us-west-2"}, "sa-east-1", "us-west-2"),
        ("proxy:9098", {}, "sa-east-1", "sa-east-1"),
    ],
)
def test_the_region_is_the_options_the_servers_or_the_environments(
    servers: str, options: dict[str, Any], environment: str, region: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_REGION", environment)
    assert msk.region_of(config(bootstrap_servers=servers, **options)) == region


@pytest.mark.usefixtures("_credentials")
def test_a_region_that_is_not_known_is_refused() -> None:
    with pytest.raises(ConfigError, match="needs sasl_aws_region"):
        msk.region_of(config(bootstrap_servers="h:1"))


def test_javas_options_of_the_iam_library_are_read() -> None:
    entry = 'software.amazon.msk.auth.iam.IAMLoginModule required awsRoleArn="arn:x" awsStsRegion="us-east-1";'
    handler = "software.amazon.msk.auth.iam.IAMClientCallbackHandler"
    chosen = config(**{"sasl.jaas.config": entry, "sasl.client.callback.handler.class": handler})
    assert (chosen.sasl_aws_role_arn, chosen.sasl_aws_region) == ("arn:x", "us-east-1")


class Ticket(PlainMechanism):
    name = "X-TICKET"


def tickets(chosen: ProducerConfig) -> Callable[[], Mechanism]:
    if chosen.sasl_plain_username is None:
        raise ValueError("no user")
    return lambda: Ticket("u", "p")


def install(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = EntryPoint("x-ticket", f"{__name__}:tickets", plugins.GROUP)
    monkeypatch.setattr(plugins, "entry_points", lambda group: [entry] if group == plugins.GROUP else [])


def test_a_mechanism_of_an_installed_package_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch)
    factory = mechanism_factory(config(sasl_mechanism="x-ticket", sasl_plain_username="u"))
    assert factory is not None
    assert factory().name == "X-TICKET"


def test_a_mechanism_that_fails_or_is_not_there_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch)
    with pytest.raises(ConfigError, match=r"X-TICKET: .*tickets failed with ValueError: no user"):
        mechanism_factory(config(sasl_mechanism="X-TICKET"))
    with pytest.raises(ConfigError, match=r"X-OTHER is not one of .*there: X-TICKET"):
        mechanism_factory(config(sasl_mechanism="X-OTHER"))
    with pytest.raises(ConfigError, match="expected one of PLAIN"):
        config(sasl_mechanism="GSSAPI")


def handshake(client: ssl.SSLContext, server: ssl.SSLContext) -> bytes | None:
    """Connect both in memory; the client's certificate as the server sees it."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    first = client.wrap_bio(to_client, to_server, server_hostname="127.0.0.1")
    second = server.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(4):
        for side in (first, second):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    return second.getpeercert(binary_form=True)


@pytest.mark.parametrize("names", ["own", "java"])
def test_certificates_may_be_text(tmp_path: Path, names: str, monkeypatch: pytest.MonkeyPatch) -> None:
    authority = Authority(tmp_path)
    own = authority.issue("client", [], is_for_clients=True, password=b"open")
    server = authority.issue("server", ["127.0.0.1"]).server_context()
    server.load_verify_locations(authority.cafile)
    server.verify_mode = ssl.CERT_REQUIRED
    texts = [path.read_text(encoding="utf-8") for path in (authority.cafile, own.certfile, own.keyfile)]
    monkeypatch.setenv("CLIENT_KEY", texts[2])
    spelled = {
        "own": ("ssl_ca_pem", "ssl_certificate_pem", "ssl_key_pem"),
        "java": ("ssl.truststore.certificates", "ssl.keystore.certificate.chain", "ssl.keystore.key"),
    }[names]
    options = dict(zip(spelled, [*texts[:2], "env:CLIENT_KEY"], strict=True))
    left = set(Path(tmp_path).iterdir())
    chosen = ProducerConfig.from_options(
        {"bootstrap_servers": "h:1", "security_protocol": "SSL", "ssl_password": "open", **options}
    )
    context = tls_context(chosen)
    assert context is not None
    assert handshake(context, server) is not None
    assert set(Path(tmp_path).iterdir()) == left
    assert "BEGIN" not in repr(chosen)


def test_text_that_is_no_certificate_is_refused_without_showing_it(tmp_path: Path) -> None:
    base = {"bootstrap_servers": "h:1", "security_protocol": "SSL"}
    own = Authority(tmp_path).issue("client", [], is_for_clients=True)
    text = own.certfile.read_text(encoding="utf-8")
    for options, name in (
        ({"ssl_ca_pem": "canary"}, "ssl_ca_pem of 6 characters"),
        ({"ssl_certificate_pem": text, "ssl_key_pem": "canary"}, "ssl_certificate_pem and ssl_key_pem cannot"),
        ({"ssl_key_pem": "canary"}, "without ssl_certificate_pem"),
        ({"ssl_ca_pem": "canary", "ssl_cafile": "x"}, "ssl_cafile and ssl_ca_pem are given together"),
    ):
        with pytest.raises(ConfigError, match=name) as caught:
            tls_context(ProducerConfig.from_options({**base, **options}))
        assert "canary" not in str(caught.value)
