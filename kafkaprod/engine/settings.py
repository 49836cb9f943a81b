"""What the engine needs of the configuration."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """Options of the sender thread; names and units as in the configuration.

    Attributes:
        preferred_rack: Records without a key go to leaders in it where possible; None: no preference.
        keeps_producer_id: One id and epoch for ever: what would need a newer epoch fails.
        checks_cluster: Whether brokers are sent the cluster they are expected to belong to (KIP-1242).
    """

    acks: int = -1
    retries: int = 0x7FFFFFFF
    request_timeout_ms: int = 30_000
    delivery_timeout_ms: int = 120_000
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1000
    enable_idempotence: bool = True
    preferred_rack: str | None = None
    keeps_producer_id: bool = False
    checks_cluster: bool = True
