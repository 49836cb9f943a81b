"""The producer of a command at a terminal, where Ctrl-C brings the prompt back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from kafkaprod.producer import Producer

INTERRUPTED_S: Final = 0.4  # for what is on its way


@contextmanager
def command_producer(options: Mapping[str, Any]) -> Iterator[Producer]:
    """A producer that is flushed and closed at the end of the block; Ctrl-C gives what is queued INTERRUPTED_S.

    Raises:
        DeliveryFailedError: A record was not delivered. And what ends the block.
    """
    patience_s: float | None = None
    producer = Producer(options)
    try:
        yield producer
        producer.flush()
    except KeyboardInterrupt:
        patience_s = INTERRUPTED_S
        raise
    finally:
        producer.close(patience_s)
