"""Get a producer id of a cluster, as an idempotent producer does."""

from __future__ import annotations

from typing import Final

from kafkaprod.admin.client import ClusterClient
from kafkaprod.engine.identity import NO_TRANSACTION_TIMEOUT, no_producer_id
from kafkaprod.protocol.error_codes import describe
from kafkaprod.protocol.messages.init_producer_id import InitProducerIdRequest

MAX_TRIES: Final = 100
RETRY_MS: Final = 100


def new_producer_id(client: ClusterClient) -> tuple[int, int]:
    """Return a new producer id and its epoch.

    Raises:
        KafkaError: The cluster gives none; the text says what to do.
    """
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=NO_TRANSACTION_TIMEOUT)
    answer = client.ask(request)
    for _ in range(MAX_TRIES):  # a broker that has just started knows no ids yet
        if not (answer.error_code and describe(answer.error_code).retriable):
            break
        client.wait(RETRY_MS)
        answer = client.ask(request)
    if answer.error_code:
        raise no_producer_id(answer.error_code)
    return answer.producer_id, answer.producer_epoch
