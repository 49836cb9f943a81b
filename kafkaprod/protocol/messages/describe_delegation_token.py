"""DescribeDelegationToken (41): the tokens that a client may see.

    2  flexible     3  who has created a token (KIP-373)

Source: KIP-48.
"""

from __future__ import annotations

from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.field_types import BYTES, INT16, INT32, INT64, STRING, array
from kafkaprod.protocol.schema import Request, Response, Struct, field
from kafkaprod.structs import BytesLike


class DescribeDelegationTokenOwner(Struct):
    """An owner whose tokens are described."""

    principal_type: str = field(STRING)
    principal_name: str = field(STRING)


class DescribeDelegationTokenRequest(Request, api=ApiKey.DESCRIBE_DELEGATION_TOKEN, versions=(1, 3), flexible_from=2):
    """Owners; null means all."""

    owners: list[DescribeDelegationTokenOwner] | None = field(array(DescribeDelegationTokenOwner).nullable())


class DescribedDelegationTokenRenewer(Struct):
    """A principal that may renew the token."""

    principal_type: str = field(STRING)
    principal_name: str = field(STRING)


class DescribedDelegationToken(Struct):
    """One token."""

    principal_type: str = field(STRING)
    principal_name: str = field(STRING)
    token_requester_principal_type: str = field(STRING, since=3, ignorable=True)
    token_requester_principal_name: str = field(STRING, since=3, ignorable=True)
    issue_timestamp: int = field(INT64)
    expiry_timestamp: int = field(INT64)
    max_timestamp: int = field(INT64)
    token_id: str = field(STRING)
    hmac: BytesLike = field(BYTES)
    renewers: list[DescribedDelegationTokenRenewer] = field(array(DescribedDelegationTokenRenewer))


class DescribeDelegationTokenResponse(Response, api=ApiKey.DESCRIBE_DELEGATION_TOKEN, versions=(1, 3), flexible_from=2):
    """The tokens."""

    error_code: int = field(INT16)
    tokens: list[DescribedDelegationToken] = field(array(DescribedDelegationToken))
    throttle_time_ms: int = field(INT32)
