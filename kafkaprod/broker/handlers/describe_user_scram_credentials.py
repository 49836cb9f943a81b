"""DescribeUserScramCredentials (50): users with SCRAM credentials, mechanisms and iterations."""

from __future__ import annotations

from collections import Counter

from kafkaprod.broker.calls.request import ClientRequest, Lane
from kafkaprod.broker.cluster.broker import Broker
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)

API = ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS
LANE = Lane.CONTROL
MAX_VERSION = 0


def handle(
    broker: Broker, request: ClientRequest[DescribeUserScramCredentialsRequest]
) -> DescribeUserScramCredentialsResponse:
    """Describe each user, or all if no user is named.

    RESOURCE_NOT_FOUND for one without credentials, DUPLICATE_RESOURCE for one named twice.
    """
    known = broker.scram.describe()
    counts = Counter(user.name for user in request.body.users or [])
    results = []
    for name in counts or sorted(known):
        result = DescribeUserScramCredentialsResult(user=name)
        if counts[name] > 1:
            result.error_code = ErrorCode.DUPLICATE_RESOURCE
            result.error_message = (
                f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}"
            )
        elif name not in known:
            result.error_code = ErrorCode.RESOURCE_NOT_FOUND
            result.error_message = f"Attempt to describe a user credential that does not exist: {name}"
        else:
            result.credential_infos = [
                CredentialInfo(mechanism=mechanism, iterations=iterations)
                for mechanism, iterations in sorted(known[name].items())
            ]
        results.append(result)
    return DescribeUserScramCredentialsResponse(results=results)
