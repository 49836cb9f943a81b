"""Transaction markers in a cluster: written where this broker leads, answered when all in-sync replicas have them."""

from __future__ import annotations

import logging

from kafkaprod.broker.cluster.broker import Broker
from kafkaprod.broker.cluster.produce_replication import ACKS_ALL, Replicated, await_replicas, note_append
from kafkaprod.broker.cluster.standing import OnMarkers, WantedMarkers
from kafkaprod.broker.coordinator.markers import Marker
from kafkaprod.broker.coordinator.offset_log import OFFSETS_PARTITION
from kafkaprod.broker.storage.format.control_batch import EndTransactionMarker
from kafkaprod.errors import BrokerError
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.messages.produce import PartitionProduceResponse
from kafkaprod.structs import TopicPartition

logger = logging.getLogger(__name__)

_TIMEOUT_MS = 5_000


def write_replicated(broker: Broker, wanted: WantedMarkers, finish: OnMarkers) -> None:
    """Write markers; `finish` gets the error codes of each one's partitions, on the control thread. In the event loop.

    A marker in the log of committed offsets moves or drops the offsets that waited for it before `finish` is called.
    """
    outcomes: list[dict[TopicPartition, int]] = []
    written: list[tuple[int, Replicated]] = []
    for place, (marker, partitions) in enumerate(wanted):
        outcomes.append({})
        for key in partitions:
            appended = _append(broker, marker, key)
            if isinstance(appended, Replicated):
                written.append((place, appended))
            else:
                outcomes[place][key] = appended

    def complete() -> None:
        for place, batch in written:
            key, error = batch.topic_partition, batch.response.error_code
            outcomes[place][key] = error
            if key == OFFSETS_PARTITION and error == ErrorCode.NONE:
                marker = wanted[place][0]
                broker.offsets.end_transaction(marker.producer_id, is_commit=marker.is_commit)
        finish(outcomes)

    await_replicas(broker, [batch for _, batch in written], _TIMEOUT_MS, lambda: broker.run_control(complete))


def _append(broker: Broker, marker: Marker, key: TopicPartition) -> Replicated | int:
    partition = broker.topics.partition(*key)
    if partition is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    replica = partition.replica
    if replica is None or not replica.is_leader:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    refusal = replica.append_error(ACKS_ALL)
    if refusal != ErrorCode.NONE:
        return refusal
    outcome = EndTransactionMarker(marker.is_commit, marker.coordinator_epoch)
    try:
        result = partition.log.append_marker(
            marker.producer_id, marker.epoch, outcome, replica.leader_epoch, marker.transaction_version
        )
    except BrokerError as error:
        logger.warning("marker of producer %d in %s was refused: %s", marker.producer_id, key, error)
        return error.code
    note_append(broker, key, replica)
    response = PartitionProduceResponse(index=key.partition, base_offset=result.base_offset)
    return Replicated(key, replica, replica.leader_epoch, result.last_offset + 1, response)
