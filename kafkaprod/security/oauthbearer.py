"""OAUTHBEARER: login with a bearer token that the caller's provider fetches. Source: RFC 7628; KIP-255.

The provider is the caller's code, or `token_cache.TokenCache` over `token_endpoint.TokenEndpoint`. It is called for
each login, so a re-authentication sends the token that is valid then.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from kafkaprod.errors import AuthenticationError, ConfigError, KafkaError

MAX_ERROR_BYTES = 4096

_TOKEN = re.compile(r"[A-Za-z0-9\-._~+/]+=*")  # RFC 6750 section 2.1: b64token
_EXTENSION_NAME = re.compile(r"[A-Za-z]+")
_EXTENSION_VALUE = re.compile(r"[\x21-\x7e \t\r\n]*")


@dataclass(frozen=True, slots=True)
class BearerToken:
    """A token and the SASL extensions (KIP-342) to send with it.

    Attributes:
        lifetime_s: Seconds for which it is valid, from when it was fetched; None: not known.
    """

    value: str = field(repr=False)
    extensions: Mapping[str, str] = field(default_factory=dict)
    lifetime_s: float | None = None


class TokenProvider(Protocol):
    """Fetches tokens. `token` may block; it is called off the I/O thread, once for each login."""

    def token(self) -> str | BearerToken:
        """Return a token that is valid now."""
        ...


class CallbackTokenProvider:
    """Adapts confluent-kafka's `oauth_cb`: called with a string, returns (token, expiry[, principal[, extensions]])."""

    def __init__(self, oauth_cb: Callable[[str], tuple[Any, ...]], oauthbearer_config: str = "") -> None:
        self._oauth_cb = oauth_cb
        self._config = oauthbearer_config

    def token(self) -> BearerToken:
        """Call the callback; the expiry is not needed because the broker announces the session's lifetime."""
        answer = self._oauth_cb(self._config)
        extensions = answer[3] if len(answer) > 3 and answer[3] else {}
        return BearerToken(str(answer[0]), dict(extensions))


class OAuthBearerMechanism:
    """One OAUTHBEARER login.

    Args:
        provider: Fetches the token.
    """

    name = "OAUTHBEARER"

    def __init__(self, provider: TokenProvider) -> None:
        self._provider = provider
        self._token: BearerToken | None = None
        self._has_failed = False

    def first(self) -> bytes:
        """Fetch a token and wrap it.

        Raises:
            AuthenticationError: The provider failed; its exception is the cause. An error of this package is raised
                as it is.
            ConfigError: The token or an extension holds characters that are not allowed.
        """
        try:
            answer = self._provider.token()
        except KafkaError:
            raise
        except Exception as error:
            raise AuthenticationError(f"the OAuth token provider raised {type(error).__name__}") from error
        token = BearerToken(answer) if isinstance(answer, str) else answer
        self._token = token
        if not _TOKEN.fullmatch(token.value):
            raise ConfigError(f"the OAuth token of {len(token.value)} characters is not an RFC 6750 bearer token")
        parts = ["n,,", f"auth=Bearer {token.value}"]
        for name, value in token.extensions.items():
            if not _EXTENSION_NAME.fullmatch(name) or name == "auth" or not _EXTENSION_VALUE.fullmatch(value):
                raise ConfigError(f"SASL extension {name!r} has a name or value that is not allowed")
            parts.append(f"{name}={value}")
        return "\x01".join([*parts, "\x01"]).encode()

    def step(self, challenge: bytes) -> bytes | None:
        """Complete the login after an empty answer; acknowledge anything else, a refusal, with one 0x01."""
        if self._has_failed:
            raise AuthenticationError("OAUTHBEARER server sent another message after its refusal")
        if not challenge:
            return None
        if len(challenge) > MAX_ERROR_BYTES:
            raise AuthenticationError(f"OAUTHBEARER refusal of {len(challenge)} bytes exceeds {MAX_ERROR_BYTES}")
        self._has_failed = True
        discard = getattr(self._provider, "discard", None)
        if discard is not None:
            discard(self._token)
        return b"\x01"
