"""Events of a client connection as a whole. Frozen. The outcomes of requests are not events: see `in_flight`."""

from __future__ import annotations

from typing import NamedTuple

from kafkaprod.errors import KafkaError
from kafkaprod.protocol.negotiation import BrokerVersions


class SaslChallenge(NamedTuple):
    """The login needs the mechanism's next token: answer with `sasl_token` or `sasl_complete`.

    Attributes:
        challenge: The server's message; None requests the first token of a new exchange.
    """

    challenge: bytes | None

    def __repr__(self) -> str:
        return "SaslChallenge()"


class ConnectionReady(NamedTuple):
    """The handshake is complete: requests may be sent. Occurs once."""

    versions: BrokerVersions


class SessionReauthenticated(NamedTuple):
    """A re-authentication succeeded: requests may be sent again.

    Attributes:
        latency_ms: Its duration, from the last answer before it.
    """

    latency_ms: int


class ConnectionFailed(NamedTuple):
    """The connection has ended; the last event. `error` is an AuthenticationError if the login was refused."""

    error: KafkaError


Event = SaslChallenge | ConnectionReady | SessionReauthenticated | ConnectionFailed
