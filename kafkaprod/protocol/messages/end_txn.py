"""EndTxn (26): commit or abort a transaction.

    2  may answer PRODUCER_FENCED     4  may answer TRANSACTION_ABORTABLE
    3  flexible                       5  answers the next id and epoch (KIP-890)

Source: KIP-98, KIP-890.

Every transaction pays for this request, at a moment when the codec's code is in no cache: its thirty calls take longer
than the system calls. So the usual bytes are made and read in one step.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import Final, Self

from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.field_types import BOOL, INT16, INT32, INT64, STRING
from kafkaprod.protocol.schema import Request, Response, field

_REQUEST_FIELDS: Final = struct.Struct(">qh?")
_PLAIN_ANSWER: Final = struct.Struct(">ihqhB")  # version 5 without tagged fields


class EndTxnRequest(Request, api=ApiKey.END_TXN, versions=(0, 5), flexible_from=3):
    """Ends the transaction."""

    transactional_id: str = field(STRING)
    producer_id: int = field(INT64)
    producer_epoch: int = field(INT16)
    committed: bool = field(BOOL)  # true commits, false aborts

    def quick_body(self, version: int) -> bytes | None:
        start, end = _around(self.transactional_id, version)
        return start + _REQUEST_FIELDS.pack(self.producer_id, self.producer_epoch, self.committed) + end


class EndTxnResponse(Response, api=ApiKey.END_TXN, versions=(0, 5), flexible_from=3):
    """The outcome."""

    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
    producer_id: int = field(INT64, since=5, default=-1, ignorable=True)  # -1: keep the same
    producer_epoch: int = field(INT16, since=5, default=-1, ignorable=True)

    @classmethod
    def read_quick(cls, body: memoryview, version: int) -> Self | None:
        if version != 5 or len(body) != _PLAIN_ANSWER.size:
            return None
        answer = cls.__new__(cls)
        (
            answer.throttle_time_ms,
            answer.error_code,
            answer.producer_id,
            answer.producer_epoch,
            tagged_field_count,
        ) = _PLAIN_ANSWER.unpack_from(body)
        return None if tagged_field_count else answer


@lru_cache(maxsize=16)
def _around(transactional_id: str, version: int) -> tuple[bytes, bytes]:
    """Return the bytes of a request before and after its fields of fixed size."""
    body = EndTxnRequest(transactional_id=transactional_id).encode(version)
    end = b"\0" if EndTxnRequest.is_flexible(version) else b""  # no tagged fields
    return body[: len(body) - _REQUEST_FIELDS.size - len(end)], end
