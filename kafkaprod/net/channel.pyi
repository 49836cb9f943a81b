from typing import Any

from typing_extensions import disjoint_base

from kafkaprod.metrics.sums import NodeCounters

@disjoint_base
class Channel:
    protocol: Any
    failure: Any
    has_answered: bool
    last_active_ms: int
    _transport: Any
    _fd: int
    _interest: int
    _is_plain: bool
    _is_open: bool
    _metrics: NodeCounters
    _receive_buffer: memoryview | None
    def flush(self, now_ms: int) -> None: ...
    def _advance(self, now_ms: int) -> None: ...
    def _update_interest(self) -> None: ...
    def _handle_events(self) -> None: ...
    def _close_for(self, error: Exception | None, what: str) -> None: ...
    def _on_receive_error(self, error: OSError) -> None: ...
    def _on_end_of_stream(self) -> None: ...

@disjoint_base
class Link:
    connection: Any
    metrics: NodeCounters
    throttled_until_ms: int
    is_steady: bool
    def can_send(self, now_ms: int, max_in_flight: int) -> bool: ...
