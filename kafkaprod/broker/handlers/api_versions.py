"""ApiVersions (18): which versions of which APIs this broker speaks; computed from the handlers.

An unknown version is answered before it comes here, with UNSUPPORTED_VERSION in the encoding of version 0 (KIP-511).
Features are those of `metadata.features`: from level 2 of `transaction.version` on clients use the second version of
the transaction protocol. Before version 4 those that may have level 0 are not among the supported ones, as in Kafka.
The epoch is the offset of the metadata, which grows with each change and each start: clients keep the levels of the
highest epoch that they have seen. A client that looks for another cluster or another node, as from version 5 on it may
say, is answered REBOOTSTRAP_REQUIRED (KIP-1242).
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from kafkaprod.broker.calls.request import ClientRequest, Lane
from kafkaprod.broker.cluster.broker import Broker
from kafkaprod.broker.metadata.features import SUPPORTED
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

API = ApiKey.API_VERSIONS
LANE = Lane.DATA
MAX_VERSION = 5

_FIRST_VERSION_WITH_LEVEL_0 = 4
_NO_NODE = -1
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def handle(broker: Broker, request: ClientRequest[ApiVersionsRequest]) -> ApiVersionsResponse:
    """Answer the table, or why there is none.

    INVALID_REQUEST: The client's name or version is not as KIP-511 wants it, or it names a cluster without a node, or a
    node without a cluster. REBOOTSTRAP_REQUIRED: They are not this broker's.
    """
    body = request.body
    if request.version >= 3:
        names = (body.client_software_name, body.client_software_version)
        is_whole = (body.cluster_id is None) == (body.node_id == _NO_NODE)
        if not is_whole or not all(_SOFTWARE.fullmatch(name) for name in names):
            return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
        if body.cluster_id is not None and (body.cluster_id, body.node_id) != (
            broker.cluster_id,
            broker.config.node_id,
        ):
            return ApiVersionsResponse(error_code=ErrorCode.REBOOTSTRAP_REQUIRED)
    has_level_0 = request.version >= _FIRST_VERSION_WITH_LEVEL_0
    return ApiVersionsResponse(
        api_keys=_entries(broker.peer_api_versions if request.is_peer else broker.api_versions),
        supported_features=[
            SupportedFeatureKey(name=name, min_version=lowest, max_version=highest)
            for name, (lowest, highest) in SUPPORTED.items()
            if lowest or has_level_0
        ],
        finalized_features_epoch=max(broker.image.end_offset - 1, 0),
        # A feature at level 0 is not listed.
        finalized_features=[
            FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
            for name, level in dict(broker.image.features).items()
            if level
        ],
    )


def _entries(versions: Mapping[ApiKey, tuple[int, int]]) -> list[ApiVersion]:
    return [ApiVersion(api_key=api, min_version=low, max_version=high) for api, (low, high) in versions.items()]
