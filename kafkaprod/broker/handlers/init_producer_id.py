"""InitProducerId (22): a fresh producer id, epoch 0, for an idempotent producer.

    3    an id and epoch may be sent along; without a transactional id they change nothing: the answer is a new id
    (KIP-360)
Transactional ids have no coordinator here yet: 42.
"""

from __future__ import annotations

from kafkaprod.broker.cluster.broker import Broker
from kafkaprod.broker.server.request import ClientRequest, Lane
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

API = ApiKey.INIT_PRODUCER_ID
LANE = Lane.CONTROL
MAX_VERSION = 4


def handle(broker: Broker, request: ClientRequest[InitProducerIdRequest]) -> InitProducerIdResponse:
    """Give out an id no producer of this data directory ever had."""
    if request.body.transactional_id is not None:
        return refuse(request, ErrorCode.INVALID_REQUEST)
    try:
        return InitProducerIdResponse(producer_id=broker.producer_ids.allocate(), producer_epoch=0)
    except OSError:
        return refuse(request, ErrorCode.COORDINATOR_NOT_AVAILABLE)


def refuse(request: ClientRequest[InitProducerIdRequest], error_code: int) -> InitProducerIdResponse:
    """The error."""
    return InitProducerIdResponse(error_code=error_code, producer_epoch=-1)
