"""Requests and responses of a client's SASL login. The mechanism makes and reads the tokens.

Source: KIP-43, KIP-152 (SaslHandshake 1, SaslAuthenticate), KIP-368 (session lifetime).
"""

from __future__ import annotations

from collections.abc import Callable

from kafkaprod.errors import AuthenticationError, printable
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.error_codes import ErrorCode, error_for
from kafkaprod.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from kafkaprod.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from kafkaprod.protocol.negotiation import BrokerVersions

HANDSHAKE_VERSION = 1  # after version 0, tokens follow without a header
REAUTHENTICATION_WINDOW = (0.85, 0.95)  # share of the session's lifetime (KIP-368)
MIN_REAUTHENTICATION_MS = 1_100  # Kafka refuses a second re-authentication within a second of the first's begin
MAX_REASON_CHARACTERS = 200


def authenticate_version(versions: BrokerVersions) -> int:
    """Return the version of SaslAuthenticate to use.

    Raises:
        AuthenticationError: The broker does not support logins here.
    """
    handshake = versions.usable_version(ApiKey.SASL_HANDSHAKE, HANDSHAKE_VERSION, HANDSHAKE_VERSION)
    version = versions.usable_version(ApiKey.SASL_AUTHENTICATE, *SaslAuthenticateRequest.versions)
    if handshake is None or version is None:
        raise AuthenticationError(
            "the broker offers no SaslHandshake 1 and SaslAuthenticate: it is not a SASL listener"
        )
    return version


def handshake_request(mechanism: str | None) -> SaslHandshakeRequest:
    """Make the request for the mechanism. Only the configuration chooses it, never the broker's offer."""
    if mechanism is None:
        raise AuthenticationError("no SASL mechanism is configured")
    return SaslHandshakeRequest(mechanism=mechanism)


def check_mechanism(body: memoryview, mechanism: str | None) -> None:
    """Read the answer to `handshake_request`.

    Raises:
        AuthenticationError: The broker does not accept the mechanism; the message lists those it offers.
    """
    response = SaslHandshakeResponse.decode(body, HANDSHAKE_VERSION)
    if response.error_code:
        offered = printable(", ".join(response.mechanisms)) or "none"
        about = f"{mechanism} is not among {offered}"
        if response.error_code == ErrorCode.ILLEGAL_SASL_STATE:
            about = "the broker takes no login here: it is not a SASL listener"
        raise error_for(response.error_code, about=about, api="SASL_HANDSHAKE")


def read_token(body: memoryview, version: int) -> tuple[bytes, int]:
    """Read a SaslAuthenticate response: the server's token, and the session's lifetime in ms (0: unlimited).

    Raises:
        AuthenticationError: The broker refused the credentials.
        BrokerError: It failed otherwise.
    """
    response = SaslAuthenticateResponse.decode(body, version)
    if response.error_code:
        reason = printable(response.error_message or "", MAX_REASON_CHARACTERS)
        raise error_for(response.error_code, reason, api="SASL_AUTHENTICATE")
    return bytes(response.auth_bytes), response.session_lifetime_ms


def reauthenticate_after_ms(lifetime_ms: int, random: Callable[[], float]) -> int:
    """Return how long after a login to begin the next one; spread, so that not all clients log in at once."""
    earliest, latest = REAUTHENTICATION_WINDOW
    return int(lifetime_ms * (earliest + (latest - earliest) * random()))
