"""The options by which a client fetches OAuth tokens, with Kafka's names (KIP-768, KIP-1139) and librdkafka's."""

# ruff: noqa: RUF009  (the "default" is a declaration: dataclasses.field)

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kafkaprod.config.connection_options import ConnectionOptions
from kafkaprod.config.kinds import Boolean, Choice, Integer, Path, SecretText, Text, Url
from kafkaprod.config.option import HIGH, LOW, MEDIUM, Section
from kafkaprod.config.secret import Secret

_OAUTH: Final = Section("OAuth tokens from an identity provider")

CLIENT_CREDENTIALS: Final = "client_credentials"
JWT_BEARER: Final = "urn:ietf:params:oauth:grant-type:jwt-bearer"

_PACKAGE: Final = "org.apache.kafka.common.security.oauthbearer."
_GRANT_OF_CLASS: Final[dict[object, str]] = {
    f"{_PACKAGE}DefaultJwtRetriever": CLIENT_CREDENTIALS,
    f"{_PACKAGE}ClientCredentialsJwtRetriever": CLIENT_CREDENTIALS,
    f"{_PACKAGE}FileJwtRetriever": CLIENT_CREDENTIALS,  # the address is a file then, and nothing is granted
    f"{_PACKAGE}JwtBearerJwtRetriever": JWT_BEARER,
}


def _grant_of_class(value: object) -> object:
    """Translate Java's `sasl.oauthbearer.jwt.retriever.class`."""
    grant = _GRANT_OF_CLASS.get(value) if isinstance(value, str) else None
    if grant is None:
        raise ValueError(value)
    return grant


@dataclass(frozen=True, slots=True, kw_only=True, init=False, repr=False, eq=False)
class OAuthOptions(ConnectionOptions):
    """The second part of the table; see `ProducerOptions`."""

    sasl_oauthbearer_token_endpoint_url: str | None = _OAUTH.option(
        None,
        Url(("https", "http", "file")),
        HIGH,
        "Where tokens come from: the identity provider's token endpoint, or `file:///path` of a file that holds a "
        "token and is read for each login. With it OAUTHBEARER needs no code.",
    )
    sasl_oauthbearer_client_credentials_client_id: str | None = _OAUTH.option(
        None,
        Text(),
        HIGH,
        "The client's name at the identity provider.",
        aliases=("sasl.oauthbearer.client.id",),
    )
    sasl_oauthbearer_client_credentials_client_secret: Secret | None = _OAUTH.option(
        None,
        SecretText(),
        HIGH,
        "The client's secret at the identity provider.",
        aliases=("sasl.oauthbearer.client.secret",),
    )
    sasl_oauthbearer_scope: str | None = _OAUTH.option(
        None, Text(), MEDIUM, "The scope to request, as the provider names it."
    )
    sasl_oauthbearer_extensions: str | None = _OAUTH.option(
        None,
        Text(),
        MEDIUM,
        "SASL extensions to send with each token: `name=value,name=value`. Confluent Cloud needs `logicalCluster` and "
        "`identityPoolId`.",
    )
    sasl_oauthbearer_grant_type: str = _OAUTH.option(
        CLIENT_CREDENTIALS,
        Choice((CLIENT_CREDENTIALS, JWT_BEARER), synonyms={"jwt-bearer": JWT_BEARER}),
        MEDIUM,
        "How to request a token: with the client's secret or a signed assertion (client_credentials), or by exchanging "
        "an assertion (jwt-bearer).",
        translated={"sasl.oauthbearer.jwt.retriever.class": _grant_of_class},
    )
    sasl_oauthbearer_header_urlencode: bool = _OAUTH.option(
        False,
        Boolean(),
        LOW,
        "Whether client id and secret are percent-encoded in the header (RFC 6749 section 2.3.1).",
    )
    sasl_oauthbearer_metadata_authentication_type: str = _OAUTH.option(
        "none",
        Choice(("none", "azure_imds"), advice={"aws_iam": "use sasl_mechanism=AWS_MSK_IAM"}),
        LOW,
        "`azure_imds` gets tokens from the metadata service of an Azure machine, by the query that "
        "`sasl_oauthbearer_config` holds: `query=api-version=...&resource=...`.",
    )
    sasl_oauthbearer_assertion_file: str | None = _OAUTH.option(
        None, Path(), MEDIUM, "File with a ready assertion, read for each token."
    )
    sasl_oauthbearer_assertion_private_key_file: str | None = _OAUTH.option(
        None,
        Path(),
        MEDIUM,
        "PEM file of the key that signs assertions. Signing needs `pip install 'kafkaprod[oauth]'`.",
    )
    sasl_oauthbearer_assertion_private_key_pem: Secret | None = _OAUTH.option(
        None, SecretText(), MEDIUM, "The key itself, as PEM text, instead of the file."
    )
    sasl_oauthbearer_assertion_private_key_passphrase: Secret | None = _OAUTH.option(
        None, SecretText(), MEDIUM, "Password of that key."
    )
    sasl_oauthbearer_assertion_algorithm: str = _OAUTH.option(
        "RS256", Choice(("RS256", "ES256")), LOW, "How assertions are signed."
    )
    sasl_oauthbearer_assertion_claim_aud: str | None = _OAUTH.option(
        None, Text(), MEDIUM, "The assertion's claim `aud`."
    )
    sasl_oauthbearer_assertion_claim_iss: str | None = _OAUTH.option(
        None, Text(), MEDIUM, "The assertion's claim `iss`."
    )
    sasl_oauthbearer_assertion_claim_sub: str | None = _OAUTH.option(
        None, Text(), MEDIUM, "The assertion's claim `sub`."
    )
    sasl_oauthbearer_assertion_claim_exp_seconds: int = _OAUTH.option(
        300, Integer(1, 86_400), LOW, "How long an assertion is valid.", unit="s"
    )
    sasl_oauthbearer_assertion_claim_nbf_seconds: int = _OAUTH.option(
        60, Integer(0, 3_600), LOW, "By how much an assertion's begin lies in the past.", unit="s"
    )
    sasl_oauthbearer_assertion_claim_jti_include: bool = _OAUTH.option(
        False, Boolean(), LOW, "Whether each assertion has an id, the claim `jti`."
    )
    sasl_oauthbearer_assertion_template_file: str | None = _OAUTH.option(
        None,
        Path(),
        LOW,
        'JSON file `{"header": {...}, "payload": {...}}` with further fields of assertions.',
        aliases=("sasl.oauthbearer.assertion.jwt.template.file",),
    )
    sasl_aws_region: str | None = _OAUTH.option(
        None,
        Text(),
        MEDIUM,
        "The region of an Amazon MSK cluster (AWS_MSK_IAM). None: the one in the first bootstrap server's name, or "
        "`$AWS_REGION`.",
    )
    sasl_aws_profile: str | None = _OAUTH.option(
        None, Text(), LOW, "A profile of the AWS configuration. None: AWS's usual places of credentials."
    )
    sasl_aws_role_arn: str | None = _OAUTH.option(None, Text(), LOW, "A role to assume.")
    sasl_aws_role_session_name: str | None = _OAUTH.option(None, Text(), LOW, "The name of that role's session.")
    sasl_login_connect_timeout_ms: int = _OAUTH.option(
        5_000, Integer(1), LOW, "How long connecting to the token endpoint may take.", unit="ms"
    )
    sasl_login_read_timeout_ms: int = _OAUTH.option(
        5_000, Integer(1), LOW, "How long the answer of the token endpoint may take as a whole.", unit="ms"
    )
    https_ca_location: str | None = _OAUTH.option(
        None, Path(), LOW, "PEM file of the authorities that the token endpoint is checked by. None: the system's."
    )
    https_ca_pem: str | None = _OAUTH.option(None, Text(), LOW, "The same as PEM text.")
