"""Delegation tokens: created, renewed, expired, and removed when they are over. Handlers are pure.

Times of tokens are of the wall clock. Source: Kafka, DelegationTokenControlManager; KIP-48, KIP-373.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from typing import Final

from kafkaprod.broker.controller.context import ControllerContext
from kafkaprod.broker.controller.events import Decision, SweepTokens
from kafkaprod.broker.metadata.records import DelegationTokenRecord, RemoveDelegationTokenRecord
from kafkaprod.broker.metadata.tokens import USER_TYPE, TokenHmac, principal_parts
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.messages import RESPONSES
from kafkaprod.protocol.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from kafkaprod.protocol.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from kafkaprod.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse
from kafkaprod.protocol.schema import Request, Response, Struct

MAX_TOKENS: Final = 10_000
MAX_TOKENS_OF_USER: Final = 1_000
MAX_NAMES_BYTES: Final = 2_048
"""The names of owner, requester and renewers of a token together. Kafka has no bounds; one answer holds all tokens that
a client may see."""
_MOST_REMOVED: Final = 1_000  # of one batch
_MAX_TIME_MS: Final = 2**63 - 1
_NO_TIME: Final = -1


def create(context: ControllerContext, request: CreateDelegationTokenRequest, now_ms: int) -> Decision:
    """Make a token for an owner.

    Refused: DELEGATION_TOKEN_AUTH_DISABLED, without a secret key; INVALID_PRINCIPAL_TYPE, an owner or renewer that is
    no user; INVALID_REQUEST, too long names; POLICY_VIOLATION, too many tokens: of all, of the owner, or of the
    requester, whomever they are for.
    """
    requester, owner = context.requester, owner_of(request, context.requester)
    renewers = [f"{each.principal_type}:{each.principal_name}" for each in request.renewers]
    error = _creation_error(context, owner, renewers)
    if error:
        return Decision([], creation_response(request, requester, error))
    config, wall_ms = context.tokens, context.wall_ms(now_ms)
    lifetime_ms = min(config.max_lifetime_ms, request.max_lifetime_ms if request.max_lifetime_ms > 0 else _MAX_TIME_MS)
    max_ms = _sum(wall_ms, lifetime_ms)
    token = DelegationTokenRecord(
        owner=owner,
        requester=requester,
        renewers=renewers,
        issue_timestamp=wall_ms,
        max_timestamp=max_ms,
        expiration_timestamp=min(max_ms, _sum(wall_ms, config.expiry_time_ms)),
        token_id=_new_id(context),
    )
    return Decision(
        [token], creation_response(request, requester, ErrorCode.NONE, token, config.hmac_of(token.token_id))
    )


def renew(context: ControllerContext, request: RenewDelegationTokenRequest, now_ms: int) -> Decision:
    """Move a token's end away, for its owner or a renewer; never beyond its longest life.

    Refused: as `expire`; DELEGATION_TOKEN_EXPIRED, it is over.
    """
    token, error = _find(context, bytes(request.hmac))
    if token is None:
        return _decided(RenewDelegationTokenResponse, error)
    wall_ms = context.wall_ms(now_ms)
    if min(token.max_timestamp, token.expiration_timestamp) < wall_ms:
        return _decided(RenewDelegationTokenResponse, ErrorCode.DELEGATION_TOKEN_EXPIRED)
    period_ms = min(
        context.tokens.expiry_time_ms, request.renew_period_ms if request.renew_period_ms > 0 else _MAX_TIME_MS
    )
    return _decided(RenewDelegationTokenResponse, moved=_moved(token, _sum(wall_ms, period_ms)))


def expire(context: ControllerContext, request: ExpireDelegationTokenRequest, now_ms: int) -> Decision:
    """Bring a token's end nearer, or remove it, for its owner or a renewer.

    Refused: DELEGATION_TOKEN_AUTH_DISABLED, without a secret key; DELEGATION_TOKEN_NOT_FOUND;
    DELEGATION_TOKEN_OWNER_MISMATCH, for others; DELEGATION_TOKEN_EXPIRED, it is over and shall not be removed.
    """
    token, error = _find(context, bytes(request.hmac))
    if token is None:
        return _decided(ExpireDelegationTokenResponse, error)
    wall_ms, period_ms = context.wall_ms(now_ms), request.expiry_time_period_ms
    if period_ms < 0:
        removed = RemoveDelegationTokenRecord(token_id=token.token_id)
        return Decision([removed], ExpireDelegationTokenResponse(expiry_timestamp_ms=wall_ms))
    if min(token.max_timestamp, token.expiration_timestamp) < wall_ms:
        return _decided(ExpireDelegationTokenResponse, ErrorCode.DELEGATION_TOKEN_EXPIRED)
    return _decided(ExpireDelegationTokenResponse, moved=_moved(token, _sum(wall_ms, period_ms)))


def sweep(context: ControllerContext, event: SweepTokens, now_ms: int) -> Decision:
    """Remove tokens that are over; the answer is whether there are more."""
    wall_ms = context.wall_ms(now_ms)
    over = [token.token_id for token in context.image.tokens.values() if token.expiration_timestamp < wall_ms]
    records: list[Struct] = [RemoveDelegationTokenRecord(token_id=token_id) for token_id in over[:_MOST_REMOVED]]
    return Decision(records, len(over) > _MOST_REMOVED)


def owner_of(request: CreateDelegationTokenRequest, requester: str) -> str:
    """Return the principal for whom a token is requested."""
    if not request.owner_principal_name:
        return requester
    return f"{request.owner_principal_type or ''}:{request.owner_principal_name}"


def creation_response(
    request: CreateDelegationTokenRequest,
    requester: str,
    error: int,
    token: DelegationTokenRecord | None = None,
    hmac: bytes = b"",
) -> CreateDelegationTokenResponse:
    """Return the response to a creation.

    Args:
        request: What was requested.
        requester: By whom.
        error: Why there is no token.
        token: The token, if one was made.
        hmac: Its secret.
    """
    requester_type, requester_name = principal_parts(requester)
    owner_type, owner_name = requester_type, requester_name
    if request.owner_principal_name:  # as it was given: split otherwise, a part may be longer than a text can be
        owner_type, owner_name = request.owner_principal_type or "", request.owner_principal_name
    return CreateDelegationTokenResponse(
        error_code=error,
        principal_type=owner_type,
        principal_name=owner_name,
        token_requester_principal_type=requester_type,
        token_requester_principal_name=requester_name,
        issue_timestamp_ms=_NO_TIME if token is None else token.issue_timestamp,
        expiry_timestamp_ms=_NO_TIME if token is None else token.expiration_timestamp,
        max_timestamp_ms=_NO_TIME if token is None else token.max_timestamp,
        token_id="" if token is None else token.token_id,
        hmac=hmac,
    )


def refused_change(request: Request, requester: str, error: ErrorCode) -> Response:
    """Return the response to a request for tokens that is refused."""
    if isinstance(request, CreateDelegationTokenRequest):
        return creation_response(request, requester, error)
    response: Response = RESPONSES[request.api](error_code=error, expiry_timestamp_ms=_NO_TIME)
    return response


def _creation_error(context: ControllerContext, owner: str, renewers: Sequence[str]) -> ErrorCode:
    if not context.tokens.is_enabled:
        return ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
    principals = [owner, *renewers]
    if any(principal_parts(principal)[0] != USER_TYPE for principal in principals):
        return ErrorCode.INVALID_PRINCIPAL_TYPE
    if sum(len(principal.encode()) for principal in (*principals, context.requester)) > MAX_NAMES_BYTES:
        return ErrorCode.INVALID_REQUEST
    known = context.image.tokens.values()
    is_full = (
        sum(token.owner == owner for token in known) >= MAX_TOKENS_OF_USER
        or sum(token.requester == context.requester for token in known) >= MAX_TOKENS_OF_USER
    )
    return ErrorCode.POLICY_VIOLATION if is_full or len(known) >= MAX_TOKENS else ErrorCode.NONE


def _new_id(context: ControllerContext) -> str:
    """Return an id that no token has; none begins with a dash, which tools would take for an option."""
    while True:
        token_id = base64.urlsafe_b64encode(context.generator.randbytes(16)).decode().rstrip("=")
        if not token_id.startswith("-") and token_id not in context.image.tokens:
            return token_id


def _find(context: ControllerContext, token_hmac: bytes) -> tuple[DelegationTokenRecord | None, ErrorCode]:
    """Return the token that has an HMAC, or why the requester may not change it."""
    config, tokens = context.tokens, context.image.tokens
    if not config.is_enabled:
        return None, ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
    token_id = {config.hmac_of(known): known for known in tokens}.get(TokenHmac(token_hmac))
    if token_id is None:
        return None, ErrorCode.DELEGATION_TOKEN_NOT_FOUND
    token = tokens[token_id]
    if context.requester != token.owner and context.requester not in token.renewers:
        return None, ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
    return token, ErrorCode.NONE


def _decided(
    make: Callable[..., Response], error: ErrorCode = ErrorCode.NONE, moved: DelegationTokenRecord | None = None
) -> Decision:
    """Return the decision on the end of a token: the token with another one, or an error."""
    end_ms = _NO_TIME if moved is None else moved.expiration_timestamp
    return Decision([] if moved is None else [moved], make(error_code=error, expiry_timestamp_ms=end_ms))


def _moved(token: DelegationTokenRecord, end_ms: int) -> DelegationTokenRecord:
    """Return a token with another end, which is not beyond its longest life."""
    return DelegationTokenRecord(
        owner=token.owner,
        requester=token.requester,
        renewers=token.renewers,
        issue_timestamp=token.issue_timestamp,
        max_timestamp=token.max_timestamp,
        expiration_timestamp=min(token.max_timestamp, end_ms),
        token_id=token.token_id,
    )


def _sum(time_ms: int, period_ms: int) -> int:
    return min(time_ms + period_ms, _MAX_TIME_MS)
