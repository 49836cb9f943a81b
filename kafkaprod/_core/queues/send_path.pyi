from collections.abc import Callable
from typing import Any

from typing_extensions import disjoint_base

from kafkaprod._core.queues.accumulator import Accumulator
from kafkaprod._core.queues.completion import DeliveryFuture
from kafkaprod._core.queues.record_hooks import HookedRecord, RecordHooks
from kafkaprod._core.records.record_arguments import _Headers

@disjoint_base
class RecordSender:
    accumulator: Accumulator
    def __init__(
        self,
        accumulator: Accumulator,
        send_general: Callable[..., DeliveryFuture],
        hooks: RecordHooks | None = None,
        send_hooked: Callable[[HookedRecord], DeliveryFuture] | None = None,
    ) -> None: ...
    def begin_send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        headers: _Headers | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> DeliveryFuture | HookedRecord | None: ...
    def try_send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        headers: _Headers | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> DeliveryFuture | None: ...
    def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        headers: _Headers | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> DeliveryFuture: ...
