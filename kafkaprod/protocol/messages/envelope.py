"""Envelope (58): a broker hands a client's request on to the controller, with who has sent it.

The principal is an int16 version 0 and Kafka's `DefaultPrincipalData`, whose type is `PrincipalData` here.

Source: KIP-590.
"""

from __future__ import annotations

from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.field_types import BOOL, BYTES, INT16, NULLABLE_BYTES, STRING
from kafkaprod.protocol.schema import Request, Response, Struct, field
from kafkaprod.structs import BytesLike


class PrincipalData(Struct):
    """A principal; version 0, flexible."""

    type: str = field(STRING)
    name: str = field(STRING)
    token_authenticated: bool = field(BOOL)


class EnvelopeRequest(Request, api=ApiKey.ENVELOPE, versions=(0, 0), flexible_from=0):
    """The client's request with its header, its principal and its address."""

    request_data: BytesLike = field(BYTES)
    request_principal: BytesLike | None = field(NULLABLE_BYTES)
    client_host_address: BytesLike = field(BYTES)


class EnvelopeResponse(Response, api=ApiKey.ENVELOPE, versions=(0, 0), flexible_from=0):
    """The answer for the client with its header; null if the envelope itself was refused."""

    response_data: BytesLike | None = field(NULLABLE_BYTES, default=None)
    error_code: int = field(INT16)
