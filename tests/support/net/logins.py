"""Logins over a `RawClient`, message by message."""

from __future__ import annotations

from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from kafkaprod.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from kafkaprod.security.scram import ScramMechanism
from tests.support.net.raw_client import RawClient


def log_in_by_scram(client: RawClient, user: str, password: str, *, is_token: bool = False) -> int:
    """Log in by SCRAM-SHA-256, perhaps with a delegation token; return the error code."""
    scram = ScramMechanism("SCRAM-SHA-256", user, password, delegation_token=is_token)
    client.call(SaslHandshakeRequest(mechanism="SCRAM-SHA-256"), SaslHandshakeResponse, 1)
    message: bytes | None = scram.first()
    while message is not None:
        answer = client.call(SaslAuthenticateRequest(auth_bytes=message), SaslAuthenticateResponse, 2)
        if answer.error_code:
            return answer.error_code
        message = scram.step(bytes(answer.auth_bytes))
    return ErrorCode.NONE
