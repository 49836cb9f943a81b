"""Events of a client connection as a whole. Frozen. The outcomes of requests are not events: see `in_flight`."""

from __future__ import annotations

from dataclasses import dataclass, field

from kafkaprod.errors import KafkaError
from kafkaprod.protocol.negotiation import BrokerVersions


@dataclass(frozen=True, slots=True)
class SaslChallenge:
    """The login needs the mechanism's next token: answer with `sasl_token` or `sasl_complete`.

    Attributes:
        challenge: The server's message; None requests the first token of a new exchange.
    """

    challenge: bytes | None = field(repr=False)


@dataclass(frozen=True, slots=True)
class ConnectionReady:
    """The handshake is complete: requests may be sent. Occurs once."""

    versions: BrokerVersions


@dataclass(frozen=True, slots=True)
class SessionReauthenticated:
    """A re-authentication succeeded: requests may be sent again.

    Attributes:
        latency_ms: Its duration, from the last answer before it.
    """

    latency_ms: int


@dataclass(frozen=True, slots=True)
class ConnectionFailed:
    """The connection has ended; the last event. `error` is an AuthenticationError if the login was refused."""

    error: KafkaError


Event = SaslChallenge | ConnectionReady | SessionReauthenticated | ConnectionFailed
