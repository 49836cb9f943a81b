from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Self, TypeAlias, final

from kafkaprod.errors import KafkaError
from kafkaprod.protocol.frames import MAX_FRAME_BYTES as MAX_FRAME_BYTES
from kafkaprod.protocol.schema import Response

OnDone: TypeAlias = Callable[[InFlightRequest, int], object]

@final
class InFlightRequest:
    node_id: int
    on_done: OnDone
    api_key: int
    version: int
    correlation_id: int
    sent_at_ms: int
    deadline_ms: int
    expects_response: bool
    response_type: type[Response] | None
    max_response_bytes: int
    end_position: int
    written_at_ms: int
    response: Any
    body: memoryview | None
    error: KafkaError | None
    is_possibly_persisted: bool
    latency_ms: int
    latest_deadline_ms: int
    def __new__(
        cls,
        node_id: int,
        on_done: OnDone,
        api_key: int,
        version: int,
        correlation_id: int,
        sent_at_ms: int,
        deadline_ms: int,
        expects_response: bool = True,
    ) -> Self: ...
    @property
    def write_ms(self) -> int: ...

@final
class InFlightRequests:
    @property
    def requests(self) -> deque[InFlightRequest]: ...
    def __new__(cls) -> Self: ...
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[InFlightRequest]: ...
    def add(self, request: InFlightRequest) -> None: ...
    def next_answered(self) -> InFlightRequest | None: ...
    def answered_by(self, correlation_id: int, sent_position: int) -> InFlightRequest: ...
    def remove(self, request: InFlightRequest) -> None: ...
    def move_sent_without_response(self, sent_position: int, target: list[InFlightRequest]) -> None: ...
    def expired(self, now_ms: int) -> InFlightRequest | None: ...
    def next_deadline_ms(self) -> int | None: ...
    def extend_deadlines(self, extra_ms: int) -> None: ...
