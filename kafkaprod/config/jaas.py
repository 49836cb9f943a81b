"""Java's `sasl.jaas.config`, so far as it is a user name and a password, a client of an OAuth provider, or Kerberos.

    org.apache.kafka.common.security.scram.ScramLoginModule required username="alice" password="secret";
    org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required clientId="me" clientSecret="secret";
    com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true keyTab="/etc/me.keytab" principal="me@REALM";

Text in, options out: no class is loaded by its name. Source: Kafka documentation "JAAS configuration".
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from kafkaprod.config.secret import Secret
from kafkaprod.errors import ConfigError

_PACKAGE: Final = "org.apache.kafka.common.security."
_MODULES: Final = (f"{_PACKAGE}plain.PlainLoginModule", f"{_PACKAGE}scram.ScramLoginModule")
_OAUTH_MODULE: Final = f"{_PACKAGE}oauthbearer.OAuthBearerLoginModule"
_OAUTH_SETTINGS: Final = {
    "clientId": "sasl_oauthbearer_client_credentials_client_id",
    "clientSecret": "sasl_oauthbearer_client_credentials_client_secret",
    "scope": "sasl_oauthbearer_scope",
}
_AWS_MODULE: Final = "software.amazon.msk.auth.iam.IAMLoginModule"
_AWS_SETTINGS: Final = {
    "awsProfileName": "sasl_aws_profile",
    "awsRoleArn": "sasl_aws_role_arn",
    "awsRoleSessionName": "sasl_aws_role_session_name",
    "awsStsRegion": "sasl_aws_region",
}
_KERBEROS_MODULE: Final = "com.sun.security.auth.module.Krb5LoginModule"
_KERBEROS_SETTINGS: Final = {
    "keyTab": "sasl_kerberos_keytab",
    "principal": "sasl_kerberos_principal",
    "serviceName": "sasl_kerberos_service_name",
}
# What Java has to know, and a Kerberos library does by itself.
_KERBEROS_SWITCHES: Final = frozenset(
    {"useKeyTab", "useTicketCache", "storeKey", "renewTGT", "doNotPrompt", "isInitiator", "refreshKrb5Config", "debug"}
)
_EXTENSION: Final = "extension_"
_HEAD = re.compile(r"([\w.$]+)\s+(?:required|requisite|sufficient|optional)(?=[\s;]|$)")
_ASSIGNMENT = re.compile(r"""(\w+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s"';]+))\s*""", re.DOTALL)
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)


def parse_jaas(value: object) -> dict[str, object]:
    """Return the options that a JAAS entry stands for: name and password, a client's id and secret, or a keytab.

    Raises:
        ConfigError: It is malformed, or of a login module that has no equivalent; the entry is not shown.
    """
    text = value.reveal() if isinstance(value, Secret) else value
    entry = text.strip() if isinstance(text, str) else ""
    head = _HEAD.match(entry)
    if head is None or not entry.endswith(";"):
        raise ConfigError('sasl.jaas.config is not of the form `module required username="..." password="...";`')
    module, assignments = head[1], entry[head.end() : -1].strip()
    if module == _OAUTH_MODULE:
        return _oauth_options(_parse_assignments(assignments))
    if module == _AWS_MODULE:
        return _translated(_parse_assignments(assignments), _AWS_SETTINGS)
    if module == _KERBEROS_MODULE:
        return _kerberos_options(_parse_assignments(assignments))
    if module not in _MODULES:
        raise ConfigError(
            f"sasl.jaas.config names the login module {module}, which has no equivalent: give sasl_plain_username and "
            "sasl_plain_password, or the options of OAUTHBEARER"
        )
    settings = _parse_assignments(assignments)
    if not settings.keys() >= {"username", "password"}:
        raise ConfigError("sasl.jaas.config holds no username and password")
    return {"sasl_plain_username": settings["username"], "sasl_plain_password": Secret(settings["password"])}


def _translated(settings: dict[str, str], names: Mapping[str, str]) -> dict[str, object]:
    unknown = [name for name in settings if name not in names]
    if unknown:
        raise ConfigError(f"sasl.jaas.config has settings without an equivalent: {', '.join(unknown)}")
    return {names[name]: value for name, value in settings.items()}


def _oauth_options(settings: dict[str, str]) -> dict[str, object]:
    extensions = [name for name in settings if name.startswith(_EXTENSION)]
    named = {name: value for name, value in settings.items() if name not in extensions}
    options = _translated(named, _OAUTH_SETTINGS)
    if extensions:
        pairs = [f"{name.removeprefix(_EXTENSION)}={settings[name]}" for name in extensions]
        options["sasl_oauthbearer_extensions"] = ",".join(pairs)
    return options


def _kerberos_options(settings: dict[str, str]) -> dict[str, object]:
    named = {name: value for name, value in settings.items() if name not in _KERBEROS_SWITCHES}
    if "keyTab" in named and settings.get("useKeyTab", "false").lower() != "true":
        raise ConfigError(
            "sasl.jaas.config names a keyTab without useKeyTab=true, and Java would not read it: add that"
        )
    return _translated(named, _KERBEROS_SETTINGS)


def _parse_assignments(text: str) -> dict[str, str]:
    settings: dict[str, str] = {}
    position = 0
    while position < len(text):
        match = _ASSIGNMENT.match(text, position)
        if match is None:
            raise ConfigError(f"sasl.jaas.config is malformed after {len(settings)} settings")
        name, double_quoted, single_quoted, bare = match.groups()
        quoted = double_quoted if double_quoted is not None else single_quoted
        settings[name] = bare if quoted is None else _ESCAPE.sub(r"\1", quoted)
        position = match.end()
    return settings
