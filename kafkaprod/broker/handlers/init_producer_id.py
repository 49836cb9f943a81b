"""InitProducerId (22): a producer id and epoch.

    3    the present id and epoch may be sent along, to continue with the next epoch (KIP-360)
    4    a fenced producer sees PRODUCER_FENCED, before INVALID_PRODUCER_EPOCH
Without a transactional id each answer is a fresh id with epoch 0, whatever was sent along.
"""

from __future__ import annotations

from typing import Any

from kafkaprod.broker.calls.request import ClientRequest, Lane
from kafkaprod.broker.cluster.broker import Broker
from kafkaprod.broker.coordinator.coordinators import TRANSACTIONS
from kafkaprod.broker.coordinator.transaction import ProducerIdAndEpoch
from kafkaprod.broker.handlers.authorization import Authorizer, Handle, RefuseRequest
from kafkaprod.broker.handlers.refusals import refuse
from kafkaprod.broker.handlers.transaction_errors import for_version
from kafkaprod.broker.settings import acls
from kafkaprod.broker.settings.acls import CLUSTER, TOPIC, TRANSACTIONAL_ID
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kafkaprod.protocol.schema import Response
from kafkaprod.storage.batch_header import NO_PRODUCER_EPOCH, NO_PRODUCER_ID

API = ApiKey.INIT_PRODUCER_ID
LANE = Lane.CONTROL
MAX_VERSION = 5
COORDINATED_BY = TRANSACTIONS._replace(only_with="transactional_id")

_FIRST_VERSION_WITH_FENCED = 4


def handle(broker: Broker, request: ClientRequest[InitProducerIdRequest]) -> Response:
    """Give out an id no producer of this data directory ever had, or the next epoch of a transactional id."""
    body = request.body
    if body.transactional_id is None:
        try:
            return InitProducerIdResponse(producer_id=broker.producer_ids.allocate(), producer_epoch=0)
        except OSError:
            return refuse(request, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    if (body.producer_id == NO_PRODUCER_ID) != (body.producer_epoch == NO_PRODUCER_EPOCH):
        return refuse(request, ErrorCode.INVALID_REQUEST)
    given = None if body.producer_id == NO_PRODUCER_ID else ProducerIdAndEpoch(body.producer_id, body.producer_epoch)
    step = broker.transactions.init_producer(
        body.transactional_id, given, body.transaction_timeout_ms, broker.clock.wall_ms()
    )
    if step.error is not ErrorCode.NONE:
        return refuse(request, for_version(step.error, request.version, _FIRST_VERSION_WITH_FENCED))
    return InitProducerIdResponse(producer_id=step.answer.producer_id, producer_epoch=step.answer.epoch)


def authorize(authorizer: Authorizer, call: Handle, deny: RefuseRequest) -> Any:
    """Without a transactional id, a client must be allowed to write somewhere."""
    transactional_id = authorizer.request.body.transactional_id
    if transactional_id is not None:
        if not authorizer.may(acls.WRITE, TRANSACTIONAL_ID, transactional_id):
            return deny(authorizer.request, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    elif not authorizer.may(acls.IDEMPOTENT_WRITE, CLUSTER) and not authorizer.may_for_any(acls.WRITE, TOPIC):
        return deny(authorizer.request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    return call(authorizer.request)
