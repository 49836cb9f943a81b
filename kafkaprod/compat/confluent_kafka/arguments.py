"""Arguments of calls as confluent-kafka takes them: keys, values, headers, timeouts, messages of batches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def check_message(index: int, message: Any) -> None:
    """Refuse a message of produce_batch() before any is queued."""
    if not isinstance(message, dict):
        raise TypeError(f"Message at index {index} must be a dict")
    for name in ("value", "key"):
        if not isinstance(message.get(name), str | bytes | bytearray | memoryview | None):
            raise TypeError(f"Message {name} at index {index} must be bytes or str")
    if not isinstance(message.get("partition", -1), int):
        raise TypeError(f"Message partition at index {index} must be int")


def limit(timeout: float) -> float | None:
    """Return a time limit in seconds; None: the engine's own, for a negative one."""
    return None if timeout < 0 else timeout


def dotted(name: str) -> str:
    """Return an option given as an argument: underscores are dots, but in callbacks' names."""
    is_plain = name.endswith(("_cb", "_level")) or name in ("on_delivery", "logger")
    return name if is_plain else name.replace("_", ".")


def encoded(data: Any) -> Any:
    """Return a key or a value as bytes. Raises TypeError."""
    if isinstance(data, str):
        return data.encode()
    if data is None or isinstance(data, bytes | bytearray | memoryview):
        return data
    raise TypeError(f"a bytes-like object is required, not '{type(data).__name__}'")


def pairs(headers: Any) -> list[tuple[str, Any]] | None:
    """Return headers, a dict or a list of pairs, as pairs of text and bytes. Raises TypeError."""
    if headers is None:
        return None
    if isinstance(headers, Mapping):
        headers = list(headers.items())
    if not isinstance(headers, list):
        raise TypeError(f"expected headers to be dict or list of (key, value) tuples, not {type(headers).__name__}")
    for item in headers:
        if not isinstance(item, tuple) or len(item) != 2 or not isinstance(item[0], str):
            raise TypeError("headers must be pairs of text and bytes, text or None")
    return [(name, encoded(content)) for name, content in headers]
