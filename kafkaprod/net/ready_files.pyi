from collections.abc import Callable
from typing import Any

from typing_extensions import disjoint_base

from kafkaprod._core.machine.waking import Wakeup

@disjoint_base
class ReadyFiles:
    to_wake: list[Callable[[], None]]
    wakeup: Wakeup
    _data: dict[int, Any]
    _set_fd: int
    _wakeup_fd: int
    @property
    def poll_count(self) -> int: ...
    @property
    def wait_ns(self) -> int: ...
    def poll(self, timeout_ms: float | None) -> list[tuple[Any, int]]: ...
    def _select(self, timeout_ms: float | None) -> list[tuple[int, int]]: ...
