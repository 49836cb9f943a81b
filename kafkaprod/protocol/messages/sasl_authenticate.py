"""SaslAuthenticate (36): one token of the chosen mechanism each way.

    1  session lifetime, after which the client has to log in again (KIP-368)     2  flexible

Source: KIP-152, KIP-368.
"""

from __future__ import annotations

from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.field_types import BYTES, INT16, INT64, NULLABLE_STRING
from kafkaprod.protocol.schema import Request, Response, field


class SaslAuthenticateRequest(Request, api=ApiKey.SASL_AUTHENTICATE, versions=(0, 2), flexible_from=2):
    """The client's token."""

    auth_bytes: bytes = field(BYTES)


class SaslAuthenticateResponse(Response, api=ApiKey.SASL_AUTHENTICATE, versions=(0, 2), flexible_from=2):
    """The broker's token, or the refusal."""

    error_code: int = field(INT16)
    error_message: str | None = field(NULLABLE_STRING)
    auth_bytes: bytes = field(BYTES)
    session_lifetime_ms: int = field(INT64, since=1, ignorable=True)  # 0: no limit
