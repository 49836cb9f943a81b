"""SaslAuthenticate (36): one message of a login. The login by a token ends with it: clients log in again (KIP-368)."""

from __future__ import annotations

from kafkaprod.broker.calls.request import ClientRequest, Lane, LastResponse, Outcome
from kafkaprod.broker.cluster.broker import Broker
from kafkaprod.errors import AuthenticationError
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse

API = ApiKey.SASL_AUTHENTICATE
LANE = Lane.DATA
MAX_VERSION = 2


def handle(broker: Broker, request: ClientRequest[SaslAuthenticateRequest]) -> Outcome:
    """Answer the token; a refused client gets SASL_AUTHENTICATION_FAILED and loses its connection."""
    if request.login is None:
        return refuse(request, ErrorCode.ILLEGAL_SASL_STATE)
    try:
        answer = request.login.step(request.body.auth_bytes)
        return SaslAuthenticateResponse(auth_bytes=answer, session_lifetime_ms=request.login.lifetime_ms)
    except AuthenticationError as error:
        response = refuse(request, ErrorCode.SASL_AUTHENTICATION_FAILED)
        response.error_message = str(error)
        return LastResponse(response)


def refuse(request: ClientRequest[SaslAuthenticateRequest], error_code: int) -> SaslAuthenticateResponse:
    """Answer the error."""
    return SaslAuthenticateResponse(error_code=error_code)
