"""AlterUserScramCredentials (51): set and remove SCRAM credentials; a user's changes all or none."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from kafkaprod.broker.calls.login import ScramKeys
from kafkaprod.broker.calls.refusal import RequestRefusedError
from kafkaprod.broker.calls.request import ClientRequest, Lane, Outcome
from kafkaprod.broker.calls.steps import Pause, PausingSteps, run_in_control_steps
from kafkaprod.broker.cluster.broker import Broker
from kafkaprod.broker.settings.scram_store import ScramStore, keys_of
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

_USERS_OF_STEP = 4_000  # a step of 0.2 s; each copies all settings
_Changes = tuple[list[ScramCredentialDeletion], list[ScramCredentialUpsertion]]


def handle(broker: Broker, request: ClientRequest[AlterUserScramCredentialsRequest]) -> Outcome:
    """Check all changes of each user, then make those of the users that passed."""
    return run_in_control_steps(broker, _alter_all(broker.scram, request.body), partial(refuse, request))


def _alter_all(
    store: ScramStore, body: AlterUserScramCredentialsRequest
) -> PausingSteps[AlterUserScramCredentialsResponse]:
    users = list(_by_user(body).items())
    results = []
    for first in range(0, len(users), _USERS_OF_STEP):
        results += _alter(store, users[first : first + _USERS_OF_STEP])
        yield Pause.SHORT
    return AlterUserScramCredentialsResponse(results=results)


def _alter(store: ScramStore, users: Sequence[tuple[str, _Changes]]) -> list[AlterUserScramCredentialsResult]:
    """Change some users by one record batch of the metadata."""
    results = []
    good: dict[tuple[str, int], ScramKeys | None] = {}
    for user, (deletions, upsertions) in users:
        result = AlterUserScramCredentialsResult(user=user)
        try:
            good.update(_checked(store, user, deletions, upsertions))
        except BrokerError as error:
            result.error_code, result.error_message = error.code, str(error)
        results.append(result)
    try:
        store.alter(good)
    except BrokerError as error:
        return [AlterUserScramCredentialsResult(user=user, error_code=error.code) for user, _ in users]
    return results


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
    """Return the changes of a user. Raises RequestRefusedError: some are not allowed."""
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
