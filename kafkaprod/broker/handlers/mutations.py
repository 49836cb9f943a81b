"""The quota of changes of topics (`controller_mutation_rate`, KIP-599): a token for each partition made or deleted.

Whoever has none left is refused topic by topic, with THROTTLING_QUOTA_EXCEEDED and the time to wait; in versions that
do not know the error the change is made, and the connection waits. On the control thread.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final, NamedTuple

from kafkaprod.broker.calls.request import ClientRequest, Deferred, Outcome, Ready
from kafkaprod.broker.cluster.broker import Broker
from kafkaprod.broker.handlers.authorization import Handle, RefuseRequest, merged
from kafkaprod.broker.settings.quotas import MUTATIONS
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.schema import Response

_MESSAGE: Final = "The throttling quota has been exceeded."


class Mutation(NamedTuple):
    """What a request changes.

    Attributes:
        items: Attribute of the body with the topics.
        results: Attribute of the response with their outcomes.
        first_strict: The first version that knows the error.
        count: Returns the partitions that are made or deleted for an item.
    """

    items: str
    results: str
    first_strict: int
    count: Callable[[Any], int]


def limited(
    broker: Broker, request: ClientRequest[Any], mutation: Mutation, handle: Handle, refuse: RefuseRequest
) -> Outcome:
    """Handle the items that the client has tokens for, and refuse the others.

    Args:
        broker: Has the quotas.
        request: What the client has sent.
        mutation: What it changes.
        handle: Handles a request.
        refuse: Refuses one.
    """
    user = request.principal.partition(":")[2]
    found = broker.quotas.table.find(MUTATIONS, user, request.client_id)
    if found is None or request.is_peer:
        return handle(request)
    now_ms = broker.clock.now_ms()
    bucket = broker.mutation_meters.of(found.entity, user, now_ms)
    is_strict = request.version >= mutation.first_strict
    passed, refused, wait_ms = [], [], 0
    for item in getattr(request.body, mutation.items):
        missing_ms = bucket.wait_ms(found.quota, now_ms)
        if is_strict and missing_ms:
            refused.append(item)
        else:
            passed.append(item)
            bucket.add(mutation.count(item))
            missing_ms = 0 if is_strict else bucket.wait_ms(found.quota, now_ms)
        wait_ms = max(wait_ms, missing_ms)
    if not refused:
        return _waiting(handle(request), wait_ms)
    refusal = refuse(_with_items(request, mutation.items, refused), ErrorCode.THROTTLING_QUOTA_EXCEEDED)
    for result in getattr(refusal, mutation.results):
        result.error_message = _MESSAGE
    if not passed:
        return _waiting(refusal, wait_ms)
    outcome = handle(_with_items(request, mutation.items, passed))
    return _waiting(merged(outcome, refusal, mutation.results), wait_ms)


def _with_items(request: ClientRequest[Any], name: str, items: list[Any]) -> ClientRequest[Any]:
    body = copy.copy(request.body)
    setattr(body, name, items)
    return replace(request, body=body)


def _waiting(outcome: Outcome, wait_ms: int) -> Outcome:
    """Return the outcome with the time to wait in its answer."""

    def named(ready: Any) -> Any:
        if isinstance(ready, Response):
            ready.throttle_time_ms = wait_ms  # type: ignore[attr-defined]  # all three answers have it
        return ready

    def complete(ready: Ready) -> None:
        later.complete(named(ready))

    if not wait_ms:
        return outcome
    if not isinstance(outcome, Deferred):
        result: Outcome = named(outcome)
        return result
    later = Deferred()
    later.on_abandon = outcome.abandon
    outcome.then(complete)
    return later
