from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import disjoint_base

from kafkaprod._core.queues.completion import DeliveryFuture
from kafkaprod.errors import InvalidRecordError
from kafkaprod.structs import RecordMetadata

@disjoint_base
class SerializerCall:
    field: str
    takes_headers: bool
    def __init__(
        self, function: Callable[..., Any], form: str, field: str, name: str, context_type: type | None = None
    ) -> None: ...
    def __call__(self, topic: str, headers: Any, data: Any) -> bytes | bytearray | memoryview | None: ...
    def rows(self, topic: str, headers: list[Any] | None, data: list[Any]) -> list[Any]: ...

@disjoint_base
class InterceptorCalls:
    failure_count: int
    sees_records: bool
    def __init__(self, interceptors: Iterable[Any], record_type: type) -> None: ...
    def __bool__(self) -> bool: ...
    def on_send(self, record: Any) -> Any: ...
    def on_acknowledgement(self, metadata: RecordMetadata, error: BaseException | None = None) -> None: ...
    def watch_outcome(self, future: DeliveryFuture) -> None: ...
    def on_refused(self, topic: str, partition: int | None, error: BaseException) -> None: ...
    def note_failure(self, interceptor: Any, method: str, error: BaseException) -> None: ...

@disjoint_base
class PartitionerCall:
    def __init__(self, partitioner: Any) -> None: ...
    def choose(self, topic: str, key: Any, value: Any, leaders: Sequence[int]) -> int: ...
    def choose_rows(
        self,
        topic: str,
        keys: Iterable[Any] | None,
        values: Iterable[Any],
        leaders: Sequence[int],
        out: NDArray[np.int32],
    ) -> None: ...
    def available_of(self, topic: str, leaders: Sequence[int]) -> tuple[int, ...]: ...
    def failed(self, topic: str, error: BaseException) -> InvalidRecordError: ...
    def out_of_range(self, topic: str, partition: int, count: int, which: str = "") -> InvalidRecordError: ...

@disjoint_base
class RecordHooks:
    key_serializer: SerializerCall | None
    value_serializer: SerializerCall | None
    partitioner: PartitionerCall | None
    chain: InterceptorCalls | None
    takes_headers: bool
    only_serializes: bool
    has_any: bool
    def __init__(
        self,
        key_serializer: SerializerCall | None = None,
        value_serializer: SerializerCall | None = None,
        partitioner: PartitionerCall | None = None,
        chain: InterceptorCalls | None = None,
    ) -> None: ...

@disjoint_base
class HookedRecord:
    record: Any
    is_prepared: bool
    def append(self, ticket: int) -> DeliveryFuture | None: ...
    def need(self) -> int: ...

def headers_list(headers: Any) -> Any: ...
