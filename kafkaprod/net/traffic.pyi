from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from typing_extensions import disjoint_base

from kafkaprod.clock import Clock
from kafkaprod.errors import KafkaError
from kafkaprod.net.network import Readiness
from kafkaprod.protocol.frames import MAX_FRAME_BYTES as MAX_FRAME_BYTES
from kafkaprod.protocol.in_flight import InFlightRequest, OnDone
from kafkaprod.protocol.primitives import ByteChain
from kafkaprod.protocol.schema import Request
from kafkaprod.structs import BytesLike

@disjoint_base
class Traffic:
    _states: dict[int, Any]
    _finished: list[InFlightRequest]
    _touched: dict[Any, None]
    _clock: Clock
    _poller: Readiness
    _run_background: Callable[[], None]
    _has_failed: bool
    _is_closed: bool
    _next_timer_ms: int
    _max_idle_ms: int
    _max_in_flight: int
    def __init__(self, clock: Clock) -> None: ...
    def is_ready(self, node_id: int, now_ms: int) -> bool: ...
    def api_version(self, node_id: int, api_key: int, our_min: int, our_max: int) -> int | None: ...
    def in_flight_count(self, node_id: int) -> int: ...
    def send(
        self,
        node_id: int,
        request: Request,
        *,
        on_done: OnDone,
        now_ms: int,
        timeout_ms: int,
        version: int | None = None,
    ) -> None: ...
    def send_body(
        self,
        node_id: int,
        api_key: int,
        version: int,
        parts: Sequence[BytesLike | ByteChain],
        size: int,
        *,
        on_done: OnDone,
        now_ms: int,
        timeout_ms: int,
        expects_response: bool = True,
        max_response_bytes: int = ...,
    ) -> None: ...
    def poll(self, timeout_ms: float) -> list[InFlightRequest]: ...
    def _connect(self, link: Any, now_ms: int) -> None: ...
    def _owner_of(self, connection: Any) -> Any: ...
    def _refuse(self, link: Any, request: Request, lowest: int, highest: int, on_done: OnDone, now_ms: int) -> None: ...
    def _raise_not_ready(self, node_id: int) -> NoReturn: ...
    def _check_open(self) -> None: ...
    def _run_timers(self, now_ms: int) -> None: ...
    def _collect(self, now_ms: int) -> None: ...
    def _take_finished(self, now_ms: int) -> list[InFlightRequest]: ...
    def disconnect(self, node_id: int, error: KafkaError) -> None: ...
