"""AlterUserScramCredentials (51): set and remove SCRAM credentials; a user's changes all or none."""

from __future__ import annotations

from collections.abc import Sequence

from kafkaprod.broker.cluster.broker import Broker
from kafkaprod.broker.cluster.scram_store import ScramStore, keys_of
from kafkaprod.broker.server.login import ScramKeys
from kafkaprod.broker.server.refusal import RequestRefusedError
from kafkaprod.broker.server.request import ClientRequest, Lane
from kafkaprod.errors import BrokerError
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)

API = ApiKey.ALTER_USER_SCRAM_CREDENTIALS
LANE = Lane.CONTROL
MAX_VERSION = 0

_Changes = tuple[list[ScramCredentialDeletion], list[ScramCredentialUpsertion]]


def handle(
    broker: Broker, request: ClientRequest[AlterUserScramCredentialsRequest]
) -> AlterUserScramCredentialsResponse:
    """Check all changes of each user, then make those of the users that passed."""
    results = []
    good: dict[tuple[str, int], ScramKeys | None] = {}
    for user, (deletions, upsertions) in _by_user(request.body).items():
        result = AlterUserScramCredentialsResult(user=user)
        try:
            good.update(_checked(broker.scram, user, deletions, upsertions))
        except BrokerError as error:
            result.error_code, result.error_message = error.code, str(error)
        results.append(result)
    try:
        broker.scram.alter(good)
    except BrokerError as error:
        return refuse(request, error.code)
    return AlterUserScramCredentialsResponse(results=results)


def refuse(
    request: ClientRequest[AlterUserScramCredentialsRequest], error_code: int
) -> AlterUserScramCredentialsResponse:
    """Answer the error for every user."""
    return AlterUserScramCredentialsResponse(
        results=[AlterUserScramCredentialsResult(user=user, error_code=error_code) for user in _by_user(request.body)]
    )


def _by_user(body: AlterUserScramCredentialsRequest) -> dict[str, _Changes]:
    users: dict[str, _Changes] = {}
    for deletion in body.deletions:
        users.setdefault(deletion.name, ([], []))[0].append(deletion)
    for upsertion in body.upsertions:
        users.setdefault(upsertion.name, ([], []))[1].append(upsertion)
    return users


def _checked(
    store: ScramStore,
    user: str,
    deletions: Sequence[ScramCredentialDeletion],
    upsertions: Sequence[ScramCredentialUpsertion],
) -> dict[tuple[str, int], ScramKeys | None]:
    """Return what is to be changed of a user. Raises RequestRefusedError: some of it may not be."""
    mechanisms = [*(change.mechanism for change in deletions), *(change.mechanism for change in upsertions)]
    if len(set(mechanisms)) < len(mechanisms):
        raise RequestRefusedError(
            ErrorCode.DUPLICATE_RESOURCE, "A user credential cannot be altered twice in the same request"
        )
    for deletion in deletions:
        store.check_deletion(user, deletion.mechanism)
    for upsertion in upsertions:
        store.check_upsertion(user, upsertion.mechanism, upsertion.iterations)
    changes: dict[tuple[str, int], ScramKeys | None] = {(user, deletion.mechanism): None for deletion in deletions}
    for change in upsertions:
        keys = keys_of(change.mechanism, bytes(change.salted_password), bytes(change.salt), change.iterations)
        changes[user, change.mechanism] = keys
    return changes
