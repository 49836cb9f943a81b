"""DescribeDelegationToken (41): the tokens that a client may see, from this broker's metadata."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial

from kafkaprod.broker.calls.request import ClientRequest, Lane, Outcome
from kafkaprod.broker.calls.steps import Pause, PausingSteps, run_in_control_steps
from kafkaprod.broker.cluster.broker import Broker
from kafkaprod.broker.handlers.delegation_tokens import may_request
from kafkaprod.broker.handlers.refusals import refuse
from kafkaprod.broker.metadata.records import DelegationTokenRecord
from kafkaprod.broker.metadata.tokens import principal_parts
from kafkaprod.broker.settings import acls
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.messages.describe_delegation_token import (
    DescribedDelegationToken,
    DescribedDelegationTokenRenewer,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)

API = ApiKey.DESCRIBE_DELEGATION_TOKEN
LANE = Lane.CONTROL
MAX_VERSION = 3

_TOKENS_OF_STEP = 500


def handle(broker: Broker, request: ClientRequest[DescribeDelegationTokenRequest]) -> Outcome:
    """Describe tokens that the client owns, has made or may renew, and those that it has a right to see.

    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED without a login or by one with a token; DELEGATION_TOKEN_AUTH_DISABLED without
    a secret key. Tokens that are over are shown until they are removed.
    """
    if not may_request(request):
        return refuse(request, ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)
    if not broker.tokens.config.is_enabled:
        return refuse(request, ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
    return run_in_control_steps(broker, _describe_all(broker, request), partial(refuse, request))


def _describe_all(
    broker: Broker, request: ClientRequest[DescribeDelegationTokenRequest]
) -> PausingSteps[DescribeDelegationTokenResponse]:
    wanted = request.body.owners
    owners = None if wanted is None else {f"{owner.principal_type}:{owner.principal_name}" for owner in wanted}
    may = partial(broker.acls.is_allowed, request.principal, request.client_host)
    tokens = broker.tokens.all()
    found = []
    for first in range(0, len(tokens), _TOKENS_OF_STEP):
        found += [
            _described(broker, token)
            for token in tokens[first : first + _TOKENS_OF_STEP]
            if _is_shown(token, owners, request.principal, may)
        ]
        yield Pause.SHORT
    return DescribeDelegationTokenResponse(tokens=found)


def _is_shown(
    token: DelegationTokenRecord,
    owners: Collection[str] | None,
    principal: str,
    may: Callable[[int, int, str], bool],
) -> bool:
    """Return whether a token is among those that were requested, and the client may see it."""
    related = {token.owner, token.requester, *token.renewers}
    if owners is not None and related.isdisjoint(owners):
        return False
    return (
        principal in related
        or may(acls.DESCRIBE, acls.DELEGATION_TOKEN, token.token_id)
        or may(acls.DESCRIBE_TOKENS, acls.USER, token.owner)
    )


def _described(broker: Broker, token: DelegationTokenRecord) -> DescribedDelegationToken:
    owner_type, owner_name = principal_parts(token.owner)
    requester_type, requester_name = principal_parts(token.requester)
    return DescribedDelegationToken(
        principal_type=owner_type,
        principal_name=owner_name,
        token_requester_principal_type=requester_type,
        token_requester_principal_name=requester_name,
        issue_timestamp=token.issue_timestamp,
        expiry_timestamp=token.expiration_timestamp,
        max_timestamp=token.max_timestamp,
        token_id=token.token_id,
        hmac=broker.tokens.hmac_of(token),
        renewers=[
            DescribedDelegationTokenRenewer(principal_type=kind, principal_name=name)
            for kind, name in map(principal_parts, token.renewers)
        ],
    )
