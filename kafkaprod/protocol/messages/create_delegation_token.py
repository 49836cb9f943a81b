"""CreateDelegationToken (38): a token by which a user, or who has it of them, can log in.

    2  flexible     3  tokens for other users (KIP-373)

Source: KIP-48.
"""

from __future__ import annotations

from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.field_types import BYTES, INT16, INT32, INT64, NULLABLE_STRING, STRING, array
from kafkaprod.protocol.schema import Request, Response, Struct, field
from kafkaprod.structs import BytesLike


class CreatableRenewers(Struct):
    """A principal that may renew the token."""

    principal_type: str = field(STRING)
    principal_name: str = field(STRING)


class CreateDelegationTokenRequest(Request, api=ApiKey.CREATE_DELEGATION_TOKEN, versions=(1, 3), flexible_from=2):
    """Requests a token, for the user of the connection unless another owner is named; -1 is the longest lifetime."""

    owner_principal_type: str | None = field(NULLABLE_STRING, since=3)
    owner_principal_name: str | None = field(NULLABLE_STRING, since=3)
    renewers: list[CreatableRenewers] = field(array(CreatableRenewers))
    max_lifetime_ms: int = field(INT64)


class CreateDelegationTokenResponse(Response, api=ApiKey.CREATE_DELEGATION_TOKEN, versions=(1, 3), flexible_from=2):
    """The token. The HMAC is the secret: its base64 is the password of a SCRAM login."""

    error_code: int = field(INT16)
    principal_type: str = field(STRING)
    principal_name: str = field(STRING)
    token_requester_principal_type: str = field(STRING, since=3, ignorable=True)
    token_requester_principal_name: str = field(STRING, since=3, ignorable=True)
    issue_timestamp_ms: int = field(INT64)
    expiry_timestamp_ms: int = field(INT64)
    max_timestamp_ms: int = field(INT64)
    token_id: str = field(STRING)
    hmac: BytesLike = field(BYTES)
    throttle_time_ms: int = field(INT32)
