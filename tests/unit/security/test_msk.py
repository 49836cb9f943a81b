"""AWS_MSK_IAM: tokens of Amazon's signer, and the region that they are for."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import aws_msk_iam_sasl_signer  # noqa: F401 -- without the package this file is left out
import pytest

from kafkaprod.config import ProducerConfig
from kafkaprod.engine.wiring import token_provider
from kafkaprod.errors import AuthenticationError, ConfigError
from kafkaprod.security import msk
from kafkaprod.security.oauthbearer import BearerToken

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
