"""Requests for delegation tokens, which come in envelopes, as events, and their answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from kafkaprod.broker.controller.envelopes import Unsealed, answered, unseal
from kafkaprod.broker.controller.events import ControllerEvent, CreateToken, ExpireToken, RenewToken, Reply, TokenAnswer
from kafkaprod.broker.metadata.tokens import TokenHmac, principal_parts
from kafkaprod.errors import CorruptDataError
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from kafkaprod.protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse
from kafkaprod.protocol.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from kafkaprod.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse
from kafkaprod.protocol.schema import Request, Response

if TYPE_CHECKING:
    from kafkaprod.broker.controller.controller import Controller

_NO_TIME: Final = -1


def on_envelope(
    controller: Controller, envelope: EnvelopeRequest, now_ms: int, reply: Callable[[Response], None]
) -> None:
    """Queue the event of the request in an envelope; INVALID_REQUEST if there is no such request."""
    try:
        unsealed = unseal(envelope)
    except CorruptDataError:
        reply(EnvelopeResponse(error_code=ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE))
        return
    made = _EVENTS.get(type(unsealed.request))
    if made is None:
        reply(EnvelopeResponse(error_code=ErrorCode.INVALID_REQUEST))
        return
    make_event, make_response = made

    def take(answer: TokenAnswer | ErrorCode) -> None:
        outcome = TokenAnswer(answer) if isinstance(answer, ErrorCode) else answer
        reply(answered(make_response(unsealed, outcome), unsealed.version))

    controller.queue.put(make_event(unsealed, take), now_ms)


def owner_of(request: CreateDelegationTokenRequest, requester: str) -> str:
    """Return the principal for whom a token is requested."""
    if not request.owner_principal_name:
        return requester
    return f"{request.owner_principal_type or ''}:{request.owner_principal_name}"


def creation_response(request: CreateDelegationTokenRequest, requester: str, answer: TokenAnswer) -> Response:
    """Return the response for an answer to a creation.

    Args:
        request: What was requested.
        requester: By whom.
        answer: What became of it.
    """
    token = answer.token
    requester_type, requester_name = principal_parts(requester)
    owner_type, owner_name = requester_type, requester_name
    if request.owner_principal_name:  # as it was given: split otherwise, a part may be longer than a text can be
        owner_type, owner_name = request.owner_principal_type or "", request.owner_principal_name
    return CreateDelegationTokenResponse(
        error_code=answer.error,
        principal_type=owner_type,
        principal_name=owner_name,
        token_requester_principal_type=requester_type,
        token_requester_principal_name=requester_name,
        issue_timestamp_ms=_NO_TIME if token is None else token.issue_timestamp,
        expiry_timestamp_ms=_NO_TIME if token is None else token.expiration_timestamp,
        max_timestamp_ms=_NO_TIME if token is None else token.max_timestamp,
        token_id="" if token is None else token.token_id,
        hmac=answer.hmac,
    )


def _creation(unsealed: Unsealed, reply: Reply) -> ControllerEvent:
    request: Any = unsealed.request
    renewers = tuple(f"{each.principal_type}:{each.principal_name}" for each in request.renewers)
    owner = owner_of(request, unsealed.principal)
    return CreateToken(owner, unsealed.principal, renewers, request.max_lifetime_ms, reply)


def _created(unsealed: Unsealed, answer: TokenAnswer) -> Response:
    request: Any = unsealed.request
    return creation_response(request, unsealed.principal, answer)


def _renewal(unsealed: Unsealed, reply: Reply) -> ControllerEvent:
    request: Any = unsealed.request
    return RenewToken(TokenHmac(request.hmac), unsealed.principal, request.renew_period_ms, reply)


def _expiration(unsealed: Unsealed, reply: Reply) -> ControllerEvent:
    request: Any = unsealed.request
    return ExpireToken(TokenHmac(request.hmac), unsealed.principal, request.expiry_time_period_ms, reply)


def _renewed(_: Unsealed, answer: TokenAnswer) -> Response:
    return RenewDelegationTokenResponse(error_code=answer.error, expiry_timestamp_ms=_end_of(answer))


def _expired(_: Unsealed, answer: TokenAnswer) -> Response:
    return ExpireDelegationTokenResponse(error_code=answer.error, expiry_timestamp_ms=_end_of(answer))


def _end_of(answer: TokenAnswer) -> int:
    return _NO_TIME if answer.token is None else answer.token.expiration_timestamp


_EVENTS: Final[
    dict[
        type[Request], tuple[Callable[[Unsealed, Reply], ControllerEvent], Callable[[Unsealed, TokenAnswer], Response]]
    ]
] = {
    CreateDelegationTokenRequest: (_creation, _created),
    RenewDelegationTokenRequest: (_renewal, _renewed),
    ExpireDelegationTokenRequest: (_expiration, _expired),
}
