"""ReplicateMetadata (10001): the cluster's controller pushes metadata. It comes over the cluster's sockets only."""

from __future__ import annotations

from kafkaprod.broker.calls.request import ClientRequest, CloseConnectionError, Lane
from kafkaprod.broker.cluster.broker import Broker
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.messages.replicate_metadata import ReplicateMetadataRequest, ReplicateMetadataResponse

API = ApiKey.REPLICATE_METADATA
LANE = Lane.DATA
MAX_VERSION = 0
PEERS_ONLY = True


def handle(broker: Broker, request: ClientRequest[ReplicateMetadataRequest]) -> ReplicateMetadataResponse:
    """Apply the metadata.

    Raises:
        CloseConnectionError: It does not come from the cluster's controller.
    """
    if not request.is_peer:
        raise CloseConnectionError("ReplicateMetadata does not come from a controller")
    return broker.standing.receive_slice(request.body)
