"""DescribeUserScramCredentials (50): users with SCRAM credentials. Mechanisms: 1 SCRAM-SHA-256, 2 SCRAM-SHA-512.

Source: KIP-554.
"""

from __future__ import annotations

from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.field_types import INT8, INT16, INT32, NULLABLE_STRING, STRING, array
from kafkaprod.protocol.schema import Request, Response, Struct, field


class UserName(Struct):
    """A user."""

    name: str = field(STRING)


class DescribeUserScramCredentialsRequest(
    Request, api=ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, versions=(0, 0), flexible_from=0
):
    """Users; null or empty means all."""

    users: list[UserName] | None = field(array(UserName).nullable())


class CredentialInfo(Struct):
    """One mechanism and its iterations."""

    mechanism: int = field(INT8)
    iterations: int = field(INT32)


class DescribeUserScramCredentialsResult(Struct):
    """The credentials of one user."""

    user: str = field(STRING)
    error_code: int = field(INT16)
    error_message: str | None = field(NULLABLE_STRING)
    credential_infos: list[CredentialInfo] = field(array(CredentialInfo))


class DescribeUserScramCredentialsResponse(
    Response, api=ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, versions=(0, 0), flexible_from=0
):
    """The credentials of each user."""

    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(NULLABLE_STRING)
    results: list[DescribeUserScramCredentialsResult] = field(array(DescribeUserScramCredentialsResult))
