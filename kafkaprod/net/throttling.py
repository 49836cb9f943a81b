"""Which answers ask the client to hold back, and for how long (KIP-219)."""

from __future__ import annotations

from typing import Final

from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.in_flight import InFlightRequest

MAX_THROTTLE_MS: Final = 60_000
"""The longest pause that one answer may demand; Kafka's quotas throttle for some seconds at most."""

_CLIENT_THROTTLED_FROM: Final[dict[int, int]] = {
    ApiKey.METADATA: 6,
    ApiKey.FIND_COORDINATOR: 2,
    ApiKey.API_VERSIONS: 2,
    ApiKey.CREATE_TOPICS: 3,
    ApiKey.DELETE_TOPICS: 2,
    ApiKey.INIT_PRODUCER_ID: 1,
    ApiKey.ADD_PARTITIONS_TO_TXN: 1,
    ApiKey.ADD_OFFSETS_TO_TXN: 1,
    ApiKey.END_TXN: 1,
    ApiKey.TXN_OFFSET_COMMIT: 1,
    ApiKey.CREATE_PARTITIONS: 1,
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: 0,
    ApiKey.PUSH_TELEMETRY: 0,
}
"""First version after which the broker answers first and expects the client to hold back; below it the broker delays
the response itself. Produce is left to the sender, which decodes its responses."""
_NEVER: Final = 1 << 15


def throttle_of(request: InFlightRequest) -> int:
    """Return for how long (ms) the answer of a request wants the client to send nothing."""
    throttle_ms: int = getattr(request.response, "throttle_time_ms", 0)
    is_for_client = request.version >= _CLIENT_THROTTLED_FROM.get(request.api_key, _NEVER)
    return throttle_ms if is_for_client else 0
