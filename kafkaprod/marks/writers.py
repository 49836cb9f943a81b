"""What makes writes: a client that looks and a producer that sends, kept from one write of a producer to the next.

A kept one has its connections, and the memory of its batches. Its producer takes the transactional id of each write.
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

from kafkaprod.admin.client import ClusterClient
from kafkaprod.config import ProducerConfig

if TYPE_CHECKING:
    from kafkaprod.engine.host import EngineHost
    from kafkaprod.engine.transactions.identity import TransactionalIdentity
    from kafkaprod.intake.blocks import BlockIntake
    from kafkaprod.producer import Producer

logger = logging.getLogger("kafkaprod.marks")

MOST_KEPT: Final = 4  # by one producer: as many writes at the same time find one


class WritingProducer(NamedTuple):
    """What sends the rows of one write at a time: a producer of its own, and its parts."""

    producer: Producer
    blocks: BlockIntake
    transactions: TransactionalIdentity


MakeWriter = Callable[[ProducerConfig], WritingProducer]


class KeptWriter:
    """Makes one write at a time. Not thread-safe.

    Args:
        config: That of the producer whose writes these are.
        make: Makes the producer that sends.

    Attributes:
        client: Looks for marks.
    """

    def __init__(self, config: ProducerConfig, make: MakeWriter) -> None:
        self.config = config
        self._make = make
        self._sending: WritingProducer | None = None
        self.client = ClusterClient(config)
        self._finalizer = weakref.finalize(self, self.client.close)
        self._finalizer.atexit = False

    def start(self, transactional_id: str) -> WritingProducer:
        """Return the producer, which has this transactional id from now on: `init_transactions` comes first."""
        if self._sending is None:
            config = ProducerConfig.from_options(
                self.config, transactional_id=transactional_id, interceptors=(), spool_dir=None
            )
            self._sending = self._make(config)
        else:
            self._sending.transactions.take_name(transactional_id)
        return self._sending

    def close(self) -> None:
        """End the connections; everything has its outcome. An open transaction is left to the next try."""
        try:
            if self._sending is not None:
                self._sending.producer.close(0)
        except TimeoutError as error:
            logger.warning("what made a write has not ended: %s", error)  # its producer must be closed, too
        finally:
            self._finalizer()


class Writers:
    """The writers of one producer. Thread-safe.

    Args:
        config: That of the producer, as it is now.
        make: Makes the producer that sends.
        kept: Those that wait for their next write; the producer's, which closes them with itself.
        host: Says whether the producer is closed.
    """

    def __init__(self, config: ProducerConfig, make: MakeWriter, kept: list[KeptWriter], host: EngineHost) -> None:
        self._config = config
        self._make = make
        self._kept = kept
        self._host = host

    def take(self) -> KeptWriter:
        """Return one that nothing else uses."""
        while self._kept:
            try:
                writer = self._kept.pop()
            except IndexError:  # another thread was faster
                break
            if writer.config is self._config:
                return writer
            writer.close()  # it has the user name and the password of before
        return KeptWriter(self._config, self._make)

    def give_back(self, writer: KeptWriter) -> None:
        """Keep one that has ended its transaction well, or has begun none."""
        if len(self._kept) < MOST_KEPT:
            self._kept.append(writer)
        else:
            writer.close()
        if self._host.is_closed:  # while the write was made
            close_all(self._kept)


def close_all(kept: list[KeptWriter]) -> None:
    """Close those that wait for a write. Thread-safe."""
    while kept:
        try:
            writer = kept.pop()
        except IndexError:  # another thread was faster
            return
        writer.close()
