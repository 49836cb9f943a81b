from collections.abc import Iterable

from typing_extensions import Buffer

READY_SET: str

def send(fd: int, buffers: Iterable[Buffer]) -> int: ...
def receive_into(fd: int, target: Buffer) -> int | None: ...
