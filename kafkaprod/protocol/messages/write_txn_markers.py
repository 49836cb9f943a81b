"""WriteTxnMarkers (27): the transaction coordinator ends transactions in partitions; from brokers, or to abort by hand.

    1  flexible     2  the transaction version the producer ran with (KIP-1228)

Source: KIP-98, KIP-664, KIP-1228.
"""

from __future__ import annotations

from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.field_types import BOOL, INT8, INT16, INT32, INT64, STRING, array
from kafkaprod.protocol.schema import Request, Response, Struct, field


class WritableTxnMarkerTopic(Struct):
    """Partitions of one topic."""

    name: str = field(STRING)
    partition_indexes: list[int] = field(array(INT32))


class WritableTxnMarker(Struct):
    """The marker of one producer."""

    producer_id: int = field(INT64)
    producer_epoch: int = field(INT16)
    transaction_result: bool = field(BOOL)  # true commits, false aborts
    topics: list[WritableTxnMarkerTopic] = field(array(WritableTxnMarkerTopic))
    coordinator_epoch: int = field(INT32)
    transaction_version: int = field(INT8, since=2, ignorable=True)


class WriteTxnMarkersRequest(Request, api=ApiKey.WRITE_TXN_MARKERS, versions=(1, 2), flexible_from=1):
    """Markers to write."""

    markers: list[WritableTxnMarker] = field(array(WritableTxnMarker))


class WritableTxnMarkerPartitionResult(Struct):
    """The outcome for one partition."""

    partition_index: int = field(INT32)
    error_code: int = field(INT16)


class WritableTxnMarkerTopicResult(Struct):
    """The outcomes for one topic."""

    name: str = field(STRING)
    partitions: list[WritableTxnMarkerPartitionResult] = field(array(WritableTxnMarkerPartitionResult))


class WritableTxnMarkerResult(Struct):
    """The outcomes for one producer."""

    producer_id: int = field(INT64)
    topics: list[WritableTxnMarkerTopicResult] = field(array(WritableTxnMarkerTopicResult))


class WriteTxnMarkersResponse(Response, api=ApiKey.WRITE_TXN_MARKERS, versions=(1, 2), flexible_from=1):
    """One error code per partition."""

    markers: list[WritableTxnMarkerResult] = field(array(WritableTxnMarkerResult))
