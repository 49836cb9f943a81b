"""Which error code a client sees where versions of a request differ. Shared by the handlers of transactions."""

from __future__ import annotations

from kafkaprod.protocol.error_codes import ErrorCode

COORDINATOR_LOST = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NETWORK_EXCEPTION,
    }
)


def for_version(error: ErrorCode, version: int, first_with_fenced: int) -> ErrorCode:
    """The code of a refused coordinator request: INVALID_PRODUCER_EPOCH where a client is too old for PRODUCER_FENCED.

    Source: KIP-588.
    """
    if error is ErrorCode.PRODUCER_FENCED and version < first_with_fenced:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return error
