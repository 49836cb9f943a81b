"""SaslHandshake (17): choose a mechanism. Version 0, after which tokens come without headers, is not announced."""

from __future__ import annotations

from kafkaprod.broker.calls.login import MECHANISMS
from kafkaprod.broker.calls.request import ClientRequest, Lane
from kafkaprod.broker.cluster.broker import Broker
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

API = ApiKey.SASL_HANDSHAKE
LANE = Lane.DATA
MAX_VERSION = 1


def handle(broker: Broker, request: ClientRequest[SaslHandshakeRequest]) -> SaslHandshakeResponse:
    """Begin a login; UNSUPPORTED_SASL_MECHANISM for an unknown one, ILLEGAL_SASL_STATE where there is no login."""
    if request.login is None:
        return refuse(request, ErrorCode.ILLEGAL_SASL_STATE)
    if not request.login.begin(request.body.mechanism):
        return refuse(request, ErrorCode.UNSUPPORTED_SASL_MECHANISM)
    return refuse(request, ErrorCode.NONE)


def refuse(request: ClientRequest[SaslHandshakeRequest], error_code: int) -> SaslHandshakeResponse:
    """Answer the error, and what could be chosen."""
    mechanisms = MECHANISMS if request.login is None else request.login.mechanisms
    return SaslHandshakeResponse(error_code=error_code, mechanisms=list(mechanisms))
