"""RenewDelegationToken (39): how long the token shall live from now on.

    2  flexible

Source: KIP-48.
"""

from __future__ import annotations

from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.field_types import BYTES, INT16, INT32, INT64
from kafkaprod.protocol.schema import Request, Response, field
from kafkaprod.structs import BytesLike


class RenewDelegationTokenRequest(Request, api=ApiKey.RENEW_DELEGATION_TOKEN, versions=(1, 2), flexible_from=2):
    """The token, by its HMAC, and the time in milliseconds."""

    hmac: BytesLike = field(BYTES)
    renew_period_ms: int = field(INT64)


class RenewDelegationTokenResponse(Response, api=ApiKey.RENEW_DELEGATION_TOKEN, versions=(1, 2), flexible_from=2):
    """When the token ends, in milliseconds since 1970."""

    error_code: int = field(INT16)
    expiry_timestamp_ms: int = field(INT64)
    throttle_time_ms: int = field(INT32)
