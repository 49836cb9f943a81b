"""EndTxn (26): commit or abort the transaction of a transactional id.

2    a fenced producer sees PRODUCER_FENCED, before INVALID_PRODUCER_EPOCH
5    answers the id and epoch of the next transaction (KIP-890)
"""

from __future__ import annotations

from kafkaprod.broker.calls.request import ClientRequest, Lane
from kafkaprod.broker.cluster.broker import Broker
from kafkaprod.broker.coordinator.coordinators import TRANSACTIONS
from kafkaprod.broker.coordinator.transaction import TV1, TV2, ProducerIdAndEpoch
from kafkaprod.broker.handlers.refusals import refuse
from kafkaprod.broker.handlers.transaction_errors import for_version
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from kafkaprod.protocol.schema import Response

API = ApiKey.END_TXN
LANE = Lane.CONTROL
MAX_VERSION = 5
COORDINATED_BY = TRANSACTIONS

_FIRST_VERSION_WITH_FENCED = 2
_FIRST_VERSION_OF_TV2 = 5


def handle(broker: Broker, request: ClientRequest[EndTxnRequest]) -> Response:
    """Decide the transaction; answered when the decision is in the log."""
    body = request.body
    step = broker.transactions.end(
        body.transactional_id,
        ProducerIdAndEpoch(body.producer_id, body.producer_epoch),
        is_commit=body.committed,
        client_version=TV2 if request.version >= _FIRST_VERSION_OF_TV2 else TV1,
        now_ms=broker.clock.wall_ms(),
    )
    if step.error is not ErrorCode.NONE:
        return refuse(request, for_version(step.error, request.version, _FIRST_VERSION_WITH_FENCED))
    return EndTxnResponse(producer_id=step.answer.producer_id, producer_epoch=step.answer.epoch)
