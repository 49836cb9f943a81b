"""The error a request handler raises to answer a Kafka error code; it is turned into a response in the handler."""

from __future__ import annotations

from kafkaprod.errors import BrokerError
from kafkaprod.protocol.error_codes import ErrorCode


class RequestRefusedError(BrokerError):
    """The broker refuses a request; nothing was changed."""

    def __init__(self, error_code: ErrorCode, message: str) -> None:
        super().__init__(message, code=int(error_code), name=error_code.name)
