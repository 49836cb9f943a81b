"""What frameworks and instrumentation look up in `AIOKafkaProducer.client`: addresses, client id, metadata."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any


class Client:
    """The part of aiokafka's AIOKafkaClient that FastStream, OpenTelemetry and ddtrace read, by its names.

    It takes further attributes, as theirs does: ddtrace keeps some there.

    Args:
        bootstrap_servers: As the producer got them.
        client_id: Its name in the brokers' logs.
        partitions_for: Waits for a topic's metadata and returns its partitions.
    """

    def __init__(
        self, bootstrap_servers: Any, client_id: str | None, partitions_for: Callable[[str], Awaitable[set[int]]]
    ) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._client_id = client_id or "kafkaprod"
        self._partitions_for = partitions_for

    async def _wait_on_metadata(self, topic: str) -> set[int]:
        """Wait until a topic is known; return its partitions. Raises aiokafka's errors."""
        return await self._partitions_for(topic)
