"""What a log remembers of its failures: whether it still takes appends, and from where the next start must check it.

Not thread-safe: the partition's lock guards it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from kafkaprod.broker.storage.directory_health import DirectoryHealth
from kafkaprod.broker.storage.errors import LogError, PartitionFencedError
from kafkaprod.errors import CorruptDataError
from kafkaprod.protocol.error_codes import ErrorCode

T = TypeVar("T")


class Fence:
    """The fence of one partition.

    Attributes:
        reason: Why the partition takes no appends; None if it does.
        recovery_limit: The recovery point may not pass this offset any more; None while nothing has failed.
    """

    def __init__(self, name: str, synced_offset: Callable[[], int], health: DirectoryHealth) -> None:
        self.reason: str | None = None
        self.recovery_limit: int | None = None
        self._name = name
        self.follow(synced_offset, health)

    def follow(self, synced_offset: Callable[[], int], health: DirectoryHealth) -> None:
        """Guard a log that is in a log directory of this health."""
        self._synced_offset = synced_offset
        self._health = health

    @property
    def is_offline(self) -> bool:
        """Whether the log directory cannot be used."""
        return self._health.failure is not None

    def check_directory(self) -> None:
        """Raise LogDirectoryFailedError if the log directory cannot be used."""
        self._health.check()

    def check(self) -> None:
        """Raise PartitionFencedError if the partition takes no appends, LogDirectoryFailedError if its directory
        failed.
        """
        self._health.check()
        if self.reason is not None:
            raise PartitionFencedError(f"{self._name} takes no appends: {self.reason}")

    def close(self, reason: str) -> None:
        """Take no more appends, though nothing failed."""
        self.reason = self.reason or reason

    def trip(self, reason: str) -> None:
        """Take no more appends, because something failed."""
        self.reason = self.reason or reason
        self._limit_recovery(self._synced_offset())

    def guard_write(self, operation: Callable[[], T]) -> T:
        """Run a disk operation; remember its failure, and raise it as the error for the client.

        Raises:
            PartitionFencedError: The operation left the log in doubt; it is fenced.
            LogError: KAFKA_STORAGE_ERROR, the operation failed and changed nothing.
        """
        try:
            return operation()
        except PartitionFencedError as error:
            self.trip(str(error))
            raise
        except OSError as error:
            self._limit_recovery(self._synced_offset())
            raise LogError.of_disk(f"disk error in {self._name}", error) from error

    def guard_shortening(self, operation: Callable[[], T]) -> T:
        """Run a truncation; one that fails half-way fences the log.

        Raises:
            PartitionFencedError: It failed.
        """
        try:
            return self.guard_write(operation)
        except LogError as error:
            self.trip(f"truncation failed: {error}")
            raise PartitionFencedError(str(error)) from error

    def guard_read(self, operation: Callable[[], T]) -> T:
        """Run a read; damage it meets fences the log, and the next start reads everything.

        Raises:
            LogDirectoryFailedError: The log directory cannot be used.
            LogError: CORRUPT_MESSAGE, the bytes are damaged; KAFKA_STORAGE_ERROR, the disk or the descriptors failed,
                and nothing is fenced.
        """
        self._health.check()
        try:
            return operation()
        except CorruptDataError as error:
            self.trip(str(error))
            self._limit_recovery(0)
            raise LogError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error
        except OSError as error:
            raise LogError.of_disk(f"cannot read {self._name}", error) from error

    def _limit_recovery(self, offset: int) -> None:
        self.recovery_limit = offset if self.recovery_limit is None else min(self.recovery_limit, offset)
