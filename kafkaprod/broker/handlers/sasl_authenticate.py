"""SaslAuthenticate (36): one message of a login. The login by a token ends with it: clients log in again (KIP-368)."""

from __future__ import annotations

from kafkaprod.broker.calls.request import ClientRequest, Lane, LastResponse, Outcome
from kafkaprod.broker.cluster.broker import Broker
from kafkaprod.broker.handlers.refusals import refuse
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
        error_code = ErrorCode.SASL_AUTHENTICATION_FAILED
        return LastResponse(SaslAuthenticateResponse(error_code=error_code, error_message=str(error)))
