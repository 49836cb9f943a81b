"""CreateDelegationToken (38): the controller makes the token, after this broker has looked at who wants it."""

from __future__ import annotations

from kafkaprod.broker.calls.request import ClientRequest, Lane, Outcome
from kafkaprod.broker.cluster.broker import Broker
from kafkaprod.broker.controller.tokens import creation_response, owner_of
from kafkaprod.broker.handlers.delegation_tokens import ask_controller, may_request
from kafkaprod.broker.metadata.tokens import USER_TYPE, principal_parts
from kafkaprod.broker.settings import acls
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.messages.create_delegation_token import CreateDelegationTokenRequest
from kafkaprod.protocol.schema import Response

API = ApiKey.CREATE_DELEGATION_TOKEN
LANE = Lane.CONTROL
MAX_VERSION = 3


def handle(broker: Broker, request: ClientRequest[CreateDelegationTokenRequest]) -> Outcome:
    """Make a token.

    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED without a login or by one with a token; DELEGATION_TOKEN_AUTHORIZATION_FAILED
    for an owner whom the client has no right to make tokens for; INVALID_PRINCIPAL_TYPE for an owner or a renewer
    that is no user.
    """
    if not may_request(request):
        return refuse(request, ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)
    owner, requester = owner_of(request.body, request.principal), request.principal
    if principal_parts(owner)[0] != USER_TYPE:
        return refuse(request, ErrorCode.INVALID_PRINCIPAL_TYPE)
    if owner != requester and not broker.acls.is_allowed(
        requester, request.client_host, acls.CREATE_TOKENS, acls.USER, owner
    ):
        return refuse(request, ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED)
    if any(renewer.principal_type != USER_TYPE for renewer in request.body.renewers):
        return refuse(request, ErrorCode.INVALID_PRINCIPAL_TYPE)
    return ask_controller(broker, request, refuse, lambda response: broker.tokens.end_of(response.token_id) is not None)


def refuse(request: ClientRequest[CreateDelegationTokenRequest], error_code: int) -> Response:
    """Answer the error, with the names of owner and requester and no token."""
    return creation_response(request.body, request.principal, error_code)
