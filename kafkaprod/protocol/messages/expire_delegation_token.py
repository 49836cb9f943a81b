"""ExpireDelegationToken (40): when the token shall end, counted from now; below 0 it is removed at once.

    2  flexible

Source: KIP-48.
"""

from __future__ import annotations

from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.field_types import BYTES, INT16, INT32, INT64
from kafkaprod.protocol.schema import Request, Response, field
from kafkaprod.structs import BytesLike


class ExpireDelegationTokenRequest(Request, api=ApiKey.EXPIRE_DELEGATION_TOKEN, versions=(1, 2), flexible_from=2):
    """The token, by its HMAC, and the time in milliseconds."""

    hmac: BytesLike = field(BYTES)
    expiry_time_period_ms: int = field(INT64)


class ExpireDelegationTokenResponse(Response, api=ApiKey.EXPIRE_DELEGATION_TOKEN, versions=(1, 2), flexible_from=2):
    """When the token ends, in milliseconds since 1970."""

    error_code: int = field(INT16)
    expiry_timestamp_ms: int = field(INT64)
    throttle_time_ms: int = field(INT32)
