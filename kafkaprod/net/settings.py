"""What the network layer needs of the configuration."""

from __future__ import annotations

import ssl
from dataclasses import dataclass

from kafkaprod.retry import ExponentialBackoff
from kafkaprod.security.sasl import MechanismFactory


@dataclass(frozen=True, slots=True)
class ConnectionSettings:
    """Settings of all connections of one client. Times in ms; names and defaults are Kafka's.

    Attributes:
        client_id: Shows up in the broker's logs, metrics and quotas.
        software_name: Ours, told to the broker (KIP-511).
        software_version: Likewise.
        tls: Context for TLS; None: plain TCP.
        mechanism: Makes a SASL mechanism for each login; None: no login.
        max_in_flight: Requests without an answer, per broker.
        request_timeout_ms: Bound of each answer of the handshake; other requests bring their own.
        reconnect_backoff_ms: First wait before connecting again.
        reconnect_backoff_max_ms: Longest such wait.
        connection_setup_timeout_ms: First bound of a connect, until the handshake is complete.
        connection_setup_timeout_max_ms: Bound after repeated failures.
        connections_max_idle_ms: A connection unused for so long is closed.
        send_buffer_bytes: SO_SNDBUF; -1 lets the kernel choose.
        receive_buffer_bytes: SO_RCVBUF; -1 lets the kernel choose.
    """

    client_id: str | None = "kafkaprod"
    software_name: str = "kafkaprod"
    software_version: str = "0"
    tls: ssl.SSLContext | None = None
    mechanism: MechanismFactory | None = None
    max_in_flight: int = 5
    request_timeout_ms: int = 30_000
    reconnect_backoff_ms: int = 50
    reconnect_backoff_max_ms: int = 1000
    connection_setup_timeout_ms: int = 10_000
    connection_setup_timeout_max_ms: int = 30_000
    connections_max_idle_ms: int = 540_000
    send_buffer_bytes: int = -1
    receive_buffer_bytes: int = -1

    @property
    def reconnect_backoff(self) -> ExponentialBackoff:
        """The wait before attempt n."""
        return ExponentialBackoff(self.reconnect_backoff_ms, self.reconnect_backoff_max_ms)

    @property
    def setup_timeout(self) -> ExponentialBackoff:
        """The bound of attempt n (KIP-601)."""
        return ExponentialBackoff(self.connection_setup_timeout_ms, self.connection_setup_timeout_max_ms)
