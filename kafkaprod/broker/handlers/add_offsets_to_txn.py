"""AddOffsetsToTxn (25): the transaction is about to commit offsets of a group.

It makes the partition that holds the group's offsets part of the transaction. Version 2: a fenced producer sees
PRODUCER_FENCED, before INVALID_PRODUCER_EPOCH.
"""

from __future__ import annotations

from kafkaprod.broker.calls.request import ClientRequest, Lane
from kafkaprod.broker.cluster.broker import Broker
from kafkaprod.broker.coordinator.coordinators import TRANSACTIONS
from kafkaprod.broker.coordinator.offset_log import OFFSETS_PARTITION
from kafkaprod.broker.coordinator.transaction import TV1, ProducerIdAndEpoch
from kafkaprod.broker.handlers.refusals import refuse
from kafkaprod.broker.handlers.transaction_errors import for_version
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from kafkaprod.protocol.schema import Response

API = ApiKey.ADD_OFFSETS_TO_TXN
LANE = Lane.CONTROL
MAX_VERSION = 4
COORDINATED_BY = TRANSACTIONS

_FIRST_VERSION_WITH_FENCED = 2


def handle(broker: Broker, request: ClientRequest[AddOffsetsToTxnRequest]) -> Response:
    """Add the partition."""
    body = request.body
    given = ProducerIdAndEpoch(body.producer_id, body.producer_epoch)
    error = broker.transactions.add_partitions(
        body.transactional_id, given, [OFFSETS_PARTITION], TV1, broker.clock.wall_ms()
    )
    return refuse(request, for_version(error, request.version, _FIRST_VERSION_WITH_FENCED))
