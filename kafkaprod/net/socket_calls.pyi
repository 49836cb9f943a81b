from collections.abc import Callable, Iterable

from typing_extensions import Buffer

READY_SET: str

def wait_ready(
    set_fd: int, timeout_ms: float | None = None, to_wake: list[Callable[[], None]] | None = None
) -> list[tuple[int, int]]: ...
def send(fd: int, buffers: Iterable[Buffer]) -> int: ...
def receive_into(fd: int, target: Buffer) -> int | None: ...
