"""What the log refuses, each with the Kafka error code the client must see.

BrokerError
  LogError                  .code and .name are Kafka's
    RecordsRefusedError     the batch breaks a rule; .record_errors lists the failing records
    OffsetOutOfRangeError   the offset is outside [log start offset, log end offset]
    PartitionFencedError    the partition takes no more appends: its bytes or its disk are damaged
    DirectoryLockedError    another broker uses the log directory
    LogDirectoryFailedError the log directory cannot be used; others of the broker can
"""

from __future__ import annotations

from typing import Any, NamedTuple

from kafkaprod.errors import BrokerError
from kafkaprod.protocol.error_codes import ErrorCode


class RecordError(NamedTuple):
    """One failing record of a refused batch, by its index in the batch (produce v8+, KIP-467)."""

    batch_index: int
    message: str


class LogError(BrokerError):
    """The log refused an operation; nothing was changed."""

    def __init__(self, code: ErrorCode, message: str, **context: Any) -> None:
        super().__init__(message, code=int(code), name=code.name, **context)

    @classmethod
    def of_disk(cls, what: str, error: OSError) -> LogError:
        """The error a client sees when the disk refused an operation; raise it from `error`."""
        return LogError(ErrorCode.KAFKA_STORAGE_ERROR, f"{what}: {error}")


class RecordsRefusedError(LogError):
    """A batch breaks a rule of the log; nothing of it was written.

    Attributes:
        record_errors: The failing records, empty when the batch as a whole is at fault.
    """

    def __init__(
        self, code: ErrorCode, message: str, record_errors: tuple[RecordError, ...] = (), **context: Any
    ) -> None:
        super().__init__(code, message, **context)
        self.record_errors = record_errors


class OffsetOutOfRangeError(LogError):
    """The offset is below the log start offset or above the log end offset."""

    def __init__(self, message: str, **context: Any) -> None:
        super().__init__(ErrorCode.OFFSET_OUT_OF_RANGE, message, **context)


class PartitionFencedError(LogError):
    """The partition takes no appends: damage was found or a sync failed. Restart the broker, or repair the log."""

    def __init__(self, message: str, **context: Any) -> None:
        super().__init__(ErrorCode.KAFKA_STORAGE_ERROR, message, **context)


class LogDirectoryFailedError(LogError):
    """The partition is in a log directory that failed. The broker's other directories are used on."""

    def __init__(self, message: str, **context: Any) -> None:
        super().__init__(ErrorCode.KAFKA_STORAGE_ERROR, message, **context)


class DirectoryLockedError(LogError):
    """Another broker uses the log directory; nothing was touched."""

    def __init__(self, message: str, **context: Any) -> None:
        super().__init__(ErrorCode.KAFKA_STORAGE_ERROR, message, **context)
