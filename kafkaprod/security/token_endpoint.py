"""Tokens from an identity provider's endpoint: client credentials, with a secret or an assertion, and JWT bearer.

The request, the reading of the answer, and what errors say; the exchange itself is given. Source: RFC 6749 sections
4.4 and 5, RFC 7523, KIP-768, KIP-1139. No secret and no token is in an error.
"""

from __future__ import annotations

import base64
import http.client
import json
import ssl
import urllib.parse
from collections.abc import Mapping
from typing import Any, Final, Protocol

from kafkaprod.clock import wall_s
from kafkaprod.config.oauth_options import JWT_BEARER, OAuthOptions
from kafkaprod.config.secret import read_secret_file, without_query, without_secrets
from kafkaprod.errors import AuthenticationError, ConfigError, ConnectionLostError, KafkaError, printable
from kafkaprod.security.assertions import assertion
from kafkaprod.security.oauthbearer import BearerToken

AZURE_METADATA_URL: Final = "http://169.254.169.254/metadata/identity/oauth2/token"
_ASSERTION_TYPE: Final = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
_MAX_REASON_CHARACTERS: Final = 200
_SENT_AS_IT_IS: Final = "!$%&'()*+,/:;=?@[]~"
_TOKEN_NAMES: Final = ("access_token", "id_token")
_TOO_MANY: Final = 429
_UNSUPPORTED_GRANT: Final = "unsupported_grant_type"
_HINTS: Final[Mapping[object, str]] = {
    "invalid_client": "check the client's id and secret, or its assertion",
    "unauthorized_client": "the provider does not let this client use this grant type",
    _UNSUPPORTED_GRANT: "the provider does not offer",
    "invalid_grant": "the provider refused the assertion: check its issuer, audience and key",
    "invalid_scope": "check sasl_oauthbearer_scope",
    401: "check the client's id and secret",
    403: "the provider does not let this client have a token",
    404: "check the path of sasl_oauthbearer_token_endpoint_url",
    405: "sasl_oauthbearer_token_endpoint_url is not a token endpoint",
}


class Answer(Protocol):
    """An HTTP answer; header names are in lower case."""

    @property
    def status(self) -> int: ...

    @property
    def reason(self) -> str: ...

    @property
    def headers(self) -> Mapping[str, str]: ...

    @property
    def body(self) -> bytes: ...


class HttpExchange(Protocol):
    """Sends one HTTP request."""

    def __call__(self, method: str, url: str, headers: Mapping[str, str], body: bytes | None) -> Answer:
        """Return the answer; raises OSError, http.client.HTTPException or UnicodeError."""
        ...


class TokenEndpoint:
    """Fetches tokens as the options `sasl_oauthbearer_*` say.

    Args:
        options: The options of the client.
        exchange: Sends one HTTP request.
    """

    def __init__(self, options: OAuthOptions, exchange: HttpExchange) -> None:
        self._options = options
        self._exchange = exchange
        self._extensions = parse_extensions(options.sasl_oauthbearer_extensions or "")
        self._is_azure = options.sasl_oauthbearer_metadata_authentication_type == "azure_imds"
        self._url = options.sasl_oauthbearer_token_endpoint_url or AZURE_METADATA_URL
        self._name = urllib.parse.urlunsplit((*urllib.parse.urlsplit(self._url)[:3], "", ""))  # a query may be secret

    def fetch(self) -> BearerToken:
        """Return a new token.

        Raises:
            AuthenticationError: The provider refused, or its certificate was refused: another try does not help.
            ConnectionLostError: It cannot be reached or is out of order.
            ConfigError: An assertion cannot be made, or a file cannot be read.
        """
        if self._url.startswith("file:"):
            return self._with_extensions(self._read_file(), None)
        method, url, headers, body = self._request()
        secrets = self._sent_secrets(url, headers, body)
        try:
            answer = self._exchange(method, _percent_encoded(url), headers, body)
        except ssl.SSLCertVerificationError as error:
            failure: KafkaError = AuthenticationError(
                f"token endpoint {self._name}: its certificate was refused: {error.verify_message}; give its authority "
                "as https_ca_location"
            )
        except (OSError, http.client.HTTPException, UnicodeError) as error:
            why = printable(without_secrets(str(error), *secrets), _MAX_REASON_CHARACTERS) or type(error)
            failure = ConnectionLostError(f"token endpoint {self._name} cannot be used: {why}")
        else:
            if answer.status != http.HTTPStatus.OK:
                raise self._refusal(answer, secrets)
            return self._read_answer(answer.body)
        raise failure  # behind the blocks: the other error, which may repeat what was sent, is not its context

    def _request(self) -> tuple[str, str, dict[str, str], bytes | None]:
        if self._is_azure:
            query = self._options.sasl_oauthbearer_config.reveal().removeprefix("query=")
            return "GET", f"{self._url}?{query}", {"Metadata": "true", "Accept": "application/json"}, None
        headers = {"Content-Type": "application/x-www-form-urlencoded", "Accept": "application/json"}
        options = self._options
        form = {"grant_type": options.sasl_oauthbearer_grant_type}
        client_id = options.sasl_oauthbearer_client_credentials_client_id
        secret = options.sasl_oauthbearer_client_credentials_client_secret
        proof = assertion(options, wall_s())
        if options.sasl_oauthbearer_grant_type == JWT_BEARER:
            form["assertion"] = proof or ""
        elif proof is not None:
            form |= {"client_assertion_type": _ASSERTION_TYPE, "client_assertion": proof}
            if client_id is not None:
                form["client_id"] = client_id
        if options.sasl_oauthbearer_scope is not None:
            form["scope"] = options.sasl_oauthbearer_scope
        if client_id is not None and secret is not None and "client_assertion" not in form:
            headers["Authorization"] = self._basic(client_id, secret.reveal())
        return "POST", self._url, headers, urllib.parse.urlencode(form).encode()

    def _basic(self, client_id: str, secret: str) -> str:
        if self._options.sasl_oauthbearer_header_urlencode:
            client_id, secret = urllib.parse.quote_plus(client_id), urllib.parse.quote_plus(secret)
        return f"Basic {base64.b64encode(f'{client_id}:{secret}'.encode()).decode()}"

    def _sent_secrets(self, url: str, headers: Mapping[str, str], body: bytes | None) -> list[str]:
        """Return what must not be shown though the endpoint repeats it."""
        secret = self._options.sasl_oauthbearer_client_credentials_client_secret
        text = "" if secret is None else secret.reveal()
        form = urllib.parse.parse_qs((body or b"").decode())
        proofs = [value for name in ("assertion", "client_assertion") for value in form.get(name, ())]
        basic = headers.get("Authorization", "").removeprefix("Basic ")
        query = urllib.parse.urlsplit(url).query
        return [
            text,
            urllib.parse.quote_plus(text),
            basic,
            *proofs,
            query,
            urllib.parse.urlsplit(_percent_encoded(url)).query,
        ]

    def _refusal(self, answer: Answer, secrets: list[str]) -> KafkaError:
        fields = _json_object(answer.body)
        code = fields.get("error")
        parts = [str(fields[name]) for name in ("error", "error_description") if isinstance(fields.get(name), str)]
        why = printable(without_secrets(": ".join(parts), *secrets), _MAX_REASON_CHARACTERS)
        why = why or without_secrets(answer.reason, *secrets)
        hint = _HINTS.get(code) if isinstance(code, str) else None
        hint = hint or _HINTS.get(answer.status, "")
        if code == _UNSUPPORTED_GRANT:
            hint += f" sasl_oauthbearer_grant_type={self._options.sasl_oauthbearer_grant_type}"
        if 300 <= answer.status < 400:
            place = without_query(answer.headers.get("location", ""))
            hint = f"redirects are not followed: give {printable(without_secrets(place, *secrets), 200)}"
        text = f"token endpoint {self._name}: HTTP {answer.status} {why}{f' ({hint})' if hint else ''}"
        is_passing = answer.status >= 500 or answer.status == _TOO_MANY
        return ConnectionLostError(text) if is_passing else AuthenticationError(text)

    def _read_answer(self, body: bytes) -> BearerToken:
        fields = _json_object(body)
        token = next((fields[name] for name in _TOKEN_NAMES if isinstance(fields.get(name), str)), None)
        if not token:
            raise AuthenticationError(
                f"token endpoint {self._name}: HTTP 200 without access_token in {len(body)} bytes (is it the token "
                "endpoint?)"
            )
        return self._with_extensions(token.strip(), _seconds(fields.get("expires_in")))

    def _with_extensions(self, token: str, lifetime_s: float | None) -> BearerToken:
        if lifetime_s is None and not self._url.startswith("file:"):  # a file is read for each login
            lifetime_s = lifetime_of(token, wall_s())
        return BearerToken(token, self._extensions, lifetime_s)

    def _read_file(self) -> str:
        path = urllib.parse.unquote(urllib.parse.urlsplit(self._url).path)
        try:
            return read_secret_file(path).strip()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"sasl_oauthbearer_token_endpoint_url={self._name} cannot be read: {error}") from None


def _percent_encoded(url: str) -> str:
    """Return an address whose path and query can be sent; what is percent-encoded in them stays."""
    parts = urllib.parse.urlsplit(url)
    path, query = (urllib.parse.quote(part, safe=_SENT_AS_IT_IS) for part in (parts.path, parts.query))
    return urllib.parse.urlunsplit((*parts[:2], path, query, ""))


def parse_extensions(text: str) -> dict[str, str]:
    """Read `name=value,name=value`.

    Raises:
        ConfigError: A part has no `=`.
    """
    extensions: dict[str, str] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, equals, value = part.partition("=")
        if not equals:
            raise ConfigError(f"sasl_oauthbearer_extensions: {part!r} is not name=value")
        extensions[name.strip()] = value.strip()
    return extensions


def lifetime_of(token: str, now_s: float) -> float | None:
    """Return the seconds until a JSON web token ends, by its claim `exp`; None if it has none that can be read."""
    parts = token.split(".")
    if len(parts) != 3:
        return None
    try:
        claims = base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4))
    except ValueError:
        return None
    end_s = _seconds(_json_object(claims).get("exp"))
    return None if end_s is None else max(end_s - now_s, 0.0)


def _seconds(value: Any) -> float | None:
    try:
        seconds = float(value)
    except (TypeError, ValueError):
        return None
    return seconds if 0 < seconds < 1e12 and not isinstance(value, bool) else None


def _json_object(body: bytes) -> dict[str, Any]:
    try:
        fields = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return fields if isinstance(fields, dict) else {}
