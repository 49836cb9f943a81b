"""ReplicateMetadata (10001): the embedded cluster's controller pushes a slice of the metadata log to a broker.

Not part of Kafka, where brokers fetch the log; it goes over the cluster's internal sockets only.
"""

from __future__ import annotations

from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.field_types import BYTES, INT16, INT32, INT64, array
from kafkaprod.protocol.schema import Request, Response, Struct, field
from kafkaprod.structs import BytesLike


class MetadataBatchData(Struct):
    """Records that take effect together; each value as in Kafka's metadata log."""

    base_offset: int = field(INT64)
    epoch: int = field(INT32)
    records: list[BytesLike] = field(array(BYTES))


class ReplicateMetadataRequest(Request, api=ApiKey.REPLICATE_METADATA, versions=(0, 0), flexible_from=0):
    """Batches, and the place behind which they belong; or one, a part of a snapshot.

    Attributes:
        snapshot_end_offset: The end of the log that the snapshot holds; -1 for batches of the log.
    """

    controller_epoch: int = field(INT32)
    broker_epoch: int = field(INT64)
    previous_offset: int = field(INT64)
    previous_epoch: int = field(INT32)
    commit_offset: int = field(INT64)
    batches: list[MetadataBatchData] = field(array(MetadataBatchData))
    snapshot_end_offset: int = field(INT64, default=-1)
    snapshot_epoch: int = field(INT32, default=-1)
    snapshot_first: int = field(INT32)
    snapshot_total: int = field(INT32)


class ReplicateMetadataResponse(Response, api=ApiKey.REPLICATE_METADATA, versions=(0, 0), flexible_from=0):
    """Where the broker's log ends."""

    error_code: int = field(INT16)
    end_offset: int = field(INT64)
    end_epoch: int = field(INT32)
