"""AlterUserScramCredentials (51): set and remove SCRAM credentials; each user's changes all or none."""

from __future__ import annotations

from kafkaprod.broker.cluster.broker import Broker
from kafkaprod.broker.server.refusal import RequestRefusedError
from kafkaprod.broker.server.request import ClientRequest, Lane
from kafkaprod.errors import BrokerError
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)

API = ApiKey.ALTER_USER_SCRAM_CREDENTIALS
LANE = Lane.CONTROL
MAX_VERSION = 0


def handle(
    broker: Broker, request: ClientRequest[AlterUserScramCredentialsRequest]
) -> AlterUserScramCredentialsResponse:
    """Check all changes of a user, then make them."""
    results = []
    for user in _users(request.body):
        result = AlterUserScramCredentialsResult(user=user)
        try:
            _alter(broker, request.body, user)
        except BrokerError as error:
            result.error_code, result.error_message = error.code, str(error)
        results.append(result)
    return AlterUserScramCredentialsResponse(results=results)


def refuse(
    request: ClientRequest[AlterUserScramCredentialsRequest], error_code: int
) -> AlterUserScramCredentialsResponse:
    """Answer the error for every user."""
    return AlterUserScramCredentialsResponse(
        results=[AlterUserScramCredentialsResult(user=user, error_code=error_code) for user in _users(request.body)]
    )


def _users(body: AlterUserScramCredentialsRequest) -> list[str]:
    names = [*(deletion.name for deletion in body.deletions), *(upsertion.name for upsertion in body.upsertions)]
    return list(dict.fromkeys(names))


def _alter(broker: Broker, body: AlterUserScramCredentialsRequest, user: str) -> None:
    deletions = [change for change in body.deletions if change.name == user]
    upsertions = [change for change in body.upsertions if change.name == user]
    mechanisms = [*(change.mechanism for change in deletions), *(change.mechanism for change in upsertions)]
    if len(set(mechanisms)) < len(mechanisms):
        raise RequestRefusedError(
            ErrorCode.DUPLICATE_RESOURCE, "A user credential cannot be altered twice in the same request"
        )
    for deletion in deletions:
        broker.scram.check_deletion(user, deletion.mechanism)
    for upsertion in upsertions:
        broker.scram.check_upsertion(user, upsertion.mechanism, upsertion.iterations)
    for deletion in deletions:
        broker.scram.delete(user, deletion.mechanism)
    for upsertion in upsertions:
        broker.scram.upsert(
            user,
            upsertion.mechanism,
            upsertion.iterations,
            bytes(upsertion.salt),
            bytes(upsertion.salted_password),
        )
