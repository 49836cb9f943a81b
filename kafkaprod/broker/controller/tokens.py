"""Delegation tokens: created, renewed, expired, and removed when they are over. Handlers are pure.

Times of tokens are of the wall clock. Source: Kafka, DelegationTokenControlManager; KIP-48, KIP-373.
"""

from __future__ import annotations

import base64
from typing import Final

from kafkaprod.broker.controller.context import ControllerContext
from kafkaprod.broker.controller.events import CreateToken, Decision, ExpireToken, RenewToken, SweepTokens, TokenAnswer
from kafkaprod.broker.metadata.records import DelegationTokenRecord, RemoveDelegationTokenRecord
from kafkaprod.broker.metadata.tokens import USER_TYPE, TokenHmac, principal_parts
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.schema import Struct

MAX_TOKENS: Final = 10_000
MAX_TOKENS_OF_USER: Final = 1_000
MAX_NAMES_BYTES: Final = 2_048
"""The names of owner, requester and renewers of a token together. Kafka has no bounds; one answer holds all tokens that
a client may see."""
_MOST_REMOVED: Final = 1_000  # of one batch
_MAX_TIME_MS: Final = 2**63 - 1


def create(context: ControllerContext, event: CreateToken, now_ms: int) -> Decision:
    """Make a token for an owner.

    Refused: DELEGATION_TOKEN_AUTH_DISABLED, without a secret key; INVALID_PRINCIPAL_TYPE, an owner or renewer that is
    no user; INVALID_REQUEST, too long names; POLICY_VIOLATION, too many tokens: of all, of the owner, or of the
    requester, whomever they are for.
    """
    error = _creation_error(context, event)
    if error:
        return _refuse(error)
    config, wall_ms = context.tokens, context.wall_ms(now_ms)
    lifetime_ms = min(config.max_lifetime_ms, event.max_lifetime_ms if event.max_lifetime_ms > 0 else _MAX_TIME_MS)
    max_ms = _sum(wall_ms, lifetime_ms)
    token = DelegationTokenRecord(
        owner=event.owner,
        requester=event.requester,
        renewers=list(event.renewers),
        issue_timestamp=wall_ms,
        max_timestamp=max_ms,
        expiration_timestamp=min(max_ms, _sum(wall_ms, config.expiry_time_ms)),
        token_id=_new_id(context),
    )
    return Decision([token], TokenAnswer(ErrorCode.NONE, token, config.hmac_of(token.token_id)))


def renew(context: ControllerContext, event: RenewToken, now_ms: int) -> Decision:
    """Move a token's end away, for its owner or a renewer; never beyond its longest life.

    Refused: as `expire`; DELEGATION_TOKEN_EXPIRED, it is over.
    """
    token, error = _find(context, event.hmac, event.requester)
    if token is None:
        return _refuse(error)
    wall_ms = context.wall_ms(now_ms)
    if min(token.max_timestamp, token.expiration_timestamp) < wall_ms:
        return _refuse(ErrorCode.DELEGATION_TOKEN_EXPIRED)
    period_ms = min(context.tokens.expiry_time_ms, event.period_ms if event.period_ms > 0 else _MAX_TIME_MS)
    return _move_end(token, _sum(wall_ms, period_ms))


def expire(context: ControllerContext, event: ExpireToken, now_ms: int) -> Decision:
    """Bring a token's end nearer, or remove it, for its owner or a renewer.

    Refused: DELEGATION_TOKEN_AUTH_DISABLED, without a secret key; DELEGATION_TOKEN_NOT_FOUND;
    DELEGATION_TOKEN_OWNER_MISMATCH, for others; DELEGATION_TOKEN_EXPIRED, it is over and shall not be removed.
    """
    token, error = _find(context, event.hmac, event.requester)
    if token is None:
        return _refuse(error)
    wall_ms = context.wall_ms(now_ms)
    if event.period_ms < 0:
        removed = RemoveDelegationTokenRecord(token_id=token.token_id)
        return Decision([removed], TokenAnswer(ErrorCode.NONE, _ending(token, wall_ms)))
    if min(token.max_timestamp, token.expiration_timestamp) < wall_ms:
        return _refuse(ErrorCode.DELEGATION_TOKEN_EXPIRED)
    return _move_end(token, _sum(wall_ms, event.period_ms))


def sweep(context: ControllerContext, event: SweepTokens, now_ms: int) -> Decision:
    """Remove tokens that are over; the answer is whether there are more."""
    wall_ms = context.wall_ms(now_ms)
    over = [token.token_id for token in context.image.tokens.values() if token.expiration_timestamp < wall_ms]
    records: list[Struct] = [RemoveDelegationTokenRecord(token_id=token_id) for token_id in over[:_MOST_REMOVED]]
    return Decision(records, len(over) > _MOST_REMOVED)


def _creation_error(context: ControllerContext, event: CreateToken) -> ErrorCode:
    if not context.tokens.is_enabled:
        return ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
    principals = [event.owner, *event.renewers]
    if any(principal_parts(principal)[0] != USER_TYPE for principal in principals):
        return ErrorCode.INVALID_PRINCIPAL_TYPE
    if sum(len(principal.encode()) for principal in (*principals, event.requester)) > MAX_NAMES_BYTES:
        return ErrorCode.INVALID_REQUEST
    known = context.image.tokens.values()
    is_full = (
        sum(token.owner == event.owner for token in known) >= MAX_TOKENS_OF_USER
        or sum(token.requester == event.requester for token in known) >= MAX_TOKENS_OF_USER
    )
    return ErrorCode.POLICY_VIOLATION if is_full or len(known) >= MAX_TOKENS else ErrorCode.NONE


def _new_id(context: ControllerContext) -> str:
    """Return an id that no token has; none begins with a dash, which tools would take for an option."""
    while True:
        token_id = base64.urlsafe_b64encode(context.generator.randbytes(16)).decode().rstrip("=")
        if not token_id.startswith("-") and token_id not in context.image.tokens:
            return token_id


def _find(
    context: ControllerContext, token_hmac: bytes, requester: str
) -> tuple[DelegationTokenRecord | None, ErrorCode]:
    """Return the token that has an HMAC, or why the requester may not change it."""
    config, tokens = context.tokens, context.image.tokens
    if not config.is_enabled:
        return None, ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
    token_id = {config.hmac_of(known): known for known in tokens}.get(TokenHmac(token_hmac))
    if token_id is None:
        return None, ErrorCode.DELEGATION_TOKEN_NOT_FOUND
    token = tokens[token_id]
    if requester != token.owner and requester not in token.renewers:
        return None, ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
    return token, ErrorCode.NONE


def _move_end(token: DelegationTokenRecord, end_ms: int) -> Decision:
    moved = _ending(token, min(token.max_timestamp, end_ms))
    return Decision([moved], TokenAnswer(ErrorCode.NONE, moved))


def _ending(token: DelegationTokenRecord, end_ms: int) -> DelegationTokenRecord:
    """Return a token with another end."""
    return DelegationTokenRecord(
        owner=token.owner,
        requester=token.requester,
        renewers=token.renewers,
        issue_timestamp=token.issue_timestamp,
        max_timestamp=token.max_timestamp,
        expiration_timestamp=end_ms,
        token_id=token.token_id,
    )


def _refuse(error: ErrorCode) -> Decision:
    return Decision([], TokenAnswer(error))


def _sum(time_ms: int, period_ms: int) -> int:
    return min(time_ms + period_ms, _MAX_TIME_MS)
