"""AlterUserScramCredentials (51): set and remove SCRAM credentials. Mechanisms: 1 SCRAM-SHA-256, 2 SCRAM-SHA-512.

Source: KIP-554.
"""

from __future__ import annotations

from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.field_types import BYTES, INT8, INT16, INT32, NULLABLE_STRING, STRING, array
from kafkaprod.protocol.schema import Request, Response, Struct, field
from kafkaprod.structs import BytesLike


class ScramCredentialDeletion(Struct):
    """A credential to remove."""

    name: str = field(STRING)
    mechanism: int = field(INT8)


class ScramCredentialUpsertion(Struct):
    """A credential to set."""

    name: str = field(STRING)
    mechanism: int = field(INT8)
    iterations: int = field(INT32)
    salt: BytesLike = field(BYTES)
    salted_password: BytesLike = field(BYTES)


class AlterUserScramCredentialsRequest(
    Request, api=ApiKey.ALTER_USER_SCRAM_CREDENTIALS, versions=(0, 0), flexible_from=0
):
    """Changes."""

    deletions: list[ScramCredentialDeletion] = field(array(ScramCredentialDeletion))
    upsertions: list[ScramCredentialUpsertion] = field(array(ScramCredentialUpsertion))


class AlterUserScramCredentialsResult(Struct):
    """The outcome for one user."""

    user: str = field(STRING)
    error_code: int = field(INT16)
    error_message: str | None = field(NULLABLE_STRING)


class AlterUserScramCredentialsResponse(
    Response, api=ApiKey.ALTER_USER_SCRAM_CREDENTIALS, versions=(0, 0), flexible_from=0
):
    """The outcome for each user."""

    throttle_time_ms: int = field(INT32)
    results: list[AlterUserScramCredentialsResult] = field(array(AlterUserScramCredentialsResult))
