"""WriteTxnMarkers (27): end transactions in partitions, by hand of an administrator (`kafka-transactions.sh abort`).

The transaction coordinator of this broker writes its markers without a request.
"""

from __future__ import annotations

from collections.abc import Mapping

from kafkaprod.broker.cluster.broker import Broker
from kafkaprod.broker.coordinator.markers import Marker
from kafkaprod.broker.server.request import ClientRequest, Lane
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


def handle(broker: Broker, request: ClientRequest[WriteTxnMarkersRequest]) -> WriteTxnMarkersResponse:
    """Write each marker; 3 for a partition that does not exist, 47 and 52 for one that refuses it."""
    results = []
    for wanted in request.body.markers:
        marker = Marker(
            wanted.producer_id,
            wanted.producer_epoch,
            wanted.transaction_result,
            wanted.coordinator_epoch,
            wanted.transaction_version,
        )
        results.append(_result(wanted, broker.markers.write(marker, _partitions(wanted))))
    return WriteTxnMarkersResponse(markers=results)


def refuse(request: ClientRequest[WriteTxnMarkersRequest], error_code: int) -> WriteTxnMarkersResponse:
    """Answer the error for every partition."""
    return WriteTxnMarkersResponse(
        markers=[_result(wanted, dict.fromkeys(_partitions(wanted), error_code)) for wanted in request.body.markers]
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
