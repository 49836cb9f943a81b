"""RenewDelegationToken (39): move the end of a token away; the controller decides."""

from __future__ import annotations

from kafkaprod.broker.calls.request import ClientRequest, Lane, Outcome
from kafkaprod.broker.cluster.broker import Broker
from kafkaprod.broker.handlers.delegation_tokens import ask_controller, may_request, shows_end
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.messages.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)

API = ApiKey.RENEW_DELEGATION_TOKEN
LANE = Lane.CONTROL
MAX_VERSION = 2


def handle(broker: Broker, request: ClientRequest[RenewDelegationTokenRequest]) -> Outcome:
    """Ask the controller; DELEGATION_TOKEN_REQUEST_NOT_ALLOWED without a login or by one with a token."""
    if not may_request(request):
        return refuse(request, ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)
    return ask_controller(broker, request, refuse, shows_end(broker, request))


def refuse(request: ClientRequest[RenewDelegationTokenRequest], error_code: int) -> RenewDelegationTokenResponse:
    """Answer the error, without a time."""
    return RenewDelegationTokenResponse(error_code=error_code, expiry_timestamp_ms=-1)
