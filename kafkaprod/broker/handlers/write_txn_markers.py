"""WriteTxnMarkers (27): end transactions in partitions.

It comes from the transaction coordinator of a cluster, or from an administrator (`kafka-transactions.sh abort`). The
coordinator of a broker alone writes its markers without a request.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kafkaprod.broker.calls.request import ClientRequest, Deferred, Lane
from kafkaprod.broker.cluster.broker import Broker
from kafkaprod.broker.coordinator.markers import Marker
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from kafkaprod.structs import TopicPartition

API = ApiKey.WRITE_TXN_MARKERS
LANE = Lane.CONTROL
MAX_VERSION = 2


def handle(broker: Broker, request: ClientRequest[WriteTxnMarkersRequest]) -> Deferred:
    """Write each marker; the outcome of each partition has its own error."""
    wanted = [(_marker(each), _partitions(each)) for each in request.body.markers]
    deferred = Deferred()
    broker.standing.write_markers(wanted, lambda outcomes: deferred.complete(_response(request, outcomes)))
    return deferred


def _response(
    request: ClientRequest[WriteTxnMarkersRequest], outcomes: Sequence[Mapping[TopicPartition, int]]
) -> WriteTxnMarkersResponse:
    pairs = zip(request.body.markers, outcomes, strict=True)
    return WriteTxnMarkersResponse(markers=[_result(wanted, errors) for wanted, errors in pairs])


def _marker(wanted: WritableTxnMarker) -> Marker:
    return Marker(
        wanted.producer_id,
        wanted.producer_epoch,
        wanted.transaction_result,
        wanted.coordinator_epoch,
        wanted.transaction_version,
    )


def _partitions(marker: WritableTxnMarker) -> list[TopicPartition]:
    wanted = (TopicPartition(topic.name, index) for topic in marker.topics for index in topic.partition_indexes)
    return list(dict.fromkeys(wanted))


def _result(marker: WritableTxnMarker, errors: Mapping[TopicPartition, int]) -> WritableTxnMarkerResult:
    return WritableTxnMarkerResult(
        producer_id=marker.producer_id,
        topics=[
            WritableTxnMarkerTopicResult(
                name=topic.name,
                partitions=[
                    WritableTxnMarkerPartitionResult(
                        partition_index=index, error_code=errors[TopicPartition(topic.name, index)]
                    )
                    for index in topic.partition_indexes
                ],
            )
            for topic in marker.topics
        ],
    )
