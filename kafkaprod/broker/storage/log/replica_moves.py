"""The moves of partitions between the log directories of a broker: one after the other, in their order.

Thread-safe: one lock guards the table; a move has its own.
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable, Collection, Iterator
from functools import partial

from kafkaprod.broker.storage.errors import LogError
from kafkaprod.broker.storage.log.replica_move import ReplicaMove
from kafkaprod.structs import TopicPartition

logger = logging.getLogger(__name__)


class ReplicaMoves:
    """See the module docstring. As a collection it has the moves that are not over.

    Attributes:
        wait: Set when there is something to move.
        may_complete: Whether a partition that moves may be in the directory of that id now; of the thread that moves.
        on_given_up: Called with a partition whose move has ended, and that stays where it is.
    """

    def __init__(self) -> None:
        self.wait = threading.Event()
        self.may_complete: Callable[[TopicPartition, uuid.UUID], bool] = lambda _, __: True
        self.on_given_up: Callable[[TopicPartition], None] = lambda _: None
        self._lock = threading.Lock()
        self._moves: dict[TopicPartition, ReplicaMove] = {}  # guarded by _lock

    def __iter__(self) -> Iterator[ReplicaMove]:
        with self._lock:
            return iter(list(self._moves.values()))

    def __len__(self) -> int:
        return len(self._moves)

    @property
    def keys(self) -> Collection[TopicPartition]:
        """The partitions that move now."""
        return self._moves.keys()

    def get(self, topic_partition: TopicPartition) -> ReplicaMove | None:
        """The move of a partition, None if it does not move."""
        return self._moves.get(topic_partition)

    def begin(self, move: ReplicaMove) -> None:
        """Add a move."""
        with self._lock:
            self._moves[move.log.topic_partition] = move
        self.wait.set()

    def cancel(self, topic_partition: TopicPartition) -> None:
        """Give a partition's move up, if it has one, and have its copy deleted.

        Raises:
            LogError: KAFKA_STORAGE_ERROR, the copy could not be renamed.
        """
        with self._lock:
            move = self._moves.pop(topic_partition, None)
        if move is not None:
            move.cancel()
            self.on_given_up(topic_partition)

    def step(self, max_bytes: int) -> int:
        """Copy some records of the move that comes next; return how many bytes. A move that fails is given up."""
        move = next(iter(self), None)
        if move is None:
            return 0
        copied, key, is_given_up = 0, move.log.topic_partition, False
        try:
            copied = move.step(max_bytes, partial(self.may_complete, key, move.target.directory_id))
        except (LogError, OSError) as error:
            logger.error("%s cannot move to %r: %s", key, move.target.path, str(error))
            _give_up(move)
            is_given_up = True
        if move.is_over:
            with self._lock:
                if self._moves.get(key) is move:
                    del self._moves[key]
        if is_given_up:
            self.on_given_up(key)
        return copied

    def close(self) -> None:
        """Close the copies; the next start continues with them."""
        with self._lock:
            moves = list(self._moves.values())
            self._moves.clear()
        for move in moves:
            move.close()


def _give_up(move: ReplicaMove) -> None:
    """End a move that failed. If the partition cannot be read, its copy stays: the next start continues."""
    try:
        if move.log.is_offline:
            move.close()
        else:
            move.cancel()
    except (LogError, OSError) as error:
        logger.error("the copy in %r is left over: %s", move.directory, str(error))
